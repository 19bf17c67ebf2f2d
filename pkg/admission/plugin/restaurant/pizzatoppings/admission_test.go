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

package pizzatoppings

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/initializer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/fake"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
)

// with returns a pizza with one portion each of some toppings.
func with(names ...string) *restaurant.Pizza {
	pizza := &restaurant.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "margherita"}}
	for _, name := range names {
		pizza.Spec.Toppings = append(pizza.Spec.Toppings, restaurant.PizzaTopping{Name: name, Quantity: 1})
	}
	return pizza
}

func TestCheck(t *testing.T) {
	notFound := apierrors.NewNotFound(restaurantv1.Resource("toppings"), "any")
	timeout := apierrors.NewTimeoutError("etcd has not answered in time", 2)
	now := metav1.Now()
	get := func(_ context.Context, name string) (*restaurantv1.Topping, error) {
		switch name {
		case "tomato", "basil":
			return &restaurantv1.Topping{}, nil
		case "old":
			return &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, nil
		case "slow":
			return nil, timeout
		case "odd":
			return nil, errors.New("the index is broken")
		default:
			return nil, notFound
		}
	}
	const invalid = `Pizza.restaurant.programming-kubernetes.info "margherita" is invalid: `
	for name, test := range map[string]struct {
		pizza, old *restaurant.Pizza
		want       string
		wantReason metav1.StatusReason
	}{
		"all exist":              {with("tomato", "basil"), nil, "", ""},
		"one does not":           {with("tomato", "tar"), nil, invalid + `spec.toppings[tar]: Not found: "tar"`, metav1.StatusReasonInvalid},
		"two do not":             {with("tar", "basil", "glue"), nil, invalid + `[spec.toppings[tar]: Not found: "tar", spec.toppings[glue]: Not found: "glue"]`, metav1.StatusReasonInvalid},
		"one is being deleted":   {with("old"), nil, invalid + `spec.toppings[old]: Invalid value: "old": is being deleted`, metav1.StatusReasonInvalid},
		"one that was on before": {with("tar"), with("tar"), "", ""},
		"one less":               {with("tar"), with("tar", "glue"), "", ""},
		"one that is added":      {with("tar", "glue"), with("tar"), invalid + `spec.toppings[glue]: Not found: "glue"`, metav1.StatusReasonInvalid},
		"an error of the server": {with("slow"), nil, "Timeout: etcd has not answered in time", metav1.StatusReasonTimeout},
		"another error":          {with("odd"), nil, `Internal error occurred: the topping "odd" can't be looked up: the index is broken`, metav1.StatusReasonInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			requireError(t, Check(t.Context(), test.pizza, test.old, get), test.want, test.wantReason)
		})
	}
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

// newTestPlugin returns a plugin whose informer knows tomato, and whose server knows
// basil besides.
func newTestPlugin(t *testing.T) (*plugin, *fake.Clientset) {
	t.Helper()
	tomato := &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: "tomato"}}
	client := fake.NewClientset(tomato, &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: "basil"}})
	informers := externalversions.NewSharedInformerFactory(client, 0)
	p := newPlugin()
	kinds := informers.Restaurant().V1()
	p.SetRestaurant(lookup.NewToppings(kinds.Toppings().Lister(), client.RestaurantV1()), nil)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	if err := kinds.Toppings().Informer().GetIndexer().Add(tomato); err != nil {
		t.Fatal(err)
	}
	return p, client
}

func attributes(object, old runtime.Object, resource, subresource string, operation admission.Operation) admission.Attributes {
	return admission.NewAttributesRecord(object, old, restaurant.Kind("Pizza").WithVersion("v1"), "default", "margherita",
		restaurant.Resource(resource).WithVersion("v1"), subresource, operation, nil, false, nil)
}

func TestPlugin(t *testing.T) {
	const invalid = `Pizza.restaurant.programming-kubernetes.info "margherita" is invalid: `
	for name, test := range map[string]struct {
		attributes admission.Attributes
		// want is the object after admission.
		want       runtime.Object
		wantErr    string
		wantReason metav1.StatusReason
		// wantReads are live reads.
		wantReads int
	}{
		"a known topping":          {attributes(with("tomato"), nil, "pizzas", "", admission.Create), with("tomato"), "", "", 0},
		"one of a moment ago":      {attributes(with("tomato", "basil"), nil, "pizzas", "", admission.Create), with("tomato", "basil"), "", "", 1},
		"an unknown one":           {attributes(with("tar"), nil, "pizzas", "", admission.Create), with("tar"), invalid + `spec.toppings[tar]: Not found: "tar"`, metav1.StatusReasonInvalid, 1},
		"defaults are checked too": {attributes(with(), nil, "pizzas", "", admission.Create), with("mozzarella", "tomato", "salami"), invalid + `[spec.toppings[mozzarella]: Not found: "mozzarella", spec.toppings[salami]: Not found: "salami"]`, metav1.StatusReasonInvalid, 2},
		"an update":                {attributes(with("tar", "glue"), with("tar"), "pizzas", "", admission.Update), with("tar", "glue"), invalid + `spec.toppings[glue]: Not found: "glue"`, metav1.StatusReasonInvalid, 1},
		"an update that empties":   {attributes(with(), with("mozzarella", "salami"), "pizzas", "", admission.Update), with("mozzarella", "tomato", "salami"), "", "", 0},
		"a status":                 {attributes(with(), with("tar"), "pizzas", "status", admission.Update), with(), "", "", 0},
		"a topping":                {attributes(&restaurant.Topping{}, nil, "toppings", "", admission.Create), &restaurant.Topping{}, "", "", 0},
		"no pizza":                 {attributes(&restaurant.Topping{}, nil, "pizzas", "", admission.Create), &restaurant.Topping{}, "Internal error occurred: PizzaToppings was given a *restaurant.Topping instead of a pizza", metav1.StatusReasonInternalError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, client := newTestPlugin(t)
			err := p.Admit(t.Context(), test.attributes, nil)
			if err == nil {
				err = p.Validate(t.Context(), test.attributes, nil)
			}
			requireError(t, err, test.wantErr, test.wantReason)
			if diff := cmp.Diff(test.want, test.attributes.GetObject()); diff != "" {
				t.Errorf("unexpected object (-want +got):\n%s", diff)
			}
			if got := len(client.Actions()); got != test.wantReads {
				t.Errorf("got %d live reads, want %d: %v", got, test.wantReads, client.Actions())
			}
		})
	}
}

func TestInitialization(t *testing.T) {
	plugins := admission.NewPlugins()
	Plugin().Register(plugins)
	if _, err := plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{}); err == nil || err.Error() != `failed to initialize admission plugin "PizzaToppings": PizzaToppings has no access to toppings` {
		t.Errorf("got %v for a plugin that was given nothing", err)
	}
	initialized, err := plugins.InitPlugin(PluginName, nil, initializer.New(&lookup.Toppings{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	for operation, want := range map[admission.Operation]bool{admission.Create: true, admission.Update: true, admission.Delete: false, admission.Connect: false} {
		if got := initialized.Handles(operation); got != want {
			t.Errorf("got Handles(%s) %v, want %v", operation, got, want)
		}
	}
}
