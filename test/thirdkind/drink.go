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

package main

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/thirdkind/apis/bar"
)

func drinks() registry.Kind[*bar.Drink] {
	return registry.Kind[*bar.Drink]{
		New:        func() *bar.Drink { return &bar.Drink{} },
		NewList:    func() runtime.Object { return &bar.DrinkList{} },
		Resource:   "drinks",
		Singular:   "drink",
		Namespaced: true,
		ShortNames: []string{"dr"},
		Categories: []string{"restaurant"},

		Columns: []registry.Column[*bar.Drink]{
			registry.NameColumn[*bar.Drink](),
			{
				TableColumnDefinition: metav1.TableColumnDefinition{Name: "Size", Type: "string", Description: "How much there is of it."},
				Cell:                  func(d *bar.Drink) any { return fmt.Sprintf("%d ml", d.Spec.Millilitres) },
			},
			registry.AgeColumn[*bar.Drink](),
		},

		Spec:       func(d *bar.Drink) any { return d.Spec },
		KeepStatus: func(to, from *bar.Drink) { to.Status = from.Status },
		KeepSpec:   func(to, from *bar.Drink) { to.Spec = from.Spec },
		Validate:   validateDrink,
	}
}

// validateDrink says what no tag can, and lets no glass shrink.
func validateDrink(_ context.Context, d, old *bar.Drink) field.ErrorList {
	var errs field.ErrorList
	for i, garnish := range d.Spec.Garnishes {
		if strings.Contains(garnish.Name, "pineapple") {
			errs = append(errs, field.Invalid(field.NewPath("spec", "garnishes").Index(i).Child("name"), garnish.Name, "belongs on no drink, and on no pizza"))
		}
	}
	if old != nil && d.Spec.Millilitres < old.Spec.Millilitres {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "millilitres"), "must not become less"))
	}
	return errs
}
