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
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Price returns the exact sum of each topping's cost times its quantity. Lookup
// returns the cost of a topping, or nil if there is no such topping. In that case
// the sum is nil, and missing names all such toppings in their order. An error of
// a lookup ends the sum.
func Price(toppings []PizzaTopping, lookup func(name string) (*resource.Quantity, error)) (cost *resource.Quantity, missing []string, err error) {
	total := resource.NewQuantity(0, resource.DecimalSI)
	for _, topping := range toppings {
		each, err := lookup(topping.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("looking up the cost of %q: %w", topping.Name, err)
		}
		if each == nil {
			missing = append(missing, topping.Name)
			continue
		}
		portion := BoundCost(each).DeepCopy()
		portion.Mul(int64(topping.Quantity))
		total.Add(portion)
	}
	if len(missing) > 0 {
		return nil, missing, nil
	}
	total.Format = resource.DecimalSI
	return total, nil, nil
}
