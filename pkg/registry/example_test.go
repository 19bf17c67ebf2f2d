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

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
	workshopv1 "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/generated/openapi"
)

// A Group has the kinds of one package of types, in all of its versions.
func ExampleGroup() {
	_ = registry.Group{
		Name: workshop.GroupName,
		Install: func(scheme *runtime.Scheme) {
			_ = workshop.AddToScheme(scheme) // The internal types.
			_ = workshopv1.AddToScheme(scheme)
			_ = scheme.SetVersionPriority(workshopv1.SchemeGroupVersion)
		},
		OpenAPI: openapi.GetOpenAPIDefinitions,
		Kinds:   []registry.Declaration{ /* a Kind, a Review, … */ },
	}
}

// A Kind is stored in etcd. Its functions get and return internal objects.
func ExampleKind() {
	_ = registry.Kind[*workshop.Machine]{
		New:        func() *workshop.Machine { return &workshop.Machine{} },
		NewList:    func() runtime.Object { return &workshop.MachineList{} },
		Resource:   "machines",
		Singular:   "machine",
		Namespaced: true,
		Columns:    []registry.Column[*workshop.Machine]{registry.NameColumn[*workshop.Machine](), registry.AgeColumn[*workshop.Machine]()},
		// Changes of the spec increase the generation.
		Spec: func(m *workshop.Machine) any { return m.Spec },
		// Both together make /status.
		KeepStatus: func(to, from *workshop.Machine) { to.Status = from.Status },
		KeepSpec:   func(to, from *workshop.Machine) { to.Spec = from.Spec },
	}
}

// An Action changes an object, and returns the result.
func ExampleAction() {
	kind := registry.Kind[*workshop.Machine]{Resource: "machines"} // And so on.
	kind.Subresources = map[string]registry.Subresource[*workshop.Machine]{
		"run": registry.Action[*workshop.Machine, *workshop.Run]{
			New: func() *workshop.Run { return &workshop.Run{} },
			Do: func(m *workshop.Machine, run *workshop.Run) error {
				if m.Status.Replicas+run.Spec.Count > m.Spec.Replicas {
					return errors.New("that is more than should run") // The answer is Conflict.
				}
				m.Status.Replicas += run.Spec.Count
				run.Status.Started = run.Spec.Count
				return nil
			},
		},
	}
}

// A Stream reports the changes of an object in lines.
func ExampleStream() {
	kind := registry.Kind[*workshop.Machine]{Resource: "machines"} // And so on.
	kind.Subresources = map[string]registry.Subresource[*workshop.Machine]{
		"progress": registry.Stream[*workshop.Machine, *workshop.ProgressOptions]{
			NewOptions: func() *workshop.ProgressOptions { return &workshop.ProgressOptions{} },
			Follow: func(options *workshop.ProgressOptions) time.Duration {
				return time.Duration(options.TimeoutSeconds) * time.Second
			},
			Line: func(m *workshop.Machine) (line string, last bool) {
				return fmt.Sprintf("%d of %d run", m.Status.Replicas, m.Spec.Replicas), m.Status.Replicas == m.Spec.Replicas
			},
		},
	}
}

// A Review is answered and forgotten.
func ExampleReview() {
	_ = registry.Review[*workshop.Estimate]{
		New:      func() *workshop.Estimate { return &workshop.Estimate{} },
		Resource: "estimates",
		Singular: "estimate",
		Answer: func(_ context.Context, e *workshop.Estimate) error {
			e.Status.Minutes = 3 * e.Spec.Replicas
			return nil
		},
	}
}
