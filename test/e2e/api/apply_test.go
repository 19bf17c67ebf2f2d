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
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// by are the options of a manager's apply.
func by(manager string) metav1.ApplyOptions { return metav1.ApplyOptions{FieldManager: manager} }

// apply applies as little as the top-level field given here.
func (s subject) apply(t *testing.T, options metav1.ApplyOptions, field string, value map[string]any) (*unstructured.Unstructured, error) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{field: value}}
	object.SetGroupVersionKind(s.GroupVersionKind)
	object.SetName(s.Name("a"))
	return s.Client().Apply(t.Context(), s.Name("a"), object, options)
}

func (s subject) mustApply(t *testing.T, manager string, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	applied, err := s.apply(t, by(manager), "spec", spec)
	require.NoError(t, err)
	return applied
}

// requireFieldConflict requires an error to say that a field has another owner.
func requireFieldConflict(t *testing.T, err error, field, owner string) {
	t.Helper()
	status := framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
	require.Equal(t, []metav1.StatusCause{{
		Type: metav1.CauseTypeFieldManagerConflict, Field: field, Message: "conflict with " + owner,
	}}, status.Details.Causes)
}

// owners returns, for each manager, operation, version and subresource, the fields
// it owns.
func owners(t *testing.T, object metav1.Object) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, entry := range object.GetManagedFields() {
		var set fieldpath.Set
		require.NoError(t, set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())))
		var fields []string
		for path := range set.All() {
			fields = append(fields, path.String())
		}
		slices.Sort(fields)
		_, version, _ := strings.Cut(entry.APIVersion, "/")
		who := strings.TrimRight(strings.Join([]string{entry.Manager, string(entry.Operation), version, entry.Subresource}, " "), " ")
		require.NotContains(t, all, who)
		all[who] = fields
	}
	return all
}

// portion is a topping of a pizza in v1beta1 and v1.
func portion(name string, quantity int64) any {
	return map[string]any{"name": name, "quantity": quantity}
}

// Two managers that apply different toppings each keep their own.
func TestApplyMergesToppings(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1beta1", "v1"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, "Pizza", version)
			s.mustApply(t, "alice", map[string]any{"toppings": []any{portion("mozzarella", 2)}})
			merged := s.mustApply(t, "bob", map[string]any{"toppings": []any{portion("tomato", 1), map[string]any{"name": "basil"}}})
			require.Equal(t, []any{portion("mozzarella", 2), portion("tomato", 1), portion("basil", 1)},
				merged.Object["spec"].(map[string]any)["toppings"])
			require.Equal(t, map[string][]string{
				"alice Apply " + version: {`.spec.toppings[name="mozzarella"]`, `.spec.toppings[name="mozzarella"].name`, `.spec.toppings[name="mozzarella"].quantity`},
				"bob Apply " + version: {
					`.spec.toppings[name="basil"]`, `.spec.toppings[name="basil"].name`,
					`.spec.toppings[name="tomato"]`, `.spec.toppings[name="tomato"].name`, `.spec.toppings[name="tomato"].quantity`,
				},
			}, owners(t, merged))

			// Nobody has an opinion about how much basil, so anybody may.
			more := s.mustApply(t, "carol", map[string]any{"toppings": []any{portion("basil", 3)}})
			require.Contains(t, more.Object["spec"].(map[string]any)["toppings"], portion("basil", 3))
			_, err := s.apply(t, by("carol"), "spec", map[string]any{"toppings": []any{portion("mozzarella", 3)}})
			requireFieldConflict(t, err, `.spec.toppings[name="mozzarella"].quantity`, `"alice"`)

			less := s.mustApply(t, "bob", map[string]any{"toppings": []any{portion("tomato", 1)}})
			require.Equal(t, []any{portion("mozzarella", 2), portion("tomato", 1), portion("basil", 3)},
				less.Object["spec"].(map[string]any)["toppings"], "Carol still wants basil.")
			less = s.mustApply(t, "bob", map[string]any{})
			require.Equal(t, []any{portion("mozzarella", 2), portion("basil", 3)}, less.Object["spec"].(map[string]any)["toppings"])
		})
	}
}

// A manifest that moves to another version and has less by then loses nothing, as documented, until the object is
// replaced. Its conversion gives fields another shape, so that the owner of the old ones is nobody in the new version.
func TestApplyOfAnotherVersion(t *testing.T) {
	t.Parallel()
	v1 := newSubject(t, "Pizza", "v1")
	v1.in("v1alpha1").mustApply(t, "alice", map[string]any{"toppings": []any{"mozzarella", "tomato"}, "replicas": int64(3)})
	less := []any{portion("mozzarella", 1)}

	kept := v1.mustApply(t, "alice", map[string]any{"toppings": less})
	require.Equal(t, map[string]any{"toppings": append(less, portion("tomato", 1)), "replicas": int64(3)}, kept.Object["spec"])

	kept.Object["spec"] = map[string]any{"toppings": less}
	replaced, err := v1.Client().Update(t.Context(), kept, metav1.UpdateOptions{FieldManager: "alice"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"toppings": less, "replicas": int64(1)}, replaced.Object["spec"])
}
