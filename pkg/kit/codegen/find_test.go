/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package codegen_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

func TestFind(t *testing.T) {
	named := "// +groupName=bakery.example.com\n\npackage p\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  []codegen.API
		err   string
	}{
		"nothing": {files: map[string]string{"pkg/bakery/v1/types.go": named}},
		"versions in the order of preference, beside internal types": {
			files: map[string]string{
				"pkg/apis/bakery/types.go":          "package bakery\n",
				"pkg/apis/bakery/install/v1.go":     "package install\n",
				"pkg/apis/bakery/v1/types.go":       named,
				"pkg/apis/bakery/v1alpha1/types.go": named,
				"pkg/apis/bakery/v1beta1/types.go":  named,
				"pkg/apis/bakery/v2/types.go":       named,
				"pkg/apis/doc.go":                   "package apis\n",
			},
			want: []codegen.API{{Dir: "pkg/apis", Groups: []codegen.Group{{
				Name: "bakery", Domain: "bakery.example.com", Internal: true,
				Versions: []codegen.Version{{Name: "v2"}, {Name: "v1"}, {Name: "v1beta1"}, {Name: "v1alpha1"}},
			}}}},
		},
		"several groups, without internal types": {
			files: map[string]string{
				"apis/bakery/v1/types.go": named,
				"apis/dairy/v1/types.go":  "// +groupName=dairy.example.com\n\npackage v1\n",
			},
			want: []codegen.API{{Dir: "apis", Groups: []codegen.Group{
				{Name: "bakery", Domain: "bakery.example.com", Versions: []codegen.Version{{Name: "v1"}}},
				{Name: "dairy", Domain: "dairy.example.com", Versions: []codegen.Version{{Name: "v1"}}},
			}}},
		},
		"what the tags ask for": {
			files: map[string]string{
				"apis/bakery/v1/doc.go": "// +k8s:openapi-gen=true\n// +k8s:openapi-model-package=com.example.bakery.v1\n" +
					"// +k8s:protobuf-gen=package\n// +groupName=bakery.example.com\n\npackage v1\n",
				"apis/bakery/v1/types.go": "package v1\n\n// +genclient\n// +genclient:nonNamespaced\n\ntype Oven struct{}\n",
			},
			want: []codegen.API{{Dir: "apis", Groups: []codegen.Group{{Name: "bakery", Domain: "bakery.example.com", Versions: []codegen.Version{
				{Name: "v1", ModelPackage: "com.example.bakery.v1", OpenAPI: true, Protobuf: true, Clients: true},
			}}}}},
		},
		"what is not Go's": {files: map[string]string{
			"testdata/apis/bakery/v1/types.go": named,
			"vendor/apis/bakery/v1/types.go":   named,
			"_output/apis/bakery/v1/types.go":  named,
			".git/apis/bakery/v1/types.go":     named,
			"other/go.mod":                     "module other\n",
			"other/apis/bakery/v1/types.go":    named,
		}},
		"no name": {
			files: map[string]string{"apis/bakery/v1/types.go": "package v1\n"},
			err:   "apis/bakery has no name: write the comment // +groupName=<name of the API group> above the package clause of its types",
		},
	} {
		t.Run(name, func(t *testing.T) {
			module := fstest.MapFS{}
			for path, text := range test.files {
				module[path] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := codegen.Find(module)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(test.want, got))
		})
	}
}
