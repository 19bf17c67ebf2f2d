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

	"k8s.io/apimachinery/pkg/api/resource"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// CostFunc returns the cost of a topping, or nil if there is no such
// topping.
type CostFunc func(ctx context.Context, topping string) (*resource.Quantity, error)

func priceReview() registry.Review[*restaurant.PriceReview] {
	return registry.Review[*restaurant.PriceReview]{
		New:      func() *restaurant.PriceReview { return &restaurant.PriceReview{} },
		Resource: "pricereviews",
		Singular: "pricereview",
	}
}

// PriceReviewAnswer answers PriceReviews with the costs of toppings.
func PriceReviewAnswer(costs CostFunc) registry.AnswerFunc[*restaurant.PriceReview] {
	return func(ctx context.Context, review *restaurant.PriceReview) error {
		cost, missing, err := restaurant.Price(review.Spec.Toppings, func(topping string) (*resource.Quantity, error) {
			return costs(ctx, topping)
		})
		review.Status = restaurant.PriceReviewStatus{Cost: cost, MissingToppings: missing}
		return err
	}
}
