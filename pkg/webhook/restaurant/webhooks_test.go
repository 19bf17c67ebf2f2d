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

package restaurant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/fake"
	listers "restaurant.programming-kubernetes.info/apiserver/pkg/generated/listers/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
	"restaurant.programming-kubernetes.info/apiserver/pkg/webhook"
)

func TestMutate(t *testing.T) {
	usual := []restaurant.PizzaTopping{{Name: "mozzarella", Quantity: 1}, {Name: "tomato", Quantity: 1}, {Name: "salami", Quantity: 1}}
	for name, test := range map[string]struct {
		toppings    []restaurant.PizzaTopping
		subresource string
		want        []restaurant.PizzaTopping
	}{
		"none":          {nil, "", usual},
		"an empty list": {[]restaurant.PizzaTopping{}, "", usual},
		"of the status": {nil, "status", nil},
	} {
		t.Run(name, func(t *testing.T) {
			pizza := &restaurant.Pizza{Spec: restaurant.PizzaSpec{Toppings: test.toppings}}
			request := &webhook.Request{AdmissionRequest: &admissionv1.AdmissionRequest{SubResource: test.subresource}, New: pizza}
			require.NoError(t, mutate(t.Context(), request))
			assert.Equal(t, test.want, pizza.Spec.Toppings)
		})
	}
	topping := &restaurant.Topping{}
	require.NoError(t, mutate(t.Context(), &webhook.Request{AdmissionRequest: &admissionv1.AdmissionRequest{}, New: topping}))
	require.Equal(t, &restaurant.Topping{}, topping)
}

func TestValidateObject(t *testing.T) {
	negative := resource.MustParse("-1")
	for name, test := range map[string]struct {
		object runtime.Object
		want   field.ErrorList
	}{
		"a pizza":   {&restaurant.Pizza{Status: restaurant.PizzaStatus{Cost: &negative}}, field.ErrorList{field.Invalid(field.NewPath("status", "cost"), "-1", "must be greater than or equal to 0")}},
		"a topping": {&restaurant.Topping{Spec: restaurant.ToppingSpec{Cost: &negative}}, field.ErrorList{field.Invalid(field.NewPath("spec", "cost"), "-1", "must be greater than or equal to 0")}},
		"other":     {&metav1.Status{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, validateObject(test.object))
		})
	}
}

// A pizza needs toppings that exist, and a topping on a pizza can't be deleted, whatever is in
// the webhook's cache.
func TestValidate(t *testing.T) {
	pizza := func(toppings ...string) *restaurant.Pizza {
		pizza := &restaurant.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		for _, topping := range toppings {
			pizza.Spec.Toppings = append(pizza.Spec.Toppings, restaurant.PizzaTopping{Name: topping, Quantity: 1})
		}
		return pizza
	}
	stored := &restaurantv1.Pizza{
		ObjectMeta: metav1.ObjectMeta{Namespace: "somewhere", Name: "secret"},
		Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: "cached"}}},
	}
	topping := func(name string) *restaurant.Topping {
		return &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for name, test := range map[string]struct {
		operation   admissionv1.Operation
		subresource string
		new, old    runtime.Object
		broken      string // The verb that the server fails at.
		want        string
	}{
		"known toppings":          {admissionv1.Create, "", pizza("cached", "live"), nil, "", ""},
		"an unknown topping":      {admissionv1.Create, "", pizza("cached", "unknown"), nil, "", `spec.toppings[unknown]: Not found: "unknown"`},
		"an unknown one is added": {admissionv1.Update, "", pizza("unknown"), pizza("cached"), "", `spec.toppings[unknown]: Not found: "unknown"`},
		"of the status":           {admissionv1.Update, "status", pizza("unknown"), pizza("cached"), "", ""},
		"the server fails":        {admissionv1.Create, "", pizza("live"), nil, "get", "broken"},
		"a topping on a pizza":    {admissionv1.Delete, "", nil, topping("cached"), "", "it is on a pizza"},
		"without a request":       {admissionv1.Delete, "", nil, topping("cached"), "*", "it is on a pizza"},
		"a topping on many":       {admissionv1.Delete, "", nil, topping("popular"), "*", "it is on more than 100 pizzas"},
		"a topping is updated":    {admissionv1.Update, "", topping("cached"), topping("cached"), "*", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: "live"}})
			if test.broken != "" {
				client.PrependReactor(test.broken, "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("broken") })
			}
			toppings := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			require.NoError(t, toppings.Add(&restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: "cached"}}))
			pizzas := cache.NewIndexer(cache.MetaNamespaceKeyFunc, toppingIndexers())
			for i := range 102 {
				popular := &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Namespace: "somewhere", Name: fmt.Sprint("secret-", i)}}
				popular.Spec.Toppings = []restaurantv1.PizzaTopping{{Name: "popular"}, {Name: "other"}}
				require.NoError(t, pizzas.Add(popular))
			}
			require.NoError(t, pizzas.Add(stored))
			rules := rules{lookup.NewToppings(listers.NewToppingLister(toppings), client.RestaurantV1()), pizzas}
			err := rules.validate(t.Context(), &webhook.Request{
				AdmissionRequest: &admissionv1.AdmissionRequest{Operation: test.operation, SubResource: test.subresource}, New: test.new, Old: test.old,
			})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "secret", "The user may not be allowed to know of it.")
		})
	}
}

// The informer that is read from is among those that are started.
func TestNew(t *testing.T) {
	hooks, err := New(&rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		require.True(t, hooks.Scheme.Recognizes(restaurant.Kind("Pizza").WithVersion(version)), version)
	}
	require.Equal(t, []string{"pizzas", "toppings"}, slices.Sorted(maps.Keys(hooks.Informers)))

	_, err = New(&rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/missing"}})
	require.Error(t, err)
}

// The cache of pizzas keeps the fields that the index needs, and knows pizzas that can't be
// decoded.
func TestOnlyToppings(t *testing.T) {
	pizza := func(spec any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "default", "name": "a", "resourceVersion": "1", "annotations": map[string]any{"a": "b"}},
			"spec":     spec, "status": map[string]any{"replicas": int64(2)},
		}}
	}
	gone := cache.DeletedFinalStateUnknown{Key: "default/a"}
	kept := func(toppings ...restaurantv1.PizzaTopping) *restaurantv1.Pizza {
		return &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: "1"}, Spec: restaurantv1.PizzaSpec{Toppings: toppings}}
	}
	for name, test := range map[string]struct{ obj, want any }{
		"toppings":             {pizza(map[string]any{"replicas": int64(1), "toppings": []any{map[string]any{"name": "basil", "quantity": int64(2)}}}), kept(restaurantv1.PizzaTopping{Name: "basil"})},
		"toppings of no names": {pizza(map[string]any{"toppings": []any{"basil"}}), kept(restaurantv1.PizzaTopping{})},
		"no list":              {pizza(map[string]any{"toppings": "basil"}), kept()},
		"no spec":              {pizza("basil"), kept()},
		"a deleted pizza":      {gone, gone},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := onlyToppings(test.obj)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}
