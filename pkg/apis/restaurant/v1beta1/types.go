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

package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of the conditions in a pizza's status.
const (
	// PizzaPriced is True when status.cost is the price of the pizza as it is
	// specified, and False when it cannot be computed. The reason says why.
	PizzaPriced = "Priced"
	// PizzaReady is True when as many pizzas are baked as are asked for.
	PizzaReady = "Ready"
)

// +genclient
// +genclient:method=Bake,verb=create,subresource=bake,input=Bake,result=Bake
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=ApplyScale,verb=apply,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/scale"

// Pizza is a pizza on the menu, and the kitchen keeps a number of it baked.
type Pizza struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is what the pizza should be.
	// +optional
	Spec PizzaSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what is known about the pizza. It is filled in by the server
	// and read-only; it may be out of date by some window of time.
	// +optional
	Status PizzaStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// PizzaSpec is what a pizza should be.
type PizzaSpec struct {
	// toppings lists what is on the pizza, each topping once. The order has no
	// meaning. A pizza has at most 64 different toppings. If it is empty, the
	// server fills in one portion each of mozzarella, tomato and salami.
	// +optional
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=name
	// +k8s:required
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=64
	Toppings []PizzaTopping `json:"toppings,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,1,rep,name=toppings"`

	// replicas is how many of this pizza the kitchen keeps baked, from 0 to
	// 1000. Defaults to 1.
	// +optional
	// +default=1
	// +k8s:optional
	// +k8s:minimum=0
	// +k8s:maximum=1000
	Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,2,opt,name=replicas"`
}

// PizzaTopping is a topping of a pizza.
type PizzaTopping struct {
	// name is the name of a Topping, which must exist.
	// +required
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// quantity is how many portions of the topping are on the pizza, from 1 to
	// 10. Defaults to 1.
	// +optional
	// +default=1
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=10
	Quantity *int32 `json:"quantity,omitempty" protobuf:"varint,2,opt,name=quantity"`
}

// PizzaStatus is what is known about a pizza.
type PizzaStatus struct {
	// replicas is how many of this pizza are baked now.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	Replicas int32 `json:"replicas" protobuf:"varint,1,opt,name=replicas"`

	// cost is the price of one pizza: the sum of each topping's cost times its
	// quantity. It is missing while the price is not known; the condition
	// Priced says why.
	// +optional
	Cost *resource.Quantity `json:"cost,omitempty" protobuf:"bytes,2,opt,name=cost"`

	// selector is the label selector that the scale subresource reports, in
	// the form of a query string.
	// +optional
	Selector string `json:"selector,omitempty" protobuf:"bytes,3,opt,name=selector"`

	// observedGeneration is the metadata.generation that the cost and the
	// conditions are about.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,4,opt,name=observedGeneration"`

	// conditions are the latest observations of the pizza's state. Priced is
	// true when cost is the price of the pizza as it is specified, Ready when
	// as many pizzas are baked as are asked for.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +k8s:eachVal=+k8s:opaqueType
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type" protobuf:"bytes,5,rep,name=conditions"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PizzaList is a list of pizzas.
type PizzaList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of pizzas.
	Items []Pizza `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Bake asks the kitchen to bake some of a pizza. It is created at the pizza's
// subresource of that name, and never stored. The answer is
// a conflict if the pizza is being deleted, or if as many are baked as are wanted.
type Bake struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is what to bake.
	// +optional
	Spec BakeSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`

	// status is what has been done. It is filled in by the server and read-only.
	// +optional
	Status BakeStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// BakeSpec is what to bake.
type BakeSpec struct {
	// count is how many pizzas to bake, from 1 to 1000. Never more are baked
	// than are missing. Defaults to 1.
	// +optional
	// +default=1
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=1000
	Count *int32 `json:"count,omitempty" protobuf:"varint,1,opt,name=count"`
}

// BakeStatus is what has been done.
type BakeStatus struct {
	// baked is how many pizzas have been baked: fewer than were asked for if
	// not as many were missing.
	// +optional
	Baked int32 `json:"baked" protobuf:"varint,1,opt,name=baked"`
}

// +k8s:conversion-gen:explicit-from=net/url.Values
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PizzaTrackOptions are the query parameters of a pizza's subresource track,
// which answers with the progress of the pizza in lines of plain text.
type PizzaTrackOptions struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`

	// follow asks for a line whenever there is progress, until the pizza is
	// ready or deleted. Without it, one line says what is so now.
	// +optional
	Follow bool `json:"follow,omitempty" protobuf:"varint,1,opt,name=follow"`

	// timeoutSeconds is how long to follow the pizza, from 1 to 3600. Defaults
	// to 50: kube-apiserver breaks off what takes longer than its own request
	// timeout, which is 60 seconds unless its operator has chosen otherwise.
	// +optional
	// +default=50
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=3600
	TimeoutSeconds *int64 `json:"timeoutSeconds,omitempty" protobuf:"varint,2,opt,name=timeoutSeconds"`
}

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Topping is a topping that pizzas can have, with its price.
type Topping struct {
	// +k8s:opaqueType
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata
	// +optional
	// +k8s:opaqueType
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// spec is what the topping should be.
	// +optional
	Spec ToppingSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
}

// ToppingSpec is what a topping should be.
type ToppingSpec struct {
	// cost is the price of one portion of the topping, from 0 to 1000000000.
	// Amounts such as 1.50 or 800m are allowed, down to a billionth.
	// +required
	// +k8s:required
	Cost *resource.Quantity `json:"cost,omitempty" protobuf:"bytes,1,opt,name=cost"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ToppingList is a list of toppings.
type ToppingList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// items is the list of toppings.
	Items []Topping `json:"items" protobuf:"bytes,2,rep,name=items"`
}
