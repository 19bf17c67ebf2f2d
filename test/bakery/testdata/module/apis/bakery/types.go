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

// +groupName=bakery.example.com

// Package bakery holds the internal types of bakery.example.com.
package bakery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the name of the API group.
const GroupName = "bakery.example.com"

// AddToScheme registers the internal types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(schema.GroupVersion{Group: GroupName, Version: runtime.APIVersionInternal}, &Bread{}, &BreadList{})
	return nil
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Bread is a bread that the bakery sells.
type Bread struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   BreadSpec
	Status BreadStatus
}

// BreadSpec is what a bread should be.
type BreadSpec struct {
	// Loaves is how many the bakery keeps.
	Loaves int32
	// Shelf is where they are, if anywhere.
	Shelf string
	// Flours are what the bread is made of, each named once.
	Flours []Flour
}

// Flour is a part of the flour of a bread.
type Flour struct {
	Name    string
	Percent int32
}

// BreadStatus is what is known about a bread.
type BreadStatus struct {
	// Loaves is how many are baked.
	Loaves int32
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BreadList is a list of breads.
type BreadList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Bread
}
