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

package restaurant

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/validation"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

func topping() registry.Kind[*restaurant.Topping] {
	return registry.Kind[*restaurant.Topping]{
		New:        func() *restaurant.Topping { return &restaurant.Topping{} },
		NewList:    func() runtime.Object { return &restaurant.ToppingList{} },
		Resource:   "toppings",
		Singular:   "topping",
		ShortNames: []string{"tp"},
		Categories: []string{"restaurant"},

		Columns: []registry.Column[*restaurant.Topping]{
			registry.NameColumn[*restaurant.Topping](),
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Cost", Type: "string", Description: "The price of the topping once on a pizza."},
				Cell: func(t *restaurant.Topping) any { return quantityCell(t.Spec.Cost) }},
			registry.AgeColumn[*restaurant.Topping](),
		},

		Spec: func(t *restaurant.Topping) any { return t.Spec },
		Validate: func(_ context.Context, t, _ *restaurant.Topping) field.ErrorList {
			return validation.ValidateTopping(t)
		},
	}
}
