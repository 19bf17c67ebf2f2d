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

package admission

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A scope is what belongs to one test: its webhooks and policies select objects by its
// label, or its namespace.
type scope struct {
	*framework.Scope

	t *testing.T
}

// newScope makes the namespace of a test, which runs side by side with others.
func newScope(t *testing.T) *scope {
	t.Helper()
	t.Parallel()
	return &scope{framework.NewScope(t, cp), t}
}

// pizzas is a client for the pizzas of the test's namespace in a version.
func (s *scope) pizzas(version string) dynamic.ResourceInterface {
	return s.Objects("Pizza", version).Client()
}

// toppings is a client for toppings in a version.
func (s *scope) toppings(version string) dynamic.ResourceInterface {
	return s.Objects("Topping", version).Client()
}

func resource(version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: restaurant.GroupName, Version: version, Resource: name}
}

// pizza is a valid pizza of the test with one mozzarella.
func (s *scope) pizza(version, suffix string) *unstructured.Unstructured {
	return s.Objects("Pizza", version).With(suffix, map[string]any{"toppings": framework.Toppings(version, "mozzarella"), "replicas": int64(1)})
}

// topping is a valid topping of the test.
func (s *scope) topping(version, suffix string) *unstructured.Unstructured {
	return s.Objects("Topping", version).New(suffix)
}

// createPizza creates a pizza as it is returned by pizza.
func (s *scope) createPizza(version, suffix string) *unstructured.Unstructured {
	s.t.Helper()
	created, err := s.pizzas(version).Create(s.t.Context(), s.pizza(version, suffix), metav1.CreateOptions{})
	require.NoError(s.t, err)
	return created
}

// createTopping creates a topping as it is returned by topping, until the test ends.
func (s *scope) createTopping(version, suffix string) *unstructured.Unstructured {
	s.t.Helper()
	toppings := s.Objects("Topping", version)
	s.Cleanup(func(ctx context.Context) error {
		return toppings.Client().Delete(ctx, s.Name(suffix), metav1.DeleteOptions{})
	})
	return toppings.Create(s.t, suffix)
}
