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

// Package install registers every version of the restaurant's API group.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	restaurantv1alpha1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1alpha1"
	restaurantv1beta1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1beta1"
)

// Install registers the group's internal types and all its versions. It also
// registers their conversions, defaults and validations, and the versions'
// order of preference.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(restaurant.AddToScheme(scheme))
	utilruntime.Must(restaurantv1.AddToScheme(scheme))
	utilruntime.Must(restaurantv1beta1.AddToScheme(scheme))
	utilruntime.Must(restaurantv1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(
		restaurantv1.SchemeGroupVersion, restaurantv1beta1.SchemeGroupVersion, restaurantv1alpha1.SchemeGroupVersion))
}
