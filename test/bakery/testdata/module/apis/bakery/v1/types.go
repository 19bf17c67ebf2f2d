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

// Package v1 is version v1 of bakery.example.com.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// Bread is a bread that the bakery sells.
type Bread struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is what the bread should be.
	// +optional
	Spec BreadSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what is known about the bread.
	// +optional
	Status BreadStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// BreadSpec is what a bread should be.
type BreadSpec struct {
	// loaves is how many the bakery keeps, from 0 to 100. Defaults to 1.
	// +optional
	// +default=1
	// +k8s:optional
	// +k8s:minimum=0
	// +k8s:maximum=100
	Loaves *int32 `json:"loaves,omitempty" protobuf:"varint,1,opt,name=loaves"`

	// shelf is where the loaves are, if anywhere. No other bread of the namespace
	// can be there.
	// +optional
	// +k8s:optional
	// +k8s:format=k8s-short-name
	Shelf string `json:"shelf,omitempty" protobuf:"bytes,2,opt,name=shelf"`

	// flours lists what the bread is made of, in percents that add up to 100.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=8
	Flours []Flour `json:"flours,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,3,rep,name=flours"`
}

// Flour is a part of the flour of a bread.
type Flour struct {
	// name says what is milled.
	// +required
	// +k8s:required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// percent is how much of the flour it is, from 1 to 100. Defaults to 100.
	// +optional
	// +default=100
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=100
	Percent *int32 `json:"percent,omitempty" protobuf:"varint,2,opt,name=percent"`
}

// BreadStatus is what is known about a bread.
type BreadStatus struct {
	// loaves is how many are baked.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	Loaves int32 `json:"loaves,omitempty" protobuf:"varint,1,opt,name=loaves"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BreadList is a list of breads.
type BreadList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of breads.
	Items []Bread `json:"items" protobuf:"bytes,2,rep,name=items"`
}
