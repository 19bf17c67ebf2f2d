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
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/validation"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

func pizza() registry.Kind[*restaurant.Pizza] {
	return registry.Kind[*restaurant.Pizza]{
		New:        func() *restaurant.Pizza { return &restaurant.Pizza{} },
		NewList:    func() runtime.Object { return &restaurant.PizzaList{} },
		Resource:   "pizzas",
		Singular:   "pizza",
		Namespaced: true,
		ShortNames: []string{"pz"},
		Categories: []string{"restaurant"},

		Columns: []registry.Column[*restaurant.Pizza]{
			registry.NameColumn[*restaurant.Pizza](),
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Toppings", Type: "string", Description: "What is on the pizza, and how often."}, Cell: toppingsCell},
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Replicas", Type: "string", Description: "How many are baked, of how many that should be."}, Cell: replicasCell},
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Cost", Type: "string", Description: "The sum of the toppings' costs."},
				Cell: func(p *restaurant.Pizza) any { return quantityCell(p.Status.Cost) }},
			registry.AgeColumn[*restaurant.Pizza](),
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Condition", Type: "string", Priority: 1, Description: "Whether the pizza is ready, or what keeps it from that."},
				Cell: func(p *restaurant.Pizza) any { return currentCondition(p).Type }},
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Reason", Type: "string", Priority: 1, Description: "The reason of the condition."},
				Cell: func(p *restaurant.Pizza) any { return currentCondition(p).Reason }},
		},
		Fields: map[string]func(*restaurant.Pizza) string{
			"spec.replicas":   func(p *restaurant.Pizza) string { return strconv.Itoa(int(p.Spec.Replicas)) },
			"status.replicas": func(p *restaurant.Pizza) string { return strconv.Itoa(int(p.Status.Replicas)) },
			"status.cost":     func(p *restaurant.Pizza) string { return quantityField(p.Status.Cost) },
		},
		Indexes: map[string]func(*restaurant.Pizza) []string{
			"spec.toppings": toppingNames,
		},

		Spec:       func(p *restaurant.Pizza) any { return p.Spec },
		KeepStatus: func(to, from *restaurant.Pizza) { to.Status = from.Status },
		KeepSpec:   func(to, from *restaurant.Pizza) { to.Spec = from.Spec },
		Validate:   func(_ context.Context, p, _ *restaurant.Pizza) field.ErrorList { return validation.ValidatePizza(p) },
		Scale: &registry.Scale[*restaurant.Pizza]{
			Replicas:       func(p *restaurant.Pizza) *int32 { return &p.Spec.Replicas },
			StatusReplicas: func(p *restaurant.Pizza) int32 { return p.Status.Replicas },
			Selector:       func(p *restaurant.Pizza) string { return p.Status.Selector },
		},
		Subresources: map[string]registry.Subresource[*restaurant.Pizza]{
			"bake":  bake(),
			"track": track(),
		},
	}
}

func toppingNames(p *restaurant.Pizza) []string {
	names := make([]string, len(p.Spec.Toppings))
	for i, topping := range p.Spec.Toppings {
		names[i] = topping.Name
	}
	return names
}

// toppingsCell is like "mozzarella,tomato×2".
func toppingsCell(p *restaurant.Pizza) any {
	toppings := make([]string, len(p.Spec.Toppings))
	for i, topping := range p.Spec.Toppings {
		toppings[i] = topping.Name
		if topping.Quantity > 1 {
			toppings[i] += fmt.Sprintf("×%d", topping.Quantity)
		}
	}
	return strings.Join(toppings, ",")
}

func replicasCell(p *restaurant.Pizza) any {
	return fmt.Sprintf("%d/%d", p.Status.Replicas, p.Spec.Replicas)
}

// quantityCell prints a cost as people write prices: 5.3, not 5300m.
func quantityCell(q *resource.Quantity) any {
	if q == nil {
		return "<unknown>"
	}
	// AsDec converts the quantity in place, and the object may be shared with a cache.
	cost := q.DeepCopy()
	decimal := cost.AsDec().String()
	if strings.Contains(decimal, ".") {
		decimal = strings.TrimRight(strings.TrimRight(decimal, "0"), ".")
	}
	return decimal
}

func quantityField(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	return q.String()
}

// currentCondition returns the most telling condition: the first that is not true, or
// the last.
func currentCondition(p *restaurant.Pizza) metav1.Condition {
	var current metav1.Condition
	for _, current = range p.Status.Conditions {
		if current.Status != metav1.ConditionTrue {
			break
		}
	}
	return current
}
