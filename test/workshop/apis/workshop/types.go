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

package workshop

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultProgressSeconds is how long the progress of a machine is followed unless a
// client says otherwise.
const DefaultProgressSeconds = 50

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Machine is a namespaced kind with all that a kind can have.
type Machine struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   MachineSpec
	Status MachineStatus
}

// MachineSpec is what a machine should be.
type MachineSpec struct {
	// Site is the name of the Site where the machine stands. It can't be changed.
	Site string
	// Parts names every part once.
	Parts []Part
	// Dimensions is the space that the machine takes. In v1alpha1 its fields are
	// directly in the spec.
	Dimensions Dimensions
	// Replicas is how many machines of this kind should run.
	Replicas int32
	// Turbo is there for tests of fields behind a feature gate.
	Turbo bool
}

// Part is a part of a machine.
type Part struct {
	Name  string
	Count int32
}

// Dimensions is a space. Either both fields are set or neither.
type Dimensions struct {
	Width, Height int32
}

// MachineStatus is what is known about a machine.
type MachineStatus struct {
	// Replicas is how many machines of this kind run.
	Replicas int32
	// Selector is the label selector that the scale subresource reports.
	Selector string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// MachineList is a list of machines.
type MachineList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Machine
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Run is the Action of a machine: it starts some of its replicas.
type Run struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   RunSpec
	Status RunStatus
}

// RunSpec is what to run.
type RunSpec struct {
	// Count is how many replicas to start.
	Count int32
}

// RunStatus is what has been done.
type RunStatus struct {
	// Started is how many replicas have been started: never more than were missing.
	Started int32
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ProgressOptions are the query parameters of a machine's Stream.
type ProgressOptions struct {
	metav1.TypeMeta

	Follow         bool
	TimeoutSeconds int64
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Site is a cluster-scoped kind without a status.
type Site struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec SiteSpec
}

// SiteSpec is what a site should be.
type SiteSpec struct {
	// Capacity is how many machines can stand there.
	Capacity int32
	// Region is at most four characters long if the validation option ShortRegions is enabled.
	Region string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// SiteList is a list of sites.
type SiteList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Site
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Prototype is a kind that exists in v1alpha1 only.
type Prototype struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec PrototypeSpec
}

// PrototypeSpec is what a prototype should be.
type PrototypeSpec struct {
	Note string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PrototypeList is a list of prototypes.
type PrototypeList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []Prototype
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Estimate is a Review that exists in v1 only: how long some replicas take to start.
type Estimate struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	Spec   EstimateSpec
	Status EstimateStatus
}

// EstimateSpec is what to estimate.
type EstimateSpec struct {
	Replicas int32
}

// EstimateStatus is the answer.
type EstimateStatus struct {
	Minutes int32
}
