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
	"math"

	"k8s.io/apimachinery/pkg/conversion"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// The functions below run before validation, on any request or stored object. Therefore the memory
// that they allocate must not depend on a number in the object.

// Convert_Slice_string_To_Slice_restaurant_PizzaTopping counts how often each
// name is listed. The toppings are in the order of first appearance.
func Convert_Slice_string_To_Slice_restaurant_PizzaTopping(in *[]string, out *[]restaurant.PizzaTopping, _ conversion.Scope) error {
	*out = nil
	if *in == nil {
		return nil
	}
	toppings := []restaurant.PizzaTopping{}
	index := map[string]int{}
	for _, name := range *in {
		i, found := index[name]
		if !found {
			i = len(toppings)
			index[name] = i
			toppings = append(toppings, restaurant.PizzaTopping{Name: name})
		}
		if toppings[i].Quantity < math.MaxInt32 {
			toppings[i].Quantity++
		}
	}
	*out = toppings
	return nil
}

// Convert_Slice_restaurant_PizzaTopping_To_Slice_string lists each name as often as its quantity
// says.
//
// A list of names cannot express every invalid value of the internal form. Such a value becomes
// another invalid one, so that an invalid pizza never turns into a valid one. A quantity out of
// range, or a topping that occurs twice, becomes one portion too many. Of too many toppings, one
// too many is kept. The list is never longer than (MaxToppings+1) * (MaxQuantity+1).
func Convert_Slice_restaurant_PizzaTopping_To_Slice_string(in *[]restaurant.PizzaTopping, out *[]string, _ conversion.Scope) error {
	const tooMany = restaurant.MaxQuantity + 1

	*out = nil
	if *in == nil {
		return nil
	}
	names := []string{}
	listed := map[string]int32{}
	for _, topping := range *in {
		before, again := listed[topping.Name]
		if !again && len(listed) > restaurant.MaxToppings {
			break
		}
		after := topping.Quantity
		if again || after < restaurant.MinQuantity || after > restaurant.MaxQuantity {
			after = tooMany
		}
		for range after - before {
			names = append(names, topping.Name)
		}
		listed[topping.Name] = after
	}
	*out = names
	return nil
}

// Convert_v1alpha1_PizzaStatus_To_restaurant_PizzaStatus bounds the cost; see restaurant.BoundCost.
func Convert_v1alpha1_PizzaStatus_To_restaurant_PizzaStatus(in *PizzaStatus, out *restaurant.PizzaStatus, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_PizzaStatus_To_restaurant_PizzaStatus(in, out, s); err != nil {
		return err
	}
	out.Cost = restaurant.BoundCost(out.Cost)
	return nil
}

// Convert_v1alpha1_ToppingSpec_To_restaurant_ToppingSpec bounds the cost; see restaurant.BoundCost.
func Convert_v1alpha1_ToppingSpec_To_restaurant_ToppingSpec(in *ToppingSpec, out *restaurant.ToppingSpec, s conversion.Scope) error {
	if err := autoConvert_v1alpha1_ToppingSpec_To_restaurant_ToppingSpec(in, out, s); err != nil {
		return err
	}
	out.Cost = restaurant.BoundCost(out.Cost)
	return nil
}
