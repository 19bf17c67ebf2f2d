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
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Every way to give a pizza toppings fills in the usual ones, and refuses those that do not exist.
func TestToppingsOfPizzas(t *testing.T) {
	type write = func(s *scope, pizza *unstructured.Unstructured, dryRun []string) (*unstructured.Unstructured, error)
	patched := func(kind types.PatchType, body string) write {
		return func(s *scope, pizza *unstructured.Unstructured, dryRun []string) (*unstructured.Unstructured, error) {
			list, err := json.Marshal(get(pizza, "spec", "toppings"))
			require.NoError(s.t, err)
			version := pizza.GroupVersionKind().Version
			return s.pizzas(version).Patch(s.t.Context(), pizza.GetName(), kind, []byte(strings.ReplaceAll(body, "TOPPINGS", string(list))), metav1.PatchOptions{DryRun: dryRun})
		}
	}
	writes := map[string]write{
		"create": func(s *scope, pizza *unstructured.Unstructured, dryRun []string) (*unstructured.Unstructured, error) {
			return s.pizzas(pizza.GroupVersionKind().Version).Create(s.t.Context(), pizza, metav1.CreateOptions{DryRun: dryRun})
		},
		"update": func(s *scope, pizza *unstructured.Unstructured, dryRun []string) (*unstructured.Unstructured, error) {
			pizzas := s.pizzas(pizza.GroupVersionKind().Version)
			stored, err := pizzas.Get(s.t.Context(), pizza.GetName(), metav1.GetOptions{})
			require.NoError(s.t, err)
			pizza.SetResourceVersion(stored.GetResourceVersion())
			return pizzas.Update(s.t.Context(), pizza, metav1.UpdateOptions{DryRun: dryRun})
		},
		"apply": func(s *scope, pizza *unstructured.Unstructured, dryRun []string) (*unstructured.Unstructured, error) {
			return s.pizzas(pizza.GroupVersionKind().Version).Apply(s.t.Context(), pizza.GetName(), pizza, metav1.ApplyOptions{FieldManager: "cook", DryRun: dryRun})
		},
		"merge-patch": patched(types.MergePatchType, `{"spec":{"toppings":TOPPINGS}}`),
		"json-patch":  patched(types.JSONPatchType, `[{"op":"replace","path":"/spec/toppings","value":TOPPINGS}]`),
		// It replaces the spec, as lists are merged.
		"strategic-merge-patch": patched(types.StrategicMergePatchType, `{"spec":{"$patch":"replace","replicas":1,"toppings":TOPPINGS}}`),
	}
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newScope(t)
			for name, write := range writes {
				t.Run(name, func(t *testing.T) {
					s := &scope{s.Scope, t}
					switch name {
					case "create":
					case "apply": // It removes only what it has applied.
						_, err := write(s, s.pizza(version, name, "basil"), nil)
						require.NoError(t, err)
					default:
						s.createPizza(version, name, "basil")
					}
					before := s.stored("Pizza")

					_, err := write(s, s.pizza(version, name, "tomato", "tar", "glue"), nil)
					status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
					require.Contains(t, status.Message, `spec.toppings[tar]: Not found: "tar", spec.toppings[glue]: Not found: "glue"`)
					require.Equal(t, before, s.stored("Pizza"))

					want := framework.Toppings(version, "mozzarella", "tomato", "salami")
					for _, dryRun := range [][]string{dryRun, nil} {
						written, err := write(s, s.pizza(version, name, []string{}...), dryRun)
						require.NoError(t, err)
						require.Equal(t, want, get(written, "spec", "toppings"))
						if dryRun != nil {
							require.Equal(t, before, s.stored("Pizza"))
						}
					}
					stored, err := s.pizzas(version).Get(t.Context(), s.Name(name), metav1.GetOptions{})
					require.NoError(t, err)
					require.Equal(t, want, get(stored, "spec", "toppings"))
				})
			}
		})
	}
}

// A created topping can be used at once, and is in use from the moment the pizza is stored until
// the pizza is gone.
func TestToppingsOfAMoment(t *testing.T) {
	s := newScope(t)
	for i := range 40 {
		suffix := fmt.Sprint(i)
		version, another := framework.Versions()[i%3], framework.Versions()[(i+1)%3]
		topping := s.createTopping(version, suffix).GetName()
		pizza := s.createPizza(another, suffix, topping).GetName()
		err := s.toppings(version).Delete(t.Context(), topping, metav1.DeleteOptions{})
		framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
		require.NoError(t, s.pizzas(version).Delete(t.Context(), pizza, metav1.DeleteOptions{}))
		require.NoError(t, s.toppings(another).Delete(t.Context(), topping, metav1.DeleteOptions{}))
	}
}

