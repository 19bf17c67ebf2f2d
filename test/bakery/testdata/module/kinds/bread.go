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

// Package kinds declares the kinds of bakery.example.com.
package kinds

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"

	"example.com/bakery/apis/bakery"
)

// Bread declares breads.
func Bread() registry.Kind[*bakery.Bread] {
	return registry.Kind[*bakery.Bread]{
		New:        func() *bakery.Bread { return &bakery.Bread{} },
		NewList:    func() runtime.Object { return &bakery.BreadList{} },
		Resource:   "breads",
		Singular:   "bread",
		Namespaced: true,
		ShortNames: []string{"br"},
		Categories: []string{"bakery"},

		Columns: []registry.Column[*bakery.Bread]{
			registry.NameColumn[*bakery.Bread](),
			{
				TableColumnDefinition: metav1.TableColumnDefinition{Name: "Loaves", Type: "string", Description: "How many are baked, of how many."},
				Cell:                  func(b *bakery.Bread) any { return fmt.Sprintf("%d/%d", b.Status.Loaves, b.Spec.Loaves) },
			},
			registry.AgeColumn[*bakery.Bread](),
		},
		Fields: map[string]func(*bakery.Bread) string{
			"spec.shelf": func(b *bakery.Bread) string { return b.Spec.Shelf },
		},

		Spec:       func(b *bakery.Bread) any { return b.Spec },
		KeepStatus: func(to, from *bakery.Bread) { to.Status = from.Status },
		KeepSpec:   func(to, from *bakery.Bread) { to.Spec = from.Spec },
		Validate:   validate,
	}
}

// validate says what no tag can.
func validate(_ context.Context, bread, _ *bakery.Bread) field.ErrorList {
	var sum int32
	for _, flour := range bread.Spec.Flours {
		sum += flour.Percent
	}
	if len(bread.Spec.Flours) > 0 && sum != 100 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "flours"), sum, "the percents must add up to 100")}
	}
	return nil
}
