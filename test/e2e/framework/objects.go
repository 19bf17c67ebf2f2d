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

package framework

import (
	"context"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Label is a label of all objects of a test. Its value is the ID of the test's scope.
const Label = "e2e"

// Versions returns all versions of the API, the oldest first.
func Versions() []string { return []string{"v1alpha1", "v1beta1", "v1"} }

// A Scope has the names, labels and namespace of one test's objects. No other test shares them.
type Scope struct {
	// ID is the value of the label of all its objects, and the prefix of their names.
	ID string
	// Namespace is empty for a test that needs none.
	Namespace string

	t  *testing.T
	cp *controlplane.ControlPlane
}

// NewScope makes a scope with a namespace.
func NewScope(t *testing.T, cp *controlplane.ControlPlane) *Scope {
	t.Helper()
	s := NewClusterScope(t, cp)
	s.Namespace = namespace(t, cp, metav1.ObjectMeta{Name: s.ID, Labels: s.Labels()})
	return s
}

// NewClusterScope makes a scope without a namespace.
func NewClusterScope(t *testing.T, cp *controlplane.ControlPlane) *Scope {
	return &Scope{ID: "e2e-" + rand.String(8), t: t, cp: cp}
}

// Beside makes another scope with a namespace. Its ID begins with the ID of this one.
func (s *Scope) Beside(suffix string) *Scope {
	s.t.Helper()
	beside := &Scope{ID: s.Name(suffix), t: s.t, cp: s.cp}
	beside.Namespace = namespace(s.t, s.cp, metav1.ObjectMeta{Name: beside.ID, Labels: beside.Labels()})
	return beside
}

// Labels returns the labels of all objects of the scope, and of its namespace.
func (s *Scope) Labels() map[string]string { return map[string]string{Label: s.ID} }

// Selector selects the objects of the scope, or its namespace.
func (s *Scope) Selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: s.Labels()}
}

// Name returns a name that no other test has.
func (s *Scope) Name(suffix string) string { return s.ID + "-" + suffix }

// Cleanup calls a function when the test ends. The function may return NotFound.
func (s *Scope) Cleanup(undo func(context.Context) error) {
	s.t.Cleanup(func() {
		if err := undo(context.WithoutCancel(s.t.Context())); !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
		}
	})
}

// Objects returns the scope's objects of a kind in a version.
func (s *Scope) Objects(kind, version string) Objects {
	o := Objects{
		GroupVersionKind: schema.GroupVersionKind{Group: restaurant.GroupName, Version: version, Kind: kind},
		Resource:         strings.ToLower(kind) + "s",
		Scope:            s,
	}
	if kind != "Topping" {
		o.Namespace = s.Namespace
	}
	return o
}

// Objects are the objects of a kind, in a version, that belong to one test.
type Objects struct {
	schema.GroupVersionKind
	*Scope

	// Resource is the kind's name in paths.
	Resource string
	// Namespace is empty for a kind of the whole cluster.
	Namespace string
}

// In returns the same objects in another version.
func (o Objects) In(version string) Objects {
	o.Version = version
	return o
}

// GroupVersionResource returns the resource of the kind.
func (o Objects) GroupVersionResource() schema.GroupVersionResource {
	return o.GroupVersion().WithResource(o.Resource)
}

// Details returns the details of an answer about one of the objects.
func (o Objects) Details(name string) *metav1.StatusDetails {
	return &metav1.StatusDetails{Name: name, Group: o.Group, Kind: o.Resource}
}

// Client returns the administrator's client of the objects.
func (o Objects) Client() dynamic.ResourceInterface { return o.ClientFor(Config(o.cp)) }

// ClientFor returns a client of the objects for another user.
func (o Objects) ClientFor(config *rest.Config) dynamic.ResourceInterface {
	client := dynamic.NewForConfigOrDie(config).Resource(o.GroupVersionResource())
	if o.Namespace == "" {
		return client
	}
	return client.Namespace(o.Namespace)
}

// Path returns the path of the objects.
func (o Objects) Path() string {
	elements := []string{"/apis", o.GroupVersion().String()}
	if o.Namespace != "" {
		elements = append(elements, "namespaces", o.Namespace)
	}
	return path.Join(append(elements, o.Resource)...)
}

// All returns options that select the objects.
func (o Objects) All() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: Label + "=" + o.ID}
}

// New returns a valid object with all defaults.
func (o Objects) New(suffix string) *unstructured.Unstructured {
	spec := map[string]any{"cost": "1"}
	if o.Kind == "Pizza" {
		spec = map[string]any{"toppings": Toppings(o.Version, "mozzarella", "tomato"), "replicas": int64(1)}
	}
	return o.With(suffix, spec)
}

// With returns an object with another spec.
func (o Objects) With(suffix string, spec map[string]any) *unstructured.Unstructured {
	object := Object(o.Version, o.Kind, o.Name(suffix), spec)
	object.SetNamespace(o.Namespace)
	object.SetLabels(o.Labels())
	return object
}

// Create creates an object from New.
func (o Objects) Create(t *testing.T, suffix string) *unstructured.Unstructured {
	t.Helper()
	created, err := o.Client().Create(t.Context(), o.New(suffix), metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// Object returns an object of one of the restaurant's kinds. A nil spec is left out.
func Object(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(restaurant.Kind(kind).WithVersion(version))
	object.SetName(name)
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object
}

// Toppings returns a list of toppings in the form of a version. Its arguments are as in a table:
// "mozzarella×2" are two portions.
func Toppings(version string, toppings ...string) []any {
	list := []any{}
	for _, topping := range toppings {
		name, times, more := strings.Cut(topping, "×")
		quantity := 1
		if more {
			quantity, _ = strconv.Atoi(times)
		}
		if version != "v1alpha1" {
			list = append(list, map[string]any{"name": name, "quantity": int64(quantity)})
			continue
		}
		for range quantity {
			list = append(list, name)
		}
	}
	return list
}
