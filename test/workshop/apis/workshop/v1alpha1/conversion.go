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
	"k8s.io/apimachinery/pkg/conversion"

	"restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
)

// Convert_v1alpha1_MachineSpec_To_workshop_MachineSpec puts width and height together.
func Convert_v1alpha1_MachineSpec_To_workshop_MachineSpec(in *MachineSpec, out *workshop.MachineSpec, s conversion.Scope) error {
	out.Dimensions = workshop.Dimensions{Width: in.Width, Height: in.Height}
	return autoConvert_v1alpha1_MachineSpec_To_workshop_MachineSpec(in, out, s)
}

// Convert_workshop_MachineSpec_To_v1alpha1_MachineSpec takes width and height apart.
func Convert_workshop_MachineSpec_To_v1alpha1_MachineSpec(in *workshop.MachineSpec, out *MachineSpec, s conversion.Scope) error {
	out.Width, out.Height = in.Dimensions.Width, in.Dimensions.Height
	return autoConvert_workshop_MachineSpec_To_v1alpha1_MachineSpec(in, out, s)
}
