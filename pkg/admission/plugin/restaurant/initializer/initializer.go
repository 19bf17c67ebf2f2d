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

// Package initializer gives the restaurant's admission plugins access to its
// objects.
package initializer

import (
	"k8s.io/apiserver/pkg/admission"

	genericadmission "restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	clients "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
)

// WantsRestaurant is a plugin that reads pizzas or toppings. ValidateInitialization
// must fail if SetRestaurant has not been called.
type WantsRestaurant interface {
	admission.Interface
	admission.InitializationValidator
	SetRestaurant(*lookup.Toppings, clients.PizzasGetter)
}

// New returns an initializer of plugins that implement WantsRestaurant. The client
// reads pizzas without a cache.
func New(toppings *lookup.Toppings, pizzas clients.PizzasGetter) admission.PluginInitializer {
	return genericadmission.InitializerFor(func(plugin WantsRestaurant) { plugin.SetRestaurant(toppings, pizzas) })
}
