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
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	restaurantv1alpha1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1alpha1"
	restaurantv1beta1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1beta1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// The typed clients speak protobuf.
func TestTypedClients(t *testing.T) {
	t.Parallel()
	ns, client := framework.Namespace(t, cp), framework.Restaurant(cp)
	metadata := metav1.ObjectMeta{Name: "a"}
	t.Run("Pizza/v1alpha1", func(t *testing.T) {
		testTypedClient(t, client.RestaurantV1alpha1().Pizzas(ns), &restaurantv1alpha1.Pizza{
			ObjectMeta: metadata,
			Spec:       restaurantv1alpha1.PizzaSpec{Toppings: []string{"mozzarella", "mozzarella", "tomato"}, Replicas: new(int32(3))},
		}, func(p *restaurantv1alpha1.Pizza) any { return p.Spec })
	})
	t.Run("Pizza/v1beta1", func(t *testing.T) {
		testTypedClient(t, client.RestaurantV1beta1().Pizzas(ns), &restaurantv1beta1.Pizza{
			ObjectMeta: metadata,
			Spec: restaurantv1beta1.PizzaSpec{
				Toppings: []restaurantv1beta1.PizzaTopping{{Name: "mozzarella", Quantity: new(int32(2))}},
				Replicas: new(int32(3)),
			},
		}, func(p *restaurantv1beta1.Pizza) any { return p.Spec })
	})
	t.Run("Pizza/v1", func(t *testing.T) {
		testTypedClient(t, client.RestaurantV1().Pizzas(ns), &restaurantv1.Pizza{
			ObjectMeta: metadata,
			Spec: restaurantv1.PizzaSpec{
				Toppings: []restaurantv1.PizzaTopping{{Name: "mozzarella", Quantity: new(int32(2))}},
				Replicas: new(int32(3)),
			},
		}, func(p *restaurantv1.Pizza) any { return p.Spec })
	})
	// Toppings belong to the whole cluster, and their names must be this test's.
	metadata.Name = ns
	t.Run("Topping/v1", func(t *testing.T) {
		testTypedClient(t, client.RestaurantV1().Toppings(), &restaurantv1.Topping{
			ObjectMeta: metadata, Spec: restaurantv1.ToppingSpec{Cost: resource.NewQuantity(3, resource.DecimalSI)},
		}, func(topping *restaurantv1.Topping) any { return topping.Spec.Cost.String() })
	})
}

// typedClient is what the generated clients of all kinds have.
type typedClient[O, L any] interface {
	Create(context.Context, O, metav1.CreateOptions) (O, error)
	Get(context.Context, string, metav1.GetOptions) (O, error)
	Update(context.Context, O, metav1.UpdateOptions) (O, error)
	List(context.Context, metav1.ListOptions) (L, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
	DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error
}

func testTypedClient[O interface {
	metav1.Object
	runtime.Object
	DeepCopy() O
}, L metav1.ListInterface](t *testing.T, client typedClient[O, L], object O, spec func(O) any) {
	name := object.GetName()
	created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, spec(object), spec(created))

	created.SetLabels(map[string]string{framework.Label: name})
	updated, err := client.Update(t.Context(), created.DeepCopy(), metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, created.GetLabels(), updated.GetLabels())

	patched, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"patched":"true"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"patched": "true"}, patched.GetAnnotations())

	read, err := client.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, patched, read)
	list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: framework.Label + "=" + name})
	require.NoError(t, err)
	require.NotEmpty(t, list.GetResourceVersion())

	require.NoError(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
	requireGone(t, client, name)
	_, err = client.Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name}))
	requireGone(t, client, name)
}

func requireGone[O, L any](t *testing.T, client typedClient[O, L], name string) {
	t.Helper()
	_, err := client.Get(t.Context(), name, metav1.GetOptions{})
	framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
}

// newStatus is a valid status with all fields.
func newStatus(observedGeneration int64) map[string]any {
	return map[string]any{
		"replicas":           int64(1),
		"cost":               "2300m",
		"selector":           "pizza=margherita",
		"observedGeneration": observedGeneration,
		"conditions": []any{map[string]any{
			"type": "Priced", "status": "True", "reason": "ToppingsFound", "message": "",
			"lastTransitionTime": "2026-11-20T12:00:00Z", "observedGeneration": observedGeneration,
		}},
	}
}
