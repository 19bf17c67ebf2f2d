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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
)

// TestRoundTrip needs no messages, which the workshop's types don't have.
func TestRoundTrip(t *testing.T) {
	registrytesting.RoundTrip(t, Install, func(serializer.CodecFactory) []any { return nil })
}

func TestMachine(t *testing.T) {
	registrytesting.TestKind(t, Group(), registrytesting.Case[*workshop.Machine]{
		Valid: &workshop.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "drill"},
			Spec:       workshop.MachineSpec{Parts: []workshop.Part{{Name: "motor", Count: 1}}, Replicas: 2},
		},
		Invalid: &workshop.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: "drill"},
			Spec:       workshop.MachineSpec{Dimensions: workshop.Dimensions{Width: 1}},
		},
		Update:  func(m *workshop.Machine) { m.Spec.Replicas++ },
		Corrupt: func(m *workshop.Machine) { m.Spec.Replicas = -1 },
	})
}

func TestSite(t *testing.T) {
	registrytesting.TestKind(t, Group(), registrytesting.Case[*workshop.Site]{
		Valid:   &workshop.Site{ObjectMeta: metav1.ObjectMeta{Name: "hall"}, Spec: workshop.SiteSpec{Capacity: 1}},
		Invalid: &workshop.Site{ObjectMeta: metav1.ObjectMeta{Name: "hall"}},
		Update:  func(s *workshop.Site) { s.Spec.Capacity++ },
		Corrupt: func(s *workshop.Site) { s.Spec.Capacity = 0 },
	})
}