func TestToppingInUse(t *testing.T) {
	s := newScope(t)
	other := s.beside("first") // It comes before s in lists of pizzas.
	topping := s.createTopping("v1", "a").GetName()
	requireInUse := func(want string) {
		t.Helper()
		for _, version := range framework.Versions() {
			for name, try := range map[string]func() error{
				"delete": func() error { return s.toppings(version).Delete(t.Context(), topping, metav1.DeleteOptions{}) },
				"a dry run": func() error {
					return s.toppings(version).Delete(t.Context(), topping, metav1.DeleteOptions{DryRun: dryRun})
				},
				"deletecollection": func() error {
					return s.toppings(version).DeleteCollection(t.Context(), metav1.DeleteOptions{}, s.Objects("Topping", version).All())
				},
			} {
				status := framework.RequireStatus(t, try(), http.StatusForbidden, metav1.StatusReasonForbidden)
				require.Equal(t, fmt.Sprintf("toppings.restaurant.programming-kubernetes.info %q is forbidden: %s", topping, want), status.Message, version+" "+name)
				require.Equal(t, s.Objects("Topping", version).Details(topping), status.Details)
			}
		}
	}
	at := func(s *scope, suffix string) string { return s.Namespace + "/" + s.Name(suffix) }

	s.createPizza("v1", "b", "tomato", topping)
	requireInUse("it is on the pizza " + at(s, "b"))
	other.createPizza("v1", "a", topping)
	requireInUse("it is on 2 pizzas: " + at(other, "a") + ", " + at(s, "b"))
	s.createPizza("v1alpha1", "c", topping, topping)
	other.createPizza("v1beta1", "b", topping)
	requireInUse("it is on 4 pizzas: " + at(other, "a") + ", " + at(other, "b") + ", " + at(s, "b") + " and 1 more")

	// It may be changed, and a pizza may give it up.
	_, err := s.toppings("v1").Patch(t.Context(), topping, types.MergePatchType, []byte(`{"spec":{"cost":"2"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, other.pizzas("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, s.pizzas("v1").Delete(t.Context(), s.Name("c"), metav1.DeleteOptions{}))
	requireInUse("it is on the pizza " + at(s, "b"))
	_, err = s.pizzas("v1").Patch(t.Context(), s.Name("b"), types.MergePatchType, []byte(`{"spec":{"toppings":[{"name":"tomato"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, s.toppings("v1").Delete(t.Context(), topping, metav1.DeleteOptions{}))
}

func TestNamespaceThatDoesNotExist(t *testing.T) {
	s := newScope(t)
	s.Namespace = s.Name("missing")
	for _, options := range []metav1.CreateOptions{{}, {DryRun: dryRun}} {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "a"), options)
		status := framework.RequireStatus(t, err, http.StatusNotFound, metav1.StatusReasonNotFound)
		require.Equal(t, fmt.Sprintf("namespaces %q not found", s.Namespace), status.Message)
	}
	_, err := s.pizzas("v1").Apply(t.Context(), s.Name("a"), s.pizza("v1", "a"), metav1.ApplyOptions{FieldManager: "cook"})
	framework.RequireStatus(t, err, http.StatusNotFound, metav1.StatusReasonNotFound)
}

// Objects in a namespace that is being deleted can be changed until they go, but none can be created.
func TestNamespaceThatIsBeingDeleted(t *testing.T) {
	framework.Long(t, "the controllers of the cluster take their time")
	s := newScope(t)
	s.createPizza("v1", "a")
	patched := func(content string) {
		t.Helper()
		_, err := s.pizzas("v1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(content), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	patched(`{"metadata":{"finalizers":["example.com/guest"]}}`)
	namespaces := framework.Kube(cp).CoreV1().Namespaces()
	require.NoError(t, namespaces.Delete(t.Context(), s.Namespace, metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "b"), metav1.CreateOptions{DryRun: dryRun})
		if err == nil {
			return fmt.Errorf("there is still something new")
		}
		status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
		require.Equal(t, fmt.Sprintf("pizzas.restaurant.programming-kubernetes.info %q is forbidden: unable to create new content in namespace %s because it is being terminated",
			s.Name("b"), s.Namespace), status.Message)
		require.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause))
		return nil
	})
	patched(`{"spec":{"replicas":2}}`)
	patched(`{"metadata":{"finalizers":null}}`)
	controlplane.Eventually(t, func() error {
		_, err := namespaces.Get(t.Context(), s.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the namespace is still there: %w", err)
	})
}
