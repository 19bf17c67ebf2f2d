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
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/conversion"

	"example.com/bakery/apis/bakery"
)

// Convert_v1alpha1_BreadSpec_To_bakery_BreadSpec makes a list of the map of flours.
func Convert_v1alpha1_BreadSpec_To_bakery_BreadSpec(in *BreadSpec, out *bakery.BreadSpec, s conversion.Scope) error {
	out.Flours = nil
	for _, name := range slices.Sorted(maps.Keys(in.Flours)) {
		out.Flours = append(out.Flours, bakery.Flour{Name: name, Percent: in.Flours[name]})
	}
	return autoConvert_v1alpha1_BreadSpec_To_bakery_BreadSpec(in, out, s)
}

// Convert_bakery_BreadSpec_To_v1alpha1_BreadSpec makes a map of the list of flours.
func Convert_bakery_BreadSpec_To_v1alpha1_BreadSpec(in *bakery.BreadSpec, out *BreadSpec, s conversion.Scope) error {
	out.Flours = nil
	for _, flour := range in.Flours {
		if out.Flours == nil {
			out.Flours = make(map[string]int32, len(in.Flours))
		}
		out.Flours[flour.Name] = flour.Percent
	}
	return autoConvert_bakery_BreadSpec_To_v1alpha1_BreadSpec(in, out, s)
}
