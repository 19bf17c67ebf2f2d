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
	"fmt"
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
	framework.AlsoRemote(t)
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
	t.Run("Topping/v1alpha1", func(t *testing.T) {
		testTypedClient(t, client.RestaurantV1alpha1().Toppings(), &restaurantv1alpha1.Topping{
			ObjectMeta: metadata, Spec: restaurantv1alpha1.ToppingSpec{Cost: resource.NewQuantity(3, resource.DecimalSI)},
		}, func(topping *restaurantv1alpha1.Topping) any { return topping.Spec.Cost.String() })
	})
	t.Run("Topping/v1beta1", func(t *testing.T) {
		testTypedClient(t, client.RestaurantV1beta1().Toppings(), &restaurantv1beta1.Topping{
			ObjectMeta: metadata, Spec: restaurantv1beta1.ToppingSpec{Cost: resource.NewQuantity(3, resource.DecimalSI)},
		}, func(topping *restaurantv1beta1.Topping) any { return topping.Spec.Cost.String() })
	})
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

func TestVersionsOfOneObject(t *testing.T) {
	t.Parallel()
	alpha := func(names ...any) []any { return names }
	topping := func(name string, quantity int64) any { return map[string]any{"name": name, "quantity": quantity} }
	for name, test := range map[string]struct {
		created map[string][]any // By version; all mean the same pizza.
		want    map[string][]any
	}{
		"one portion each": {
			created: map[string][]any{
				"v1alpha1": alpha("tomato", "mozzarella"),
				"v1":       {topping("tomato", 1), topping("mozzarella", 1)},
			},
			want: map[string][]any{
				"v1alpha1": alpha("tomato", "mozzarella"),
				"v1":       {topping("tomato", 1), topping("mozzarella", 1)},
			},
		},
		"quantities": {
			created: map[string][]any{
				"v1alpha1": alpha("mozzarella", "mozzarella", "tomato", "basil", "basil", "basil"),
				"v1":       {topping("mozzarella", 2), topping("tomato", 1), topping("basil", 3)},
			},
			want: map[string][]any{
				"v1alpha1": alpha("mozzarella", "mozzarella", "tomato", "basil", "basil", "basil"),
				"v1":       {topping("mozzarella", 2), topping("tomato", 1), topping("basil", 3)},
			},
		},
		"equal names apart": {
			created: map[string][]any{
				"v1alpha1": alpha("mozzarella", "tomato", "mozzarella"),
			},
			want: map[string][]any{
				"v1alpha1": alpha("mozzarella", "mozzarella", "tomato"),
				"v1":       {topping("mozzarella", 2), topping("tomato", 1)},
			},
		},
		"the highest quantity": {
			created: map[string][]any{
				"v1alpha1": alpha("basil", "basil", "basil", "basil", "basil", "basil", "basil", "basil", "basil", "basil"),
				"v1":       {topping("basil", 10)},
			},
			want: map[string][]any{
				"v1alpha1": alpha("basil", "basil", "basil", "basil", "basil", "basil", "basil", "basil", "basil", "basil"),
				"v1":       {topping("basil", 10)},
			},
		},
	} {
		// The list is spelled the same in both.
		if toppings, ok := test.created["v1"]; ok {
			test.created["v1beta1"] = toppings
		}
		test.want["v1beta1"] = test.want["v1"]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pizza := newSubject(t, "Pizza", "v1")
			for version, toppings := range test.created {
				written := pizza.in(version)
				object := written.New(version)
				object.Object["spec"] = map[string]any{"toppings": toppings, "replicas": int64(7)}
				_, err := written.Client().Create(t.Context(), object, metav1.CreateOptions{})
				require.NoError(t, err)
				for read, want := range test.want {
					got, err := pizza.in(read).Client().Get(t.Context(), object.GetName(), metav1.GetOptions{})
					require.NoError(t, err)
					require.Equal(t, map[string]any{"toppings": want, "replicas": int64(7)}, got.Object["spec"], "Written in %s, read in %s.", version, read)

					// Writing back what was read changes nothing.
					again, err := pizza.in(read).Client().Update(t.Context(), got, metav1.UpdateOptions{})
					require.NoError(t, err)
					require.Equal(t, got.GetResourceVersion(), again.GetResourceVersion(), "Written in %s, updated in %s.", version, read)
				}
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pizza := newSubject(t, "Pizza", version)
			for name, spec := range map[string]map[string]any{
				"missing": {"toppings": []any{map[string]any{"name": "tomato"}}},
				"null":    {"toppings": []any{map[string]any{"name": "tomato", "quantity": nil}}, "replicas": nil},
			} {
				if version == "v1alpha1" {
					spec["toppings"] = []any{"tomato"}
				}
				object := pizza.New(name)
				object.Object["spec"] = spec
				created, err := pizza.Client().Create(t.Context(), object, metav1.CreateOptions{})
				require.NoError(t, err)
				want := map[string]any{"toppings": framework.Toppings(version, "tomato"), "replicas": int64(1)}
				require.Equal(t, want, created.Object["spec"], name)
				read, err := pizza.Client().Get(t.Context(), object.GetName(), metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, created, read)
			}

			// Zero is a number like others.
			object := pizza.New("zero")
			object.Object["spec"] = map[string]any{"toppings": framework.Toppings(version, "tomato"), "replicas": int64(0)}
			created, err := pizza.Client().Create(t.Context(), object, metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, object.Object["spec"], created.Object["spec"])

			// No pizza is without toppings.
			for name, spec := range map[string]map[string]any{"no-spec": nil, "no-toppings": {"toppings": nil}, "empty-toppings": {"toppings": []any{}}} {
				object := pizza.New(name)
				object.Object["spec"] = spec
				created, err := pizza.Client().Create(t.Context(), object, metav1.CreateOptions{})
				require.NoError(t, err)
				require.Equal(t, map[string]any{"toppings": framework.Toppings(version, "mozzarella", "tomato", "salami"), "replicas": int64(1)}, created.Object["spec"], name)
			}
		})
	}
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

