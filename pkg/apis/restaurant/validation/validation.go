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

// Package validation checks on the internal types what holds in every version
// alike and cannot be said by a tag on a versioned field. All other rules are
// tags in the versioned packages, from which validation code is generated; no
// rule is in both places. A server must run both, and the generic validation
// of object metadata too.
package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// ValidatePizza validates a pizza that is created or has been changed. No field
// of a pizza is immutable, so there is nothing to compare with an old one.
func ValidatePizza(pizza *restaurant.Pizza) field.ErrorList {
	status := field.NewPath("status")
	errs := validateCost(pizza.Status.Cost, restaurant.MaxPizzaCost, status.Child("cost"))
	return append(errs, validateConditions(pizza.Status.Conditions, status.Child("conditions"))...)
}

// ValidateTopping validates a topping that is created or has been changed. No
// field of a topping is immutable, so there is nothing to compare with an old
// one.
func ValidateTopping(topping *restaurant.Topping) field.ErrorList {
	return validateCost(topping.Spec.Cost, restaurant.MaxCost, field.NewPath("spec", "cost"))
}

func validateConditions(conditions []metav1.Condition, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(conditions, path)
	for _, err := range errs {
		// The library marks what its own tags cover. Ours do not descend into
		// conditions, and without an error from a tag beside it a mark would
		// be reported in the log as a fault of the server.
		// Upstream fault 26.
		err.CoveredByDeclarative = false
	}
	return errs
}

// validateCost leaves it to the tags whether a cost may be missing. The limits
// cannot be tags: those compare integers, not quantities.
func validateCost(cost *resource.Quantity, maximum int64, path *field.Path) field.ErrorList {
	switch {
	case cost == nil:
		return nil
	case cost.Sign() < 0:
		return field.ErrorList{field.Invalid(path, cost.String(), "must be greater than or equal to 0")}
	case cost.CmpInt64(maximum) > 0:
		return field.ErrorList{field.Invalid(path, cost.String(), fmt.Sprintf("must be less than or equal to %d", maximum))}
	}
	return nil
}
