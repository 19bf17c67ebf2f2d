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

// Package toppinginuse holds the admission plugin ToppingInUse. A topping on a pizza cannot be
// deleted, nor lose the last finalizer that keeps it.
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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"

	genericadmission "restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/initializer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/references"
	clients "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
)

const (
	// PluginName is the plugin's name in flags and metrics.
	PluginName = "ToppingInUse"
	// maxNames is how many pizzas a refusal names.
	maxNames = 3
	// maxCount is the maximum number of pizzas to count.
	maxCount = 100
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
	pizzas     clients.PizzasGetter
	authorizer authorizer.Authorizer
}

var (
	_ admission.ValidationInterface      = &plugin{}
	_ initializer.WantsRestaurant        = &plugin{}
	_ genericinitializer.WantsAuthorizer = &plugin{}
)

func newPlugin() *plugin {
	return &plugin{Handler: admission.NewHandler(admission.Delete, admission.Update)}
}

func (p *plugin) SetRestaurant(_ *lookup.Toppings, pizzas clients.PizzasGetter) {
	p.pizzas = pizzas
}

// SetAuthorizer sets the authorizer that decides which pizzas an error may name to a user.
func (p *plugin) SetAuthorizer(authorizer authorizer.Authorizer) {
	p.authorizer = authorizer
}

func (p *plugin) ValidateInitialization() error {
	if p.pizzas == nil {
		return errors.New(PluginName + " has no access to pizzas")
	}
	if p.authorizer == nil {
		return errors.New(PluginName + " has no authorizer")
	}
	return nil
}

// Validate refuses to delete a topping that is on a pizza, or that a concurrent request puts on
// one.
func (p *plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != restaurant.Resource("toppings") || attributes.GetSubresource() != "" {
		return nil
	}
	// When a collection is deleted, only the object has a name.
	topping, err := meta.Accessor(attributes.GetOldObject())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("%s was given no topping: %w", PluginName, err))
	}
	if attributes.GetOperation() == admission.Update && !ends(topping, attributes.GetObject()) {
		return nil
	}
	if err := references.Unused(ctx, restaurant.Resource("toppings"), types.NamespacedName{Name: topping.GetName()}); err != nil {
		return err
	}
	// Without a resourceVersion, the list is consistent. It has the newest pizzas, and none that
	// were deleted before their topping.
	pizzas, err := p.pizzas.Pizzas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.toppings", topping.GetName()).String(),
		Limit:         maxCount,
	})
	if err != nil {
		return err
	}
	return Check(topping.GetName(), pizzas, func(namespace string) bool {
		decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User:            attributes.GetUserInfo(),
			Verb:            "get",
			Namespace:       namespace,
			APIGroup:        restaurant.GroupName,
			APIVersion:      restaurantv1.SchemeGroupVersion.Version,
			Resource:        "pizzas",
			ResourceRequest: true,
		})
		return err == nil && decision == authorizer.DecisionAllow
	})
}

// ends reports whether an update removes the last finalizer of a topping that is being deleted.
func ends(topping metav1.Object, updated runtime.Object) bool {
	object, err := meta.Accessor(updated)
	return err == nil && topping.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0
}

// Check returns a Forbidden if the topping is on any of the pizzas, which may be the first part
// of a list. It names some pizzas of namespaces that mayName allows, and counts the others.
func Check(topping string, pizzas *restaurantv1.PizzaList, mayName func(namespace string) bool) error {
	var users []cache.ObjectName
	for i := range pizzas.Items {
		if hasTopping(&pizzas.Items[i], topping) {
			users = append(users, cache.MetaObjectToName(&pizzas.Items[i]))
		}
	}
	if len(users) == 0 {
		return nil
	}
	slices.SortFunc(users, func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	return apierrors.NewForbidden(restaurant.Resource("toppings"), topping, inUse(users, nameable(users, mayName), pizzas.Continue != ""))
}

func hasTopping(pizza *restaurantv1.Pizza, name string) bool {
	return slices.ContainsFunc(pizza.Spec.Toppings, func(topping restaurantv1.PizzaTopping) bool { return topping.Name == name })
}

// nameable returns the first pizzas that an error may name. It asks about at most maxNames
// namespaces.
func nameable(pizzas []cache.ObjectName, mayName func(namespace string) bool) (names []string) {
	asked := map[string]bool{}
	for _, pizza := range pizzas {
		if _, known := asked[pizza.Namespace]; !known && len(asked) < maxNames {
			asked[pizza.Namespace] = mayName(pizza.Namespace)
		}
		if asked[pizza.Namespace] && len(names) < maxNames {
			names = append(names, pizza.String())
		}
	}
	return names
}

func inUse(pizzas []cache.ObjectName, names []string, more bool) error {
	switch {
	case more:
		return fmt.Errorf("it is on more than %d pizzas%s", len(pizzas), list(names, " and others"))
	case len(pizzas) > 1:
		rest := ""
		if unnamed := len(pizzas) - len(names); unnamed > 0 {
			rest = fmt.Sprintf(" and %d more", unnamed)
		}
		return fmt.Errorf("it is on %d pizzas%s", len(pizzas), list(names, rest))
	case len(names) == 1:
		return fmt.Errorf("it is on the pizza %s", names[0])
	default:
		return errors.New("it is on a pizza")
	}
}

func list(names []string, rest string) string {
	if len(names) == 0 {
		return ""
	}
	return ": " + strings.Join(names, ", ") + rest
}
