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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// Drink is a drink on the menu.
type Drink struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is what the drink should be.
	// +optional
	Spec DrinkSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what is known about the drink.
	// +optional
	Status DrinkStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// DrinkSpec is what a drink should be.
type DrinkSpec struct {
	// millilitres is how much there is of it. Defaults to 330.
	// +optional
	// +default=330
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=2000
	Millilitres *int32 `json:"millilitres,omitempty" protobuf:"varint,1,opt,name=millilitres"`

	// garnishes lists what the drink is decorated with.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=8
	Garnishes []Garnish `json:"garnishes,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=garnishes"`
}

// Garnish is what a drink is decorated with.
type Garnish struct {
	// name says what it is.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// pieces is how many there are. Defaults to 1.
	// +optional
	// +default=1
	// +k8s:optional
	// +k8s:minimum=1
	Pieces *int32 `json:"pieces,omitempty" protobuf:"varint,2,opt,name=pieces"`
}

// DrinkStatus is what is known about a drink.
type DrinkStatus struct {
	// served is how often the drink was served.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	Served int32 `json:"served,omitempty" protobuf:"varint,1,opt,name=served"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DrinkList is a list of drinks.
type DrinkList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of drinks.
	Items []Drink `json:"items" protobuf:"bytes,2,rep,name=items"`
}
