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

// Package workshop declares workshop.example.com, an API group that exists for tests
// of packages that serve any group. It has two versions, and a small one of each
// thing that can be declared:
//
//   - Machine, namespaced, with /status, /scale, field selectors, an Action (/run) and a
//     Stream (/progress); its size is in other fields in v1alpha1 than in v1
//   - Site, for the whole cluster, with nothing that a kind can do without
//   - Prototype, which exists in v1alpha1 only
//   - Estimate, a Review, which exists in v1 only
package workshop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
	workshopv1 "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop/v1"
	workshopv1alpha1 "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop/v1alpha1"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/generated/openapi"
)

// MinutesPerReplica is what an Estimate is computed with.
const MinutesPerReplica = 3

// Group returns the declaration of workshop.example.com.
func Group() registry.Group {
	return registry.Group{
		Name:    workshop.GroupName,
		Install: Install,
		OpenAPI: openapi.GetOpenAPIDefinitions,
		Kinds:   []registry.Declaration{Machine(), Site(), Prototype(), Estimate()},
	}
}

// Install registers the types of all versions. v1 is preferred.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(workshop.AddToScheme(scheme))
	utilruntime.Must(workshopv1.AddToScheme(scheme))
	utilruntime.Must(workshopv1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(workshopv1.SchemeGroupVersion, workshopv1alpha1.SchemeGroupVersion))
}

// Machine declares a kind with all that a kind can have.
func Machine() registry.Kind[*workshop.Machine] {
	return registry.Kind[*workshop.Machine]{
		New:        func() *workshop.Machine { return &workshop.Machine{} },
		NewList:    func() runtime.Object { return &workshop.MachineList{} },
		Resource:   "machines",
		Singular:   "machine",
		Namespaced: true,
		ShortNames: []string{"mc"},
		Categories: []string{"all"},

		Columns: []registry.Column[*workshop.Machine]{
			registry.NameColumn[*workshop.Machine](),
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Replicas", Type: "string", Description: "How many run, of how many that should."},
				Cell: func(m *workshop.Machine) any { return fmt.Sprintf("%d/%d", m.Status.Replicas, m.Spec.Replicas) }},
			registry.AgeColumn[*workshop.Machine](),
			{TableColumnDefinition: metav1.TableColumnDefinition{Name: "Parts", Type: "integer", Priority: 1, Description: "How many kinds of parts it has."},
				Cell: func(m *workshop.Machine) any { return int64(len(m.Spec.Parts)) }},
		},
		Fields: map[string]func(*workshop.Machine) string{
			"spec.site":       func(m *workshop.Machine) string { return m.Spec.Site },
			"status.replicas": func(m *workshop.Machine) string { return strconv.Itoa(int(m.Status.Replicas)) },
		},

		Spec:       func(m *workshop.Machine) any { return m.Spec },
		KeepStatus: func(to, from *workshop.Machine) { to.Status = from.Status },
		KeepSpec:   func(to, from *workshop.Machine) { to.Spec = from.Spec },
		Validate:   validateMachine,
		Scale: &registry.Scale[*workshop.Machine]{
			Replicas:       func(m *workshop.Machine) *int32 { return &m.Spec.Replicas },
			StatusReplicas: func(m *workshop.Machine) int32 { return m.Status.Replicas },
			Selector:       func(m *workshop.Machine) string { return m.Status.Selector },
		},
		Subresources: map[string]registry.Subresource[*workshop.Machine]{
			"run":      Run(),
			"progress": Progress(),
		},
	}
}

func validateMachine(_ context.Context, m, old *workshop.Machine) field.ErrorList {
	var errs field.ErrorList
	if size := m.Spec.Dimensions; (size.Width == 0) != (size.Height == 0) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "dimensions"), fmt.Sprintf("%d×%d", size.Width, size.Height), "must have both a width and a height, or neither"))
	}
	if old != nil && m.Spec.Site != old.Spec.Site {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "site"), "can't be changed"))
	}
	return errs
}

// Run declares the Action that starts replicas of a machine which are missing.
func Run() registry.Action[*workshop.Machine, *workshop.Run] {
	return registry.Action[*workshop.Machine, *workshop.Run]{
		New: func() *workshop.Run { return &workshop.Run{} },
		Do: func(m *workshop.Machine, run *workshop.Run) error {
			missing := m.Spec.Replicas - m.Status.Replicas
			if missing <= 0 {
				return errors.New("all replicas run already")
			}
			run.Status.Started = min(run.Spec.Count, missing)
			m.Status.Replicas += run.Status.Started
			return nil
		},
	}
}

// Progress declares the Stream that says how many replicas of a machine run.
func Progress() registry.Stream[*workshop.Machine, *workshop.ProgressOptions] {
	return registry.Stream[*workshop.Machine, *workshop.ProgressOptions]{
		NewOptions: func() *workshop.ProgressOptions {
			return &workshop.ProgressOptions{TimeoutSeconds: workshop.DefaultProgressSeconds}
		},
		Follow: func(options *workshop.ProgressOptions) time.Duration {
			if !options.Follow {
				return 0
			}
			return time.Duration(options.TimeoutSeconds) * time.Second
		},
		Line: func(m *workshop.Machine) (line string, last bool) {
			return fmt.Sprintf("%d of %d run", m.Status.Replicas, m.Spec.Replicas), m.Status.Replicas >= m.Spec.Replicas
		},
	}
}

// Site declares a kind with nothing that a kind can do without.
func Site() registry.Kind[*workshop.Site] {
	return registry.Kind[*workshop.Site]{
		New:      func() *workshop.Site { return &workshop.Site{} },
		NewList:  func() runtime.Object { return &workshop.SiteList{} },
		Resource: "sites",
		Singular: "site",
		Columns:  []registry.Column[*workshop.Site]{registry.NameColumn[*workshop.Site](), registry.AgeColumn[*workshop.Site]()},
		Spec:     func(s *workshop.Site) any { return s.Spec },
		ValidationOptions: func(context.Context, *workshop.Site, *workshop.Site) map[string]bool {
			return map[string]bool{"ShortRegions": false}
		},
	}
}

// Prototype declares a kind that exists in v1alpha1 only.
func Prototype() registry.Kind[*workshop.Prototype] {
	return registry.Kind[*workshop.Prototype]{
		New:        func() *workshop.Prototype { return &workshop.Prototype{} },
		NewList:    func() runtime.Object { return &workshop.PrototypeList{} },
		Resource:   "prototypes",
		Singular:   "prototype",
		Namespaced: true,
		Columns:    []registry.Column[*workshop.Prototype]{registry.NameColumn[*workshop.Prototype](), registry.AgeColumn[*workshop.Prototype]()},
		Spec:       func(p *workshop.Prototype) any { return p.Spec },
	}
}

// Estimate declares a Review, which exists in v1 only.
func Estimate() registry.Review[*workshop.Estimate] {
	return registry.Review[*workshop.Estimate]{
		New:      func() *workshop.Estimate { return &workshop.Estimate{} },
		Resource: "estimates",
		Singular: "estimate",
		Answer: func(_ context.Context, e *workshop.Estimate) error {
			e.Status.Minutes = MinutesPerReplica * e.Spec.Replicas
			return nil
		},
	}
}
