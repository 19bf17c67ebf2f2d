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

// Package restaurant assembles the restaurant's API group: its kinds, its
// admission plugins, and the parts of the server that use its API.
package restaurant

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/initializer"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/pizzatoppings"
	"restaurant.programming-kubernetes.info/apiserver/pkg/admission/plugin/restaurant/toppinginuse"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	"restaurant.programming-kubernetes.info/apiserver/pkg/controller/restaurant/pricing"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/openapi"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	kinds "restaurant.programming-kubernetes.info/apiserver/pkg/registry/restaurant"
)

// Group returns the declaration of restaurant.programming-kubernetes.info.
func Group() registry.Group {
	return registry.Group{
		Name:    restaurant.GroupName,
		Install: install.Install,
		OpenAPI: openapi.GetOpenAPIDefinitions,
		Kinds:   kinds.Kinds(),
		Admission: []admission.Plugin{
			pizzatoppings.Plugin(),
			toppinginuse.Plugin(),
		},
		Runtime: connect,
	}
}

// connect returns the parts of one server that use pizzas and toppings.
func connect(clients registry.Clients) (registry.Runtime, error) {
	loopback := rest.CopyConfig(clients.Loopback)
	loopback.ContentType = runtime.ContentTypeProtobuf
	client, err := versioned.NewForConfig(loopback)
	if err != nil {
		return registry.Runtime{}, err
	}
	cluster, err := kubernetes.NewForConfig(clients.Cluster)
	if err != nil {
		return registry.Runtime{}, err
	}
	informers := externalversions.NewSharedInformerFactory(client, 0)
	toppings := lookup.NewToppings(informers.Restaurant().V1().Toppings().Lister(), client.RestaurantV1())
	return registry.Runtime{
		Informers:   informers,
		Admission:   initializer.New(toppings, client.RestaurantV1()),
		Answers:     map[string]registry.Answer{"pricereviews": kinds.PriceReviewAnswer(toppings.Cost)},
		Controllers: []registry.Controller{pricing.New(client, informers, cluster)},
	}, nil
}
