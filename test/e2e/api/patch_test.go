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

package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// portion is a topping of a pizza in v1beta1 and v1.
func portion(name string, quantity int64) any {
	return map[string]any{"name": name, "quantity": quantity}
}

// The pizza that is patched has one portion each of mozzarella and tomato, and
// one replica.
func TestPatch(t *testing.T) {
	framework.AlsoRemote(t)
	alpha, others := []string{"v1alpha1"}, []string{"v1beta1", "v1"}
	for name, test := range map[string]struct {
		versions []string
		as       types.PatchType
		patch    string
		toppings []any
		replicas int64
	}{
		"JSON patch": {
			others, types.JSONPatchType,
			`[{"op":"test","path":"/spec/toppings/1/name","value":"tomato"},
			  {"op":"replace","path":"/spec/toppings/1/quantity","value":3},
			  {"op":"add","path":"/spec/toppings/-","value":{"name":"basil"}},
			  {"op":"remove","path":"/spec/toppings/0"},
			  {"op":"replace","path":"/spec/replicas","value":5}]`,
			[]any{portion("tomato", 3), portion("basil", 1)}, 5,
		},
		"JSON patch of names": {
			alpha, types.JSONPatchType,
			`[{"op":"add","path":"/spec/toppings/-","value":"mozzarella"},{"op":"remove","path":"/spec/replicas"}]`,
			[]any{"mozzarella", "mozzarella", "tomato"}, 1,
		},
		"merge patch, lists as a whole": {
			others, types.MergePatchType,
			`{"spec":{"toppings":[{"name":"basil","quantity":2}],"replicas":5}}`,
			[]any{portion("basil", 2)}, 5,
		},
		"merge patch, null is the default": {
			framework.Versions(), types.MergePatchType, `{"spec":{"replicas":null}}`, nil, 1,
		},
		"merge patch of names": {
			alpha, types.MergePatchType, `{"spec":{"toppings":["basil","tomato","basil"]}}`,
			[]any{"basil", "basil", "tomato"}, 1,
		},
		"strategic merge patch, toppings by name": {
			others, types.StrategicMergePatchType,
			`{"spec":{"toppings":[{"name":"tomato","quantity":4},{"name":"basil"}]}}`,
			[]any{portion("mozzarella", 1), portion("tomato", 4), portion("basil", 1)}, 1,
		},
		"strategic merge patch, one topping less": {
			others, types.StrategicMergePatchType,
			`{"spec":{"toppings":[{"name":"tomato","$patch":"delete"}]}}`,
			[]any{portion("mozzarella", 1)}, 1,
		},
		"strategic merge patch, other toppings": {
			others, types.StrategicMergePatchType,
			`{"spec":{"toppings":[{"$patch":"replace"},{"name":"basil"}]}}`,
			[]any{portion("basil", 1)}, 1,
		},
		"strategic merge patch, in this order": {
			others, types.StrategicMergePatchType,
			`{"spec":{"$setElementOrder/toppings":[{"name":"tomato"},{"name":"basil"},{"name":"mozzarella"}],"toppings":[{"name":"basil"}]}}`,
			[]any{portion("tomato", 1), portion("basil", 1), portion("mozzarella", 1)}, 1,
		},
		"strategic merge patch of names, as a whole": {
			alpha, types.StrategicMergePatchType, `{"spec":{"toppings":["basil"]}}`, []any{"basil"}, 1,
		},
		"apply": {
			others, types.ApplyPatchType,
			"{apiVersion: GROUPVERSION, kind: Pizza, spec: {replicas: 1, toppings: [{name: basil, quantity: 2}]}}",
			[]any{portion("mozzarella", 1), portion("tomato", 1), portion("basil", 2)}, 1,
		},
		"nothing": {
			framework.Versions(), types.MergePatchType, "{}", nil, 1,
		},
	} {
		for _, version := range test.versions {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				s := newSubject(t, "Pizza", version)
				created := s.Create(t, "a")
				want := map[string]any{"toppings": test.toppings, "replicas": test.replicas}
				if test.toppings == nil {
					want["toppings"] = framework.Toppings(version, "mozzarella", "tomato")
				}
				got, err := s.patch(t, "a", test.as, test.patch)
				require.NoError(t, err)
				require.Equal(t, want, got.Object["spec"])

				stored, err := s.Client().Get(t.Context(), created.GetName(), metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, got, stored)
				again, err := s.patch(t, "a", types.MergePatchType, `{"spec":{}}`)
				require.NoError(t, err)
				require.Equal(t, got, again, "A patch that changes nothing has changed something.")
			})
		}
	}
}

// patch patches an object of the test. In an apply patch GROUPVERSION stands for
// the apiVersion.
func (s subject) patch(t *testing.T, suffix string, as types.PatchType, patch string, subresources ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	options := metav1.PatchOptions{}
	if as == types.ApplyPatchType {
		patch = strings.ReplaceAll(patch, "GROUPVERSION", s.GroupVersion().String())
		options.FieldManager = "e2e"
	}
	return s.Client().Patch(t.Context(), s.Name(suffix), as, []byte(patch), options, subresources...)
}

// Each patch would change the spec and the labels, too.
func TestPatchStatus(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		s := newSubject(t, "Pizza", version)
		created := s.Create(t, "a")
		for as, patch := range map[types.PatchType]string{
			types.JSONPatchType: `[{"op":"replace","path":"/status/replicas","value":2},{"op":"add","path":"/status/cost","value":"7"},
				{"op":"replace","path":"/spec/replicas","value":9},{"op":"add","path":"/metadata/labels/a","value":"b"}]`,
			types.MergePatchType:          `{"status":{"replicas":2,"cost":"7"},"spec":{"replicas":9},"metadata":{"labels":{"a":"b"}}}`,
			types.StrategicMergePatchType: `{"status":{"replicas":2,"cost":"7"},"spec":{"replicas":9},"metadata":{"labels":{"a":"b"}}}`,
			types.ApplyPatchType:          `{apiVersion: GROUPVERSION, kind: Pizza, status: {replicas: 2, cost: "7"}, spec: {replicas: 9}, metadata: {labels: {a: b}}}`,
		} {
			got, err := s.patch(t, "a", as, patch, "status")
			require.NoError(t, err)
			require.Equal(t, map[string]any{"replicas": int64(2), "cost": "7"}, got.Object["status"])
			require.Equal(t, created.Object["spec"], got.Object["spec"])
			require.Equal(t, created.GetLabels(), got.GetLabels())
			require.EqualValues(t, 1, got.GetGeneration())
		}
	}
}

// Conditions are merged by type.
func TestPatchConditions(t *testing.T) {
	t.Parallel()
	condition := func(kind, status string) any {
		return map[string]any{
			"type": kind, "status": status, "reason": "Tested", "message": "", "lastTransitionTime": "2026-11-20T12:00:00Z",
		}
	}
	for _, version := range framework.Versions() {
		s := newSubject(t, "Pizza", version)
		object := s.Create(t, "a")
		require.NoError(t, unstructured.SetNestedSlice(object.Object, []any{condition("Priced", "True"), condition("Ready", "False")}, "status", "conditions"))
		_, err := s.Client().UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
		require.NoError(t, err)

		got, err := s.patch(t, "a", types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status")
		require.NoError(t, err)
		conditions, _, err := unstructured.NestedSlice(got.Object, "status", "conditions")
		require.NoError(t, err)
		require.ElementsMatch(t, []any{condition("Priced", "True"), condition("Ready", "True")}, conditions)
	}
}
