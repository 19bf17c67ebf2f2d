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

package crdserver

import (
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Objects that kube-apiserver 1.35 has stored may be invalid for apiextensions-apiserver that this server is
// built with.
func TestValidation(t *testing.T) {
	t.Parallel()
	definition := widgetsOf("a", "v1", "v2")
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{
		"size": {Type: "integer", Format: "int32"},
	}
	definition.Spec.Versions[1].Schema = nil
	validate, err := validation(definition)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		stored, version string
		size            int64
		want            string
	}{
		"a small integer":                {"v1", "v1", 1, ""},
		"an integer beyond its format":   {"v1", "v1", 3_000_000_000, `<nil>: Invalid value: "": Checked value must be of type integer with format int32 in size`},
		"another version than is stored": {"v1", "v2", 3_000_000_000, ""},
		"a version without a schema":     {"v2", "v2", 3_000_000_000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/" + test.stored, "kind": "Widget", "size": test.size}}
			errs := validate(t.Context(), object, test.version)
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.EqualError(t, errs.ToAggregate(), test.want)
		})
	}
}
