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
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/webhook"
)

func TestMutate(t *testing.T) {
	usual := []restaurant.PizzaTopping{{Name: "mozzarella", Quantity: 1}, {Name: "tomato", Quantity: 1}, {Name: "salami", Quantity: 1}}
	some := []restaurant.PizzaTopping{{Name: "pineapple", Quantity: 2}}
	for name, test := range map[string]struct {
		toppings    []restaurant.PizzaTopping
		subresource string
		want        []restaurant.PizzaTopping
	}{
		"none":            {nil, "", usual},
		"an empty list":   {[]restaurant.PizzaTopping{}, "", usual},
		"some":            {some, "", some},
		"of the status":   {nil, "status", nil},
		"not of the spec": {some, "status", some},
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

// The informer that is read from is among those that are started.
func TestNew(t *testing.T) {
	hooks, err := New(&rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		require.True(t, hooks.Scheme.Recognizes(restaurant.Kind("Pizza").WithVersion(version)), version)
	}
	require.Contains(t, hooks.Informers, "toppings")

	_, err = New(&rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "/missing"}})
	require.Error(t, err)
}
