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

package bar

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Drink is a drink on the menu.
type Drink struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   DrinkSpec
	Status DrinkStatus
}

// DrinkSpec is what a drink should be.
type DrinkSpec struct {
	// Millilitres is how much there is of it.
	Millilitres int32
	// Garnishes names every garnish once.
	Garnishes []Garnish
}

// Garnish is what a drink is decorated with.
type Garnish struct {
	Name   string
	Pieces int32
}

// DrinkStatus is what is known about a drink.
type DrinkStatus struct {
	// Served is how often it was served.
	Served int32
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DrinkList is a list of drinks.
type DrinkList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Drink
}
