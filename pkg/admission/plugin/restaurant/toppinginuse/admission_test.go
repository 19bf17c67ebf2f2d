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
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
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
	a, b, c, d := pizza("default", "a", "basil"), pizza("kitchen", "b", "tomato", "basil"), pizza("default", "c", "basil"), pizza("cellar", "d", "basil")
	attic, barn := pizza("attic", "f", "basil"), pizza("barn", "g", "basil")
	other, similar, none := pizza("default", "other", "tomato"), pizza("default", "similar", "basil-2", "bas"), pizza("default", "none")
	everywhere := []string{"attic", "barn", "cellar", "default", "kitchen"}
	for name, test := range map[string]struct {
		pizzas []restaurantv1.Pizza
		// more pizzas are not in the list.
		more bool
		// mayName are the namespaces whose pizzas an error may name.
		mayName   []string
		want      string
		wantAsked int
	}{
		"on others only":              {pizzas: []restaurantv1.Pizza{other, similar, none}, mayName: everywhere},
		"one":                         {pizzas: []restaurantv1.Pizza{other, a}, mayName: everywhere, want: "it is on the pizza default/a", wantAsked: 1},
		"one, secret":                 {pizzas: []restaurantv1.Pizza{other, a}, mayName: []string{"kitchen"}, want: "it is on a pizza", wantAsked: 1},
		"three":                       {pizzas: []restaurantv1.Pizza{c, b, other, a}, mayName: everywhere, want: "it is on 3 pizzas: default/a, default/c, kitchen/b", wantAsked: 2},
		"three, one secret":           {pizzas: []restaurantv1.Pizza{c, b, other, a}, mayName: []string{"default"}, want: "it is on 3 pizzas: default/a, default/c and 1 more", wantAsked: 2},
		"four":                        {pizzas: []restaurantv1.Pizza{c, b, d, a}, mayName: everywhere, want: "it is on 4 pizzas: cellar/d, default/a, default/c and 1 more", wantAsked: 3},
		"four, the first secret":      {pizzas: []restaurantv1.Pizza{c, b, d, a}, mayName: []string{"kitchen", "default"}, want: "it is on 4 pizzas: default/a, default/c, kitchen/b and 1 more", wantAsked: 3},
		"in more namespaces than ask": {pizzas: []restaurantv1.Pizza{attic, barn, d, a}, mayName: []string{"default"}, want: "it is on 4 pizzas", wantAsked: 3},
		"more than can be counted":    {pizzas: []restaurantv1.Pizza{a, b}, more: true, mayName: []string{"kitchen"}, want: "it is on more than 2 pizzas: kitchen/b and others", wantAsked: 2},
	} {
		t.Run(name, func(t *testing.T) {
			pizzas := &restaurantv1.PizzaList{Items: test.pizzas}
			if test.more {
				pizzas.Continue = "next"
			}
			asked := 0
			err := Check("basil", pizzas, func(namespace string) bool {
				asked++
				return slices.Contains(test.mayName, namespace)
			})
			if test.want == "" {
				requireError(t, err, "", "")
			} else {
				requireError(t, err, forbidden+test.want, metav1.StatusReasonForbidden)
			}
			if asked != test.wantAsked {
				t.Errorf("asked about %d namespaces, want %d", asked, test.wantAsked)
			}
		})
	}
}

// finalized is a topping that is being deleted.
func finalized(name string, finalizers ...string) *restaurant.Topping {
	return &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers, DeletionTimestamp: &metav1.Time{}}}
}

func updated(old, object *restaurant.Topping) admission.Attributes {
	return admission.NewAttributesRecord(object, old, restaurant.Kind("Topping").WithVersion("v1"), "", object.Name,
		restaurant.Resource("toppings").WithVersion("v1"), "", admission.Update, nil, false, &user.DefaultInfo{Name: "editor"})
}

func attributes(name string, old runtime.Object, resource, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(nil, old, restaurant.Kind("Topping").WithVersion("v1"), "", name,
		restaurant.Resource(resource).WithVersion("v1"), subresource, admission.Delete, nil, false, &user.DefaultInfo{Name: "editor"})
}

