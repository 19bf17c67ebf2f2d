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

package testing_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
	types "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
)

// A test of all that the storage of a kind has to do.
func ExampleTestKind() {
	_ = func(t *testing.T) {
		registrytesting.TestKind(t, workshop.Group(), registrytesting.Case[*types.Site]{
			Valid:   &types.Site{ObjectMeta: metav1.ObjectMeta{Name: "hall"}, Spec: types.SiteSpec{Capacity: 1}},
			Invalid: &types.Site{ObjectMeta: metav1.ObjectMeta{Name: "hall"}},
			Update:  func(s *types.Site) { s.Spec.Capacity++ },
			Corrupt: func(s *types.Site) { s.Spec.Capacity = 0 },
		})
	}
}
