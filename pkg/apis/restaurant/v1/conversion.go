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

package v1

import (
	"k8s.io/apimachinery/pkg/conversion"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// Convert_v1_PizzaStatus_To_restaurant_PizzaStatus bounds the cost; see restaurant.BoundCost.
func Convert_v1_PizzaStatus_To_restaurant_PizzaStatus(in *PizzaStatus, out *restaurant.PizzaStatus, s conversion.Scope) error {
	if err := autoConvert_v1_PizzaStatus_To_restaurant_PizzaStatus(in, out, s); err != nil {
		return err
	}
	out.Cost = restaurant.BoundCost(out.Cost)
	return nil
}

// Convert_v1_ToppingSpec_To_restaurant_ToppingSpec bounds the cost; see restaurant.BoundCost.
func Convert_v1_ToppingSpec_To_restaurant_ToppingSpec(in *ToppingSpec, out *restaurant.ToppingSpec, s conversion.Scope) error {
	if err := autoConvert_v1_ToppingSpec_To_restaurant_ToppingSpec(in, out, s); err != nil {
		return err
	}
	out.Cost = restaurant.BoundCost(out.Cost)
	return nil
}

// Convert_v1_PriceReviewStatus_To_restaurant_PriceReviewStatus bounds the cost; see restaurant.BoundCost.
func Convert_v1_PriceReviewStatus_To_restaurant_PriceReviewStatus(in *PriceReviewStatus, out *restaurant.PriceReviewStatus, s conversion.Scope) error {
	if err := autoConvert_v1_PriceReviewStatus_To_restaurant_PriceReviewStatus(in, out, s); err != nil {
		return err
	}
	out.Cost = restaurant.BoundCost(out.Cost)
	return nil
}
