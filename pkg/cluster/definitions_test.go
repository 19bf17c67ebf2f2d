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

package cluster

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestHide(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		definition, hidden string
		// unhidden is what Unhide makes of hidden, if that is not the definition.
		unhidden string
	}{
		"two versions": {
			definition: `{"metadata": {}, "spec": {"versions": [{"name": "v1", "served": true}, {"name": "v2", "served": true}]}}`,
			hidden:     `{"metadata": {"annotations": {"crd-apiserver/served": "v1,v2"}}, "spec": {"versions": [{"name": "v1", "served": false}, {"name": "v2", "served": false}]}}`,
		},
		"one of two": {
			definition: `{"metadata": {"annotations": {"a": "b"}}, "spec": {"versions": [{"name": "v1", "served": false}, {"name": "v2", "served": true}]}}`,
			hidden:     `{"metadata": {"annotations": {"a": "b", "crd-apiserver/served": "v2"}}, "spec": {"versions": [{"name": "v1", "served": false}, {"name": "v2", "served": false}]}}`,
		},
		"hidden already": {
			definition: `{"metadata": {"annotations": {"crd-apiserver/served": "v1"}}, "spec": {"versions": [{"name": "v1", "served": false}]}}`,
			hidden:     `{"metadata": {"annotations": {"crd-apiserver/served": "v1"}}, "spec": {"versions": [{"name": "v1", "served": false}]}}`,
			unhidden:   `{"metadata": {}, "spec": {"versions": [{"name": "v1", "served": true}]}}`,
		},
		"applied again without a version": {
			definition: `{"metadata": {"annotations": {"crd-apiserver/served": "v1,v2"}}, "spec": {"versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}]}}`,
			hidden:     `{"metadata": {"annotations": {"crd-apiserver/served": "v1"}}, "spec": {"versions": [{"name": "v1", "served": false}, {"name": "v2", "served": false}]}}`,
			unhidden:   `{"metadata": {}, "spec": {"versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}]}}`,
		},
		"while objects move back": {
			definition: `{"metadata": {}, "spec": {"versions": [{"name": "v1", "served": true}, {"name": "migrate", "served": true}]}}`,
			hidden:     `{"metadata": {"annotations": {"crd-apiserver/served": "v1"}}, "spec": {"versions": [{"name": "v1", "served": false}, {"name": "migrate", "served": true}]}}`,
		},
		"nothing served": {
			definition: `{"metadata": {}, "spec": {"versions": [{"name": "v1", "served": false}]}}`,
			hidden:     `{"metadata": {}, "spec": {"versions": [{"name": "v1", "served": false}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition, want := parse(t, test.definition), parse(t, test.hidden)
			require.NoError(t, Hide(definition))
			require.Empty(t, cmp.Diff(want, definition))
			if test.unhidden == "" {
				test.unhidden = test.definition
			}
			require.NoError(t, Unhide(definition))
			require.Empty(t, cmp.Diff(parse(t, test.unhidden), definition))
		})
	}
	require.EqualError(t, Hide(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "things.example.com"}}}),
		"the CustomResourceDefinition things.example.com has no versions")
}

func parse(t *testing.T, content string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(content), &object.Object))
	return object
}
