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

// Package restaurant declares the kinds of the restaurant's API group. Each kind has
// a file, and their list is here.
package restaurant

import (
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// Kinds returns the declarations of all kinds. PriceReviews are answered by
// PriceReviewAnswer, which the group's Runtime has.
func Kinds() []registry.Declaration {
	return []registry.Declaration{
		pizza(),
		topping(),
		priceReview(),
	}
}
