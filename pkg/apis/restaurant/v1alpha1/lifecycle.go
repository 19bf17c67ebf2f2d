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
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The server adds a Warning header to responses with a deprecated kind.
// prerelease-lifecycle-gen would generate these methods, but with releases of
// Kubernetes, and always with a removal. The server would then stop serving the kind as
// soon as the libraries reach that release.

// deprecated returns the release of this API server that deprecated this version. Users
// know it, and not the release of the Kubernetes libraries. k8s.io/apiserver compares it
// with a release of Kubernetes only if one is linked into the binary, which is not the
// case here.
func deprecated() (major, minor int) {
	return 0, 37
}

// replacement returns the kind that replaces one of this version.
func replacement(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: GroupName, Version: "v1", Kind: kind}
}

// APILifecycleDeprecated returns the release that deprecated the kind.
func (in *Pizza) APILifecycleDeprecated() (major, minor int) {
	return deprecated()
}

// APILifecycleReplacement returns the kind to use instead.
func (in *Pizza) APILifecycleReplacement() schema.GroupVersionKind {
	return replacement("Pizza")
}

// APILifecycleDeprecated returns the release that deprecated the kind.
func (in *PizzaList) APILifecycleDeprecated() (major, minor int) {
	return deprecated()
}

// APILifecycleReplacement returns the kind to use instead.
func (in *PizzaList) APILifecycleReplacement() schema.GroupVersionKind {
	return replacement("PizzaList")
}

// APILifecycleDeprecated returns the release that deprecated the kind.
func (in *Topping) APILifecycleDeprecated() (major, minor int) {
	return deprecated()
}

// APILifecycleReplacement returns the kind to use instead.
func (in *Topping) APILifecycleReplacement() schema.GroupVersionKind {
	return replacement("Topping")
}

// APILifecycleDeprecated returns the release that deprecated the kind.
func (in *ToppingList) APILifecycleDeprecated() (major, minor int) {
	return deprecated()
}

// APILifecycleReplacement returns the kind to use instead.
func (in *ToppingList) APILifecycleReplacement() schema.GroupVersionKind {
	return replacement("ToppingList")
}

// APILifecycleDeprecated returns the release that deprecated the kind.
func (in *Bake) APILifecycleDeprecated() (major, minor int) {
	return deprecated()
}

// APILifecycleReplacement returns the kind to use instead.
func (in *Bake) APILifecycleReplacement() schema.GroupVersionKind {
	return replacement("Bake")
}

// APILifecycleDeprecated returns the release that deprecated the kind.
func (in *PizzaTrackOptions) APILifecycleDeprecated() (major, minor int) {
	return deprecated()
}

// APILifecycleReplacement returns the kind to use instead.
func (in *PizzaTrackOptions) APILifecycleReplacement() schema.GroupVersionKind {
	return replacement("PizzaTrackOptions")
}
