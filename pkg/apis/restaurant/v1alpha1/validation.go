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

package v1alpha1

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// ValidateCustom_PizzaSpec_Toppings is called by the generated validation. Tags
// could check each entry of the list but not the portions of one topping, and
// would report a bad name once per portion. All errors are about the list as a
// whole. The list is converted back from the internal form, so that its entries
// may have other positions than in the request.
func ValidateCustom_PizzaSpec_Toppings(ctx context.Context, op operation.Operation, path *field.Path, names, _ []string) field.ErrorList {
	var errs field.ErrorList
	portions := map[string]int{}
	for _, name := range names {
		portions[name]++
		switch portions[name] {
		case 1:
			errs = append(errs, validate.LongName(ctx, op, path, &name, nil)...)
		case restaurant.MaxQuantity + 1:
			errs = append(errs, field.Invalid(path, name,
				fmt.Sprintf("must not be listed more than %d times", restaurant.MaxQuantity)))
		}
	}
	if len(portions) > restaurant.MaxToppings {
		errs = append(errs, field.Invalid(path, field.OmitValueType{},
			fmt.Sprintf("must not have more than %d different toppings", restaurant.MaxToppings)))
	}
	return errs
}
