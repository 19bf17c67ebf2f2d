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

package codegen

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckSources(t *testing.T) {
	for name, test := range map[string]struct {
		source, want string
		noProtobuf   bool
	}{
		"an enumeration":           {source: "// +enum\n// +k8s:enum\ntype Mode string\n"},
		"one that OpenAPI misses":  {source: "// +k8s:enum\ntype Mode string\n", want: "apis/bakery/v1.Mode has the tag +k8s:enum: add +enum, or OpenAPI, kubectl explain and exported definitions don't know the values"},
		"a method of messages":     {source: "type Oven struct {\n\tName, Size string\n}\n", want: "apis/bakery/v1.Oven.Size has the name of a method of protobuf messages: call it SizeValue. If its name in JSON has to stay, accept the violation of names_match in hack/violation_exceptions.list"},
		"a name without a message": {source: "type Oven struct {\n\tName, Size string\n}\n", noProtobuf: true},
		"no Go":                    {source: "tpye Oven\n", want: "expected declaration, found tpye"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &generation{Config: Config{Module: t.TempDir(), NoProtobuf: test.noProtobuf}}
			writeFiles(t, g.Module, map[string]string{"apis/bakery/v1/types.go": "package v1\n\n" + test.source})
			err := g.checkSources([]API{{Dir: "apis", Groups: []Group{{Name: "bakery", Versions: []Version{{Name: "v1", Protobuf: true}}}}}})
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}