func TestStatusAndSpecApart(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pizza := newSubject(t, "Pizza", version)
			client := pizza.Client()
			unset := map[string]any{"replicas": int64(0)}

			object := pizza.New("a")
			object.Object["status"] = newStatus(1)
			created, err := client.Create(t.Context(), object, metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, unset, created.Object["status"], "A status was taken from a create.")

			withStatus := created.DeepCopy()
			withStatus.Object["status"] = newStatus(1)
			updated, err := client.Update(t.Context(), withStatus, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Equal(t, created, updated, "A status was taken from an update.")

			// A status update that changes everything changes the status only.
			everything := withStatus.DeepCopy()
			pizza.change(t, everything)
			everything.SetLabels(map[string]string{"changed": "true"})
			everything.SetAnnotations(map[string]string{"changed": "true"})
			everything.SetFinalizers([]string{"example.com/changed"})
			everything.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "changed", UID: "changed"}})
			got, err := client.UpdateStatus(t.Context(), everything, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Equal(t, newStatus(1), got.Object["status"])
			require.NotEqual(t, created.GetResourceVersion(), got.GetResourceVersion())
			want := created.DeepCopy()
			want.Object["status"] = got.Object["status"]
			want.SetResourceVersion(got.GetResourceVersion())
			want.SetManagedFields(got.GetManagedFields())
			require.Equal(t, want, got, "More than the status was taken from an update of the status.")

			// And the reverse: an update of the rest keeps the status.
			pizza.change(t, got)
			got.Object["status"] = unset
			kept, err := client.Update(t.Context(), got, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Equal(t, newStatus(1), kept.Object["status"])
			read, err := client.Get(t.Context(), got.GetName(), metav1.GetOptions{}, "status")
			require.NoError(t, err)
			require.Equal(t, kept, read)

			// The status is the same one in all versions.
			for _, other := range framework.Versions() {
				read, err := pizza.in(other).Client().Get(t.Context(), got.GetName(), metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, newStatus(1), read.Object["status"], other)
			}
		})
	}
}

func TestToppingHasNoStatus(t *testing.T) {
	t.Parallel()
	topping := newSubject(t, "Topping", "v1")
	created := topping.Create(t, "a")
	_, err := topping.Client().UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
}

func TestDeprecationWarnings(t *testing.T) {
	forEachSubject(t, func(t *testing.T, s subject) {
		var warning []string
		if s.Version == "v1alpha1" {
			warning = []string{fmt.Sprintf("%s %s is deprecated in v0.37+; use %s %s", s.GroupVersion(), s.Kind, s.in("v1").GroupVersion(), s.Kind)}
		}
		config, recorder := cp.RESTConfig(), &warnings{}
		config.WarningHandler = recorder
		client := s.ClientFor(config)
		created, err := client.Create(t.Context(), s.New("a"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, warning, recorder.take(), "create")
		_, err = client.Get(t.Context(), created.GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, warning, recorder.take(), "get")
		_, err = client.List(t.Context(), s.All())
		require.NoError(t, err)
		require.Equal(t, warning, recorder.take(), "list")
		s.change(t, created)
		_, err = client.Update(t.Context(), created, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, warning, recorder.take(), "update")
		_, err = client.Patch(t.Context(), created.GetName(), types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		require.NoError(t, err)
		require.Equal(t, warning, recorder.take(), "patch")
		watcher, err := client.Watch(t.Context(), s.All())
		require.NoError(t, err)
		watcher.Stop()
		require.Equal(t, warning, recorder.take(), "watch")
		require.NoError(t, client.Delete(t.Context(), created.GetName(), metav1.DeleteOptions{}))
		require.Equal(t, warning, recorder.take(), "delete")
		require.NoError(t, client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, s.All()))
		require.Equal(t, warning, recorder.take(), "deletecollection")
	})
}

// warnings is a rest.WarningHandler.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	texts := w.texts
	w.texts = nil
	return texts
}
