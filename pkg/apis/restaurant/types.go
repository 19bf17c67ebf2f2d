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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits that every version of the API enforces. The versioned types repeat
// the numbers in their validation tags, where no constant can stand.
const (
	// MaxToppings is how many different toppings fit on a pizza.
	MaxToppings = 64
	// MinQuantity and MaxQuantity are how often a topping can be on a pizza.
	MinQuantity = 1
	MaxQuantity = 10
	// MaxReplicas is how many of a pizza the kitchen can be asked to keep baked.
	MaxReplicas = 1000
	// MaxCost is the highest cost of a topping.
	MaxCost = 1_000_000_000
	// MaxTrackSeconds is how long a pizza can be followed.
	MaxTrackSeconds = 3600
	// DefaultTrackSeconds is how long a pizza is followed unless a client says
	// otherwise. kube-apiserver lets a request take a little more if it does not
	// know that it is a long one.
	DefaultTrackSeconds = 50
	// MaxPizzaCost is the highest cost of a pizza that follows from the other
	// limits.
	MaxPizzaCost = MaxToppings * MaxQuantity * MaxCost
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Pizza is a pizza on the menu, and the kitchen keeps a number of it baked.
type Pizza struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   PizzaSpec
	Status PizzaStatus
}

// PizzaSpec is what a pizza should be.
type PizzaSpec struct {
	// Toppings names every topping once. Their order carries no meaning.
	Toppings []PizzaTopping
	// Replicas is how many of this pizza the kitchen keeps baked.
	Replicas int32
}

// PizzaTopping is a topping of a pizza.
type PizzaTopping struct {
	// Name is the name of a Topping.
	Name string
	// Quantity is how often the topping is on the pizza.
	Quantity int32
}

// PizzaStatus is what is known about a pizza.
type PizzaStatus struct {
	// Replicas is how many of this pizza are baked now.
	Replicas int32
	// Cost is the sum of each topping's cost times its quantity, or nil while
	// it is not known.
	Cost *resource.Quantity
	// Selector is the label selector that the scale subresource reports.
	Selector string
	// ObservedGeneration is the generation that Cost and Conditions are about.
	ObservedGeneration int64
	// Conditions holds at most one condition of each type.
	Conditions []metav1.Condition
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PizzaList is a list of pizzas.
type PizzaList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Pizza
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Bake asks the kitchen to bake some of a pizza. It is created at the pizza's
// subresource of that name, and never stored.
type Bake struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   BakeSpec
	Status BakeStatus
}

// BakeSpec is what to bake.
type BakeSpec struct {
	// Count is how many pizzas to bake.
	Count int32
}

// BakeStatus is what has been done.
type BakeStatus struct {
	// Baked is how many pizzas have been baked: fewer than were asked for if
	// not as many were missing.
	Baked int32
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PizzaTrackOptions are the query parameters of a pizza's subresource track.
type PizzaTrackOptions struct {
	metav1.TypeMeta

	// Follow asks for a line whenever there is progress, until the pizza is ready.
	Follow bool
	// TimeoutSeconds is how long to follow the pizza.
	TimeoutSeconds int64
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Topping is a topping that pizzas can have, with its price.
type Topping struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec ToppingSpec
}

// ToppingSpec is what a topping should be.
type ToppingSpec struct {
	// Cost is the price of the topping once on a pizza. It is a pointer to
	// tell a missing price, which is an error, from one of zero.
	Cost *resource.Quantity
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ToppingList is a list of toppings.
type ToppingList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Topping
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PriceReview asks what a pizza with certain toppings would cost. It is answered
// and never stored.
type PriceReview struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   PriceReviewSpec
	Status PriceReviewStatus
}

// PriceReviewSpec is what to compute the price of.
type PriceReviewSpec struct {
	// Toppings names every topping once.
	Toppings []PizzaTopping
}

// PriceReviewStatus is the answer.
type PriceReviewStatus struct {
	// Cost is the sum of each topping's cost times its quantity, or nil if a
	// topping is missing.
	Cost *resource.Quantity
	// MissingToppings are the names of those toppings that do not exist.
	MissingToppings []string
}
