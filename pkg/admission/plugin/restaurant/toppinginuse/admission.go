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

// Package toppinginuse holds the admission plugin ToppingInUse: a topping that is
// on a pizza cannot be deleted.
package toppinginuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"

	genericadmission "restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/initializer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	clients "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	lookup "restaurant.programming-kubernetes.info/apiserver/pkg/lookup/restaurant"
)

const (
	// PluginName is the plugin's name in flags and metrics.
	PluginName = "ToppingInUse"
	// maxNames is how many pizzas a refusal names.
	maxNames = 3
)

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
	pizzas clients.PizzasGetter
}

var (
	_ admission.ValidationInterface = &plugin{}
	_ initializer.WantsRestaurant   = &plugin{}
)

func newPlugin() *plugin {
	return &plugin{Handler: admission.NewHandler(admission.Delete)}
}

func (p *plugin) SetRestaurant(_ *lookup.Toppings, pizzas clients.PizzasGetter) {
	p.pizzas = pizzas
}

func (p *plugin) ValidateInitialization() error {
	if p.pizzas == nil {
		return errors.New(PluginName + " has no access to pizzas")
	}
	return nil
}

// Validate refuses to delete a topping that is on a pizza.
func (p *plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != restaurant.Resource("toppings") || attributes.GetSubresource() != "" {
		return nil
	}
	// When a collection is deleted, only the object has a name.
	topping, err := meta.Accessor(attributes.GetOldObject())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("%s was given no topping: %w", PluginName, err))
	}
	return Check(topping.GetName(), func() (*restaurantv1.PizzaList, error) {
		return p.pizzas.Pizzas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	})
}

// Check returns a Forbidden that names some of the pizzas that the topping is on.
// The list must be what is stored now: a cache may lack a pizza of a moment ago,
// and still have the one that was deleted before its topping.
func Check(topping string, list func() (*restaurantv1.PizzaList, error)) error {
	pizzas, err := list()
	if err != nil {
		return err
	}
	var users []string
	for i := range pizzas.Items {
		if hasTopping(&pizzas.Items[i], topping) {
			users = append(users, cache.MetaObjectToName(&pizzas.Items[i]).String())
		}
	}
	if len(users) == 0 {
		return nil
	}
	return apierrors.NewForbidden(restaurant.Resource("toppings"), topping, inUse(users))
}

func hasTopping(pizza *restaurantv1.Pizza, name string) bool {
	return slices.ContainsFunc(pizza.Spec.Toppings, func(topping restaurantv1.PizzaTopping) bool { return topping.Name == name })
}

func inUse(pizzas []string) error {
	if len(pizzas) == 1 {
		return fmt.Errorf("it is on the pizza %s", pizzas[0])
	}
	slices.Sort(pizzas)
	named, more := pizzas, ""
	if len(pizzas) > maxNames {
		named, more = pizzas[:maxNames], fmt.Sprintf(" and %d more", len(pizzas)-maxNames)
	}
	return fmt.Errorf("it is on %d pizzas: %s%s", len(pizzas), strings.Join(named, ", "), more)
}
