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

// Package pizzatoppings holds the admission plugin PizzaToppings. A pizza without
// toppings gets the usual ones. Each topping that a request puts on a pizza must exist.
package pizzatoppings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	genericadmission "restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/initializer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/references"
	clients "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
)

// PluginName is the plugin's name in flags and metrics.
const PluginName = "PizzaToppings"

// Plugin returns the plugin for the list of all plugins.
func Plugin() genericadmission.Plugin {
	return genericadmission.Plugin{Name: PluginName, Register: Register}
}

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return newPlugin(), nil })
}

type plugin struct {
	*admission.Handler
	toppings *lookup.Toppings
}

var (
	_ admission.MutationInterface   = &plugin{}
	_ admission.ValidationInterface = &plugin{}
	_ initializer.WantsRestaurant   = &plugin{}
)

func newPlugin() *plugin {
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}
}

func (p *plugin) SetRestaurant(toppings *lookup.Toppings, _ clients.PizzasGetter) {
	p.toppings = toppings
}

func (p *plugin) ValidateInitialization() error {
	if p.toppings == nil {
		return errors.New(PluginName + " has no access to toppings")
	}
	return nil
}

// Admit fills in the default toppings.
func (p *plugin) Admit(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	pizza, _, err := pizzas(attributes)
	if pizza == nil || err != nil {
		return err
	}
	Default(pizza)
	return nil
}

// Validate refuses toppings that do not exist, now or when the pizza is stored.
func (p *plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	pizza, old, err := pizzas(attributes)
	if pizza == nil || err != nil {
		return err
	}
	var names []types.NamespacedName
	for _, name := range added(pizza, old) {
		names = append(names, types.NamespacedName{Name: name})
	}
	references.Require(ctx, restaurant.Resource("toppings"), names, func(missing []types.NamespacedName) error {
		var errs field.ErrorList
		for _, topping := range missing {
			errs = append(errs, notFound(topping.Name))
		}
		return invalid(pizza, errs)
	})
	return Check(ctx, pizza, old, p.toppings.Get)
}

// pizzas returns the pizza of a request and the one it replaces, or nil. A request for a
// subresource puts no toppings on a pizza.
func pizzas(attributes admission.Attributes) (pizza, old *restaurant.Pizza, err error) {
	if attributes.GetResource().GroupResource() != restaurant.Resource("pizzas") || attributes.GetSubresource() != "" {
		return nil, nil, nil
	}
	pizza, ok := attributes.GetObject().(*restaurant.Pizza)
	if !ok {
		return nil, nil, apierrors.NewInternalError(fmt.Errorf("%s was given a %T instead of a pizza", PluginName, attributes.GetObject()))
	}
	old, _ = attributes.GetOldObject().(*restaurant.Pizza) // nil on create
	return pizza, old, nil
}

// Default puts mozzarella, tomato and salami on a pizza without toppings.
func Default(pizza *restaurant.Pizza) {
	if len(pizza.Spec.Toppings) > 0 {
		return
	}
	for _, name := range []string{"mozzarella", "tomato", "salami"} {
		pizza.Spec.Toppings = append(pizza.Spec.Toppings, restaurant.PizzaTopping{Name: name, Quantity: 1})
	}
}

// Check refuses a pizza with new toppings that get does not find. Old is the pizza
// before the update, or nil. Its toppings may stay, or updates of other fields would be
// refused. The error is a Status. It is Invalid with the path of each missing topping,
// or the error of get if that is not NotFound.
func Check(ctx context.Context, pizza, old *restaurant.Pizza, get func(ctx context.Context, name string) (*restaurantv1.Topping, error)) error {
	var errs field.ErrorList
	for _, name := range added(pizza, old) {
		topping, err := get(ctx, name)
		switch {
		case apierrors.IsNotFound(err):
			errs = append(errs, notFound(name))
		case err != nil:
			return lookupError(name, err)
		case topping.DeletionTimestamp != nil:
			errs = append(errs, field.Invalid(toppingsPath().Key(name), name, "is being deleted"))
		}
	}
	if len(errs) > 0 {
		return invalid(pizza, errs)
	}
	return nil
}

func toppingsPath() *field.Path { return field.NewPath("spec", "toppings") }

func notFound(topping string) *field.Error {
	return field.NotFound(toppingsPath().Key(topping), topping)
}

func invalid(pizza *restaurant.Pizza, errs field.ErrorList) error {
	return apierrors.NewInvalid(restaurant.Kind("Pizza"), pizza.Name, errs)
}

func lookupError(name string, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return apierrors.NewInternalError(fmt.Errorf("the topping %q can't be looked up: %w", name, err))
}

// added returns the names of the toppings on the pizza that are not on the old one.
func added(pizza, old *restaurant.Pizza) []string {
	var names []string
	for _, topping := range pizza.Spec.Toppings {
		same := func(other restaurant.PizzaTopping) bool { return other.Name == topping.Name }
		if old == nil || !slices.ContainsFunc(old.Spec.Toppings, same) {
			names = append(names, topping.Name)
		}
	}
	return names
}
