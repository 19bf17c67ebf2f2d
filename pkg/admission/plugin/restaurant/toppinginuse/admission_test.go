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

package toppinginuse

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	clienttesting "k8s.io/client-go/testing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/initializer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/fake"
)

// pizza returns a pizza with some toppings.
func pizza(namespace, name string, toppings ...string) restaurantv1.Pizza {
	pizza := restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, topping := range toppings {
		pizza.Spec.Toppings = append(pizza.Spec.Toppings, restaurantv1.PizzaTopping{Name: topping})
	}
	return pizza
}

func requireError(t *testing.T, err error, want string, reason metav1.StatusReason) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatalf("got %v, want no error", err)
		}
		return
	}
	if err == nil || err.Error() != want || apierrors.ReasonForError(err) != reason {
		t.Fatalf("got %v (%s), want %s (%s)", err, apierrors.ReasonForError(err), want, reason)
	}
}

const forbidden = `toppings.restaurant.programming-kubernetes.info "basil" is forbidden: `

func TestCheck(t *testing.T) {
	a, b, c, d, e := pizza("default", "a", "basil"), pizza("kitchen", "b", "tomato", "basil"), pizza("default", "c", "basil"), pizza("cellar", "d", "basil"), pizza("default", "e", "basil")
	other, similar, none := pizza("default", "other", "tomato"), pizza("default", "similar", "basil-2", "bas"), pizza("default", "none")
	for name, test := range map[string]struct {
		pizzas     []restaurantv1.Pizza
		err        error
		want       string
		wantReason metav1.StatusReason
	}{
		"no pizzas":         {nil, nil, "", ""},
		"on others only":    {[]restaurantv1.Pizza{other, similar, none}, nil, "", ""},
		"one":               {[]restaurantv1.Pizza{other, a}, nil, forbidden + "it is on the pizza default/a", metav1.StatusReasonForbidden},
		"three":             {[]restaurantv1.Pizza{c, b, other, a}, nil, forbidden + "it is on 3 pizzas: default/a, default/c, kitchen/b", metav1.StatusReasonForbidden},
		"four":              {[]restaurantv1.Pizza{c, b, d, a}, nil, forbidden + "it is on 4 pizzas: cellar/d, default/a, default/c and 1 more", metav1.StatusReasonForbidden},
		"five":              {[]restaurantv1.Pizza{a, b, c, d, e}, nil, forbidden + "it is on 5 pizzas: cellar/d, default/a, default/c and 2 more", metav1.StatusReasonForbidden},
		"they can't be had": {nil, apierrors.NewTimeoutError("etcd has not answered in time", 2), "Timeout: etcd has not answered in time", metav1.StatusReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check("basil", func() (*restaurantv1.PizzaList, error) {
				return &restaurantv1.PizzaList{Items: test.pizzas}, test.err
			})
			requireError(t, err, test.want, test.wantReason)
		})
	}
}

func attributes(name string, old runtime.Object, resource, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(nil, old, restaurant.Kind("Topping").WithVersion("v1"), "", name,
		restaurant.Resource(resource).WithVersion("v1"), subresource, admission.Delete, nil, false, nil)
}

func TestPlugin(t *testing.T) {
	basil := &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: "basil"}}
	tomato := &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: "tomato"}}
	for name, test := range map[string]struct {
		attributes admission.Attributes
		want       string
		wantReason metav1.StatusReason
	}{
		"in use":                      {attributes("basil", basil, "toppings", ""), forbidden + "it is on the pizza default/margherita", metav1.StatusReasonForbidden},
		"in use, of a collection":     {attributes("", basil, "toppings", ""), forbidden + "it is on the pizza default/margherita", metav1.StatusReasonForbidden},
		"not in use":                  {attributes("tomato", tomato, "toppings", ""), "", ""},
		"a subresource":               {attributes("basil", basil, "toppings", "status"), "", ""},
		"a pizza of a topping's name": {attributes("basil", &restaurant.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "basil"}}, "pizzas", ""), "", ""},
		"no topping":                  {attributes("basil", nil, "toppings", ""), "Internal error occurred: ToppingInUse was given no topping: object does not implement the Object interfaces", metav1.StatusReasonInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			margherita := pizza("default", "margherita", "basil")
			client := fake.NewClientset(&margherita)
			p := newPlugin()
			p.SetRestaurant(nil, client.RestaurantV1())
			requireError(t, p.Validate(t.Context(), test.attributes, nil), test.want, test.wantReason)
			for _, action := range client.Actions() {
				if version := action.(clienttesting.ListActionImpl).ListOptions.ResourceVersion; version != "" {
					t.Errorf("it asks for pizzas that are as old as %s", version)
				}
			}
		})
	}

	t.Run("pizzas that can't be listed", func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("list", "pizzas", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		p := newPlugin()
		p.SetRestaurant(nil, client.RestaurantV1())
		requireError(t, p.Validate(t.Context(), attributes("basil", basil, "toppings", ""), nil), "connection refused", metav1.StatusReasonUnknown)
	})
}

func TestInitialization(t *testing.T) {
	plugins := admission.NewPlugins()
	Plugin().Register(plugins)
	if _, err := plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{}); err == nil || err.Error() != `failed to initialize admission plugin "ToppingInUse": ToppingInUse has no access to pizzas` {
		t.Errorf("got %v for a plugin that was given nothing", err)
	}
	client := fake.NewClientset()
	initialized, err := plugins.InitPlugin(PluginName, nil, initializer.New(nil, client.RestaurantV1()))
	if err != nil {
		t.Fatal(err)
	}
	for operation, want := range map[admission.Operation]bool{admission.Create: false, admission.Update: false, admission.Delete: true, admission.Connect: false} {
		if got := initialized.Handles(operation); got != want {
			t.Errorf("got Handles(%s) %v, want %v", operation, got, want)
		}
	}
}
