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

package migration

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A value that a type in Go writes in another way belongs to its manager as before, which can apply it again. Several
// managers have to write it as it is stored, as with quantities of Kubernetes' own kinds.
func TestManagersOfRewrittenValues(t *testing.T) {
	framework.Long(t, "objects move there and back")
	t.Parallel()
	c := newCluster(t)
	toppings := dynamic.NewForConfigOrDie(c.config()).Resource(gvr("toppings"))
	forced := true
	apply := func(manager, cost string) (*unstructured.Unstructured, error) {
		return toppings.Apply(t.Context(), "tomato", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr("toppings").GroupVersion().String(), "kind": "Topping", "metadata": map[string]any{"name": "tomato"}, "spec": map[string]any{"cost": cost},
		}}, metav1.ApplyOptions{FieldManager: manager, Force: forced})
	}
	requireCost := func(want string, topping *unstructured.Unstructured, err error) {
		t.Helper()
		require.NoError(t, err)
		cost, _, err := unstructured.NestedString(topping.Object, "spec", "cost")
		require.NoError(t, err)
		require.Equal(t, want, cost)
	}
	applied, err := apply("owner", "1.50")
	requireCost("1.50", applied, err)
	forced = false
	_, err = apply("another", "1500m")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)

	code, _, stderr := c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	moved, err := toppings.Get(t.Context(), "tomato", metav1.GetOptions{})
	requireCost("1500m", moved, err)
	applied, err = apply("owner", "1.50")
	requireCost("1500m", applied, err)
	require.Equal(t, moved.GetResourceVersion(), applied.GetResourceVersion())
	applied, err = apply("another", "1500m")
	requireCost("1500m", applied, err)
	_, err = apply("another", "2")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
	require.ErrorContains(t, err, `conflict with "owner"`)
	_, err = apply("owner", "1.50")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)

	code, _, stderr = c.migrate(t, "back")
	require.Equal(t, 0, code, stderr)
	applied, err = apply("another", "1500m")
	requireCost("1500m", applied, err)
	_, err = apply("owner", "1.50")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
}
