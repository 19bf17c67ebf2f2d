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

// Package restaurant declares the webhooks of the restaurant's API group. They use the code
// of the group's types and admission plugins.
package restaurant

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/pizzatoppings"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/toppinginuse"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/validation"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
	"restaurant.programming-kubernetes.info/apiserver/pkg/webhook"
)

const (
	// byTopping is the index of pizzas by the names of their toppings.
	byTopping = "topping"
	// maxCount is how many pizzas are counted in a refusal.
	maxCount = 100
)

// New returns the webhooks. Through a client of the configuration they watch
// toppings and pizzas, in v1.
func New(config *rest.Config) (webhook.Webhooks, error) {
	// kube-apiserver queues requests itself; a queue here would outlast its patience.
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return webhook.Webhooks{}, err
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	kinds := externalversions.NewSharedInformerFactory(client, 0).Restaurant().V1()
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return webhook.Webhooks{}, err
	}
	// A pizza that can't be decoded does not keep the webhook from the others.
	pizzas := dynamicinformer.NewFilteredDynamicInformer(untyped, restaurantv1.SchemeGroupVersion.WithResource("pizzas"), metav1.NamespaceAll, 0, toppingIndexers(), nil).Informer()
	if err := pizzas.SetTransform(onlyToppings); err != nil {
		return webhook.Webhooks{}, err
	}
	rules := rules{lookup.NewToppings(kinds.Toppings().Lister(), client.RestaurantV1()), pizzas.GetIndexer()}
	return webhook.Webhooks{
		Scheme:         scheme,
		Mutate:         mutate,
		ValidateObject: validateObject,
		Validate:       rules.validate,
		Informers:      map[string]cache.SharedIndexInformer{"pizzas": pizzas, "toppings": kinds.Toppings().Informer()},
	}, nil
}

// onlyToppings reduces a pizza to the fields that the index needs, since there can be many.
func onlyToppings(obj any) (any, error) {
	stored, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	pizza := &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Namespace: stored.GetNamespace(), Name: stored.GetName(), ResourceVersion: stored.GetResourceVersion()}}
	spec, _ := stored.Object["spec"].(map[string]any)
	toppings, _ := spec["toppings"].([]any)
	for _, topping := range toppings {
		topping, _ := topping.(map[string]any)
		name, _ := topping["name"].(string)
		pizza.Spec.Toppings = append(pizza.Spec.Toppings, restaurantv1.PizzaTopping{Name: name})
	}
	return pizza, nil
}

func toppingIndexers() cache.Indexers {
	return cache.Indexers{byTopping: func(obj any) (names []string, err error) {
		pizza, ok := obj.(*restaurantv1.Pizza)
		if !ok {
			return nil, fmt.Errorf("a %T is not a pizza", obj)
		}
		for _, topping := range pizza.Spec.Toppings {
			names = append(names, topping.Name)
		}
		return names, nil
	}}
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

// rules are the rules between objects.
type rules struct {
	toppings *lookup.Toppings
	pizzas   cache.Indexer
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
		users, err := r.pizzas.ByIndex(byTopping, topping.Name)
		if err != nil {
			return err
		}
		pizzas := &restaurantv1.PizzaList{}
		for _, user := range users[:min(len(users), maxCount)] {
			pizzas.Items = append(pizzas.Items, *user.(*restaurantv1.Pizza))
		}
		if len(users) > maxCount {
			pizzas.Continue = "others"
		}
		// The webhook may not ask which pizzas the user may see.
		return toppinginuse.Check(topping.Name, pizzas, func(string) bool { return false })
	}
	return nil
}