// onlyEditors lets editors get pizzas, and is broken for everybody else.
var onlyEditors = authorizer.AuthorizerFunc(func(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	want := authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "editor"}, Verb: "get", Namespace: "default", APIGroup: restaurant.GroupName, APIVersion: "v1", Resource: "pizzas", ResourceRequest: true,
	}
	if cmp.Equal(authorizer.Attributes(want), asked) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionAllow, "", errors.New("unavailable")
})

func TestPlugin(t *testing.T) {
	basil := &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: "basil"}}
	tomato := &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: "tomato"}}
	stranger := admission.NewAttributesRecord(nil, basil, restaurant.Kind("Topping").WithVersion("v1"), "", "basil",
		restaurant.Resource("toppings").WithVersion("v1"), "", admission.Delete, nil, false, &user.DefaultInfo{Name: "stranger"})
	for name, test := range map[string]struct {
		attributes admission.Attributes
		want       string
		wantReason metav1.StatusReason
		// wantSelector selects the listed pizzas, if there is a list.
		wantSelector string
	}{
		"in use":                           {attributes("basil", basil, "toppings", ""), forbidden + "it is on the pizza default/margherita", metav1.StatusReasonForbidden, "spec.toppings=basil"},
		"in use, of a collection":          {attributes("", basil, "toppings", ""), forbidden + "it is on the pizza default/margherita", metav1.StatusReasonForbidden, "spec.toppings=basil"},
		"in use, without an authorizer":    {stranger, forbidden + "it is on a pizza", metav1.StatusReasonForbidden, "spec.toppings=basil"},
		"not in use":                       {attributes("tomato", tomato, "toppings", ""), "", "", "spec.toppings=tomato"},
		"the last finalizer is removed":    {updated(finalized("basil", "a"), finalized("basil")), forbidden + "it is on the pizza default/margherita", metav1.StatusReasonForbidden, "spec.toppings=basil"},
		"one of two finalizers is removed": {updated(finalized("basil", "a", "b"), finalized("basil", "a")), "", "", ""},
		"that is updated":                  {updated(basil, basil), "", "", ""},
		"a subresource":                    {attributes("basil", basil, "toppings", "status"), "", "", ""},
		"a pizza of a topping's name":      {attributes("basil", &restaurant.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "basil"}}, "pizzas", ""), "", "", ""},
		"no topping":                       {attributes("basil", nil, "toppings", ""), "Internal error occurred: ToppingInUse was given no topping: object does not implement the Object interfaces", metav1.StatusReasonInternalError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			margherita := pizza("default", "margherita", "basil")
			client := fake.NewClientset(&margherita)
			p := newPlugin()
			p.SetRestaurant(nil, client.RestaurantV1())
			p.SetAuthorizer(onlyEditors)
			requireError(t, p.Validate(t.Context(), test.attributes, nil), test.want, test.wantReason)
			want := []metav1.ListOptions{{FieldSelector: test.wantSelector, Limit: maxCount}} // of no version: as they are now
			if test.wantSelector == "" {
				want = nil
			}
			var got []metav1.ListOptions
			for _, action := range client.Actions() {
				got = append(got, action.(clienttesting.ListActionImpl).ListOptions)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unexpected lists (-want +got):\n%s", diff)
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
	pizzas := initializer.New(nil, client.RestaurantV1())
	if _, err := plugins.InitPlugin(PluginName, nil, pizzas); err == nil || err.Error() != `failed to initialize admission plugin "ToppingInUse": ToppingInUse has no authorizer` {
		t.Errorf("got %v for a plugin that was given no authorizer", err)
	}
	initialized, err := plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{pizzas, genericinitializer.New(nil, nil, nil, onlyEditors, nil, nil, nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	for operation, want := range map[admission.Operation]bool{admission.Create: false, admission.Update: true, admission.Delete: true, admission.Connect: false} {
		if got := initialized.Handles(operation); got != want {
			t.Errorf("got Handles(%s) %v, want %v", operation, got, want)
		}
	}
}
