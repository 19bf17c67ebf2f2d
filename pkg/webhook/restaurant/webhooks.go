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

// Package restaurant declares the webhooks of the restaurant's API group. They do
// what a server with the group's own types and its admission plugins does, by the
// same code.
package restaurant

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/pizzatoppings"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/toppinginuse"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/validation"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	clients "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
	"restaurant.programming-kubernetes.info/apiserver/pkg/webhook"
)

// New returns the webhooks. Through a client of the configuration they watch
// toppings and list pizzas, in v1.
func New(config *rest.Config) (webhook.Webhooks, error) {
	// kube-apiserver queues requests by itself; a queue here would outlast its patience.
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return webhook.Webhooks{}, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	kinds := externalversions.NewSharedInformerFactory(client, 0).Restaurant().V1()
	rules := rules{lookup.NewToppings(kinds.Toppings().Lister(), client.RestaurantV1()), client.RestaurantV1()}
	return webhook.Webhooks{
		Scheme:         scheme,
		Mutate:         mutate,
		ValidateObject: validateObject,
		Validate:       rules.validate,
		Informers:      map[string]cache.SharedIndexInformer{"toppings": kinds.Toppings().Informer()},
	}, nil
}

// mutate puts the default toppings on a pizza without any.
func mutate(_ context.Context, request *webhook.Request) error {
	if pizza, ok := request.New.(*restaurant.Pizza); ok && request.SubResource == "" {
		pizzatoppings.Default(pizza)
	}
	return nil
}

func validateObject(obj runtime.Object) field.ErrorList {
	switch obj := obj.(type) {
	case *restaurant.Pizza:
		return validation.ValidatePizza(obj)
	case *restaurant.Topping:
		return validation.ValidateTopping(obj)
	}
	return nil
}

// rules are what must hold between objects.
type rules struct {
	toppings *lookup.Toppings
	pizzas   clients.PizzasGetter
}

// validate refuses a pizza with toppings that do not exist, and to delete a topping
// that is on a pizza.
func (r rules) validate(ctx context.Context, request *webhook.Request) error {
	if request.SubResource != "" {
		return nil
	}
	if pizza, ok := request.New.(*restaurant.Pizza); ok {
		old, _ := request.Old.(*restaurant.Pizza) // nil on create
		return pizzatoppings.Check(ctx, pizza, old, r.toppings.Get)
	}
	// When a collection is deleted, only the object has a name.
	if topping, ok := request.Old.(*restaurant.Topping); ok && request.Operation == admissionv1.Delete {
		// No field selector of a custom resource has several values.
		pizzas, err := r.pizzas.Pizzas(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		// The webhook is not entitled to ask what the user may see.
		return toppinginuse.Check(topping.Name, pizzas, func(string) bool { return false })
	}
	return nil
}
