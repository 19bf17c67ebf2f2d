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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Machine is a namespaced kind with all that a kind can have.
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the machine should be.
	// +optional
	Spec MachineSpec `json:"spec,omitempty"`

	// status is what is known about the machine. It is filled in by the server and read-only.
	// +optional
	Status MachineStatus `json:"status,omitempty"`
}

// MachineSpec is what a machine should be.
type MachineSpec struct {
	// site is the name of the Site where the machine stands. It can't be changed.
	// +optional
	Site string `json:"site,omitempty"`

	// parts lists what the machine is made of, each part once.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	Parts []Part `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name"`

	// width is how wide the machine is in centimetres. Either both of width and height are set or neither.
	// +optional
	Width int32 `json:"width,omitempty"`

	// height is how high the machine is in centimetres.
	// +optional
	Height int32 `json:"height,omitempty"`

	// replicas is how many machines of this kind should run. Defaults to 1.
	// +optional
	// +default=1
	Replicas *int32 `json:"replicas,omitempty"`

	// turbo is there for tests of fields behind a feature gate.
	// +optional
	Turbo bool `json:"turbo,omitempty"`
}

// Part is a part of a machine.
type Part struct {
	// name is the name of the part.
	// +required
	Name string `json:"name"`

	// count is how often the part is in the machine. Defaults to 1.
	// +optional
	// +default=1
	Count *int32 `json:"count,omitempty"`
}

// MachineStatus is what is known about a machine.
type MachineStatus struct {
	// replicas is how many machines of this kind run.
	// +optional
	Replicas int32 `json:"replicas"`

	// selector is the label selector that the scale subresource reports.
	// +optional
	Selector string `json:"selector,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachineList is a list of machines.
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of machines.
	Items []Machine `json:"items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Site is a cluster-scoped kind without a status.
type Site struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the site should be.
	// +optional
	Spec SiteSpec `json:"spec,omitempty"`
}

// SiteSpec is what a site should be.
type SiteSpec struct {
	// capacity is how many machines can stand there.
	// +required
	// +k8s:required
	// +k8s:minimum=1
	Capacity *int32 `json:"capacity,omitempty"`

	// region is where the site is.
	// +optional
	// +k8s:optional
	// +k8s:ifEnabled(ShortRegions)=+k8s:maxLength=4
	Region string `json:"region,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// SiteList is a list of sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of sites.
	Items []Site `json:"items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Prototype is a kind that exists in v1alpha1 only.
type Prototype struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the prototype should be.
	// +optional
	Spec PrototypeSpec `json:"spec,omitempty"`
}

// PrototypeSpec is what a prototype should be.
type PrototypeSpec struct {
	// note is what there is to say about the prototype.
	// +required
	Note string `json:"note,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PrototypeList is a list of prototypes.
type PrototypeList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items is the list of prototypes.
	Items []Prototype `json:"items"`
}
