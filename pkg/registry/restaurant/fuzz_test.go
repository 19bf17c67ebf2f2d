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

package restaurant

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
)

// FuzzGroup looks for bodies that cause a fault of the server in decoding, defaulting,
// conversion, validation or an Action. It tries all kinds in all versions.
func FuzzGroup(f *testing.F) {
	registrytesting.Fuzz(f, group(), margherita(), &restaurant.Topping{
		ObjectMeta: metav1.ObjectMeta{Name: "tomato"},
		Spec:       restaurant.ToppingSpec{Cost: new(resource.MustParse("1.5"))},
	})
}
