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

// Package validation checks the rules on internal types that hold in every
// version and that tags can't express. All other rules are tags in the
// versioned packages, and generators turn them into validation code. No rule is
// in both places. A server must run both, and the generic validation of object
// metadata too.
package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// ValidatePizza validates a new or changed pizza. It needs no old pizza, as no
// field is immutable.
func ValidatePizza(pizza *restaurant.Pizza) field.ErrorList {
	status := field.NewPath("status")
	errs := validateCost(pizza.Status.Cost, restaurant.MaxPizzaCost, status.Child("cost"))
	return append(errs, validateConditions(pizza.Status.Conditions, status.Child("conditions"))...)
}

// ValidateTopping validates a new or changed topping. It needs no old topping,
// as no field is immutable.
func ValidateTopping(topping *restaurant.Topping) field.ErrorList {
	return validateCost(topping.Spec.Cost, restaurant.MaxCost, field.NewPath("spec", "cost"))
}

func validateConditions(conditions []metav1.Condition, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(conditions, path)
	for _, err := range errs {
		// k8s.io/apiserver marks errors that its own tags cover. Our tags do not
		// descend into conditions. Without an error from a tag, the log would
		// report a mark as a fault of the server.
		// Upstream fault 26.
		err.CoveredByDeclarative = false
	}
	return errs
}

// validateCost checks the limits of a cost. They can't be tags, which compare
// integers and not quantities. Tags decide whether a cost may be missing.
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
