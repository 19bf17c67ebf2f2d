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
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
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

// pizzaWith is a pizza with these toppings, and else as it is returned by pizza.
func (s *scope) pizzaWith(version, suffix string, toppings ...string) *unstructured.Unstructured {
	pizza := s.pizza(version, suffix)
	pizza.Object["spec"].(map[string]any)["toppings"] = framework.Toppings(version, toppings...)
	return pizza
}

// createPizzaWith creates a pizza as it is returned by pizzaWith.
func (s *scope) createPizzaWith(t *testing.T, version, suffix string, toppings ...string) *unstructured.Unstructured {
	t.Helper()
	created, err := s.pizzas(version).Create(t.Context(), s.pizzaWith(version, suffix, toppings...), metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// toppingNames are the names of the toppings of a pizza in any version.
func toppingNames(pizza *unstructured.Unstructured) []string {
	var names []string
	list, _, _ := unstructured.NestedSlice(pizza.Object, "spec", "toppings")
	for _, topping := range list {
		if name, ok := topping.(string); ok {
			names = append(names, name)
		} else {
			names = append(names, topping.(map[string]any)["name"].(string))
		}
	}
	return names
}

// A write is a way to give a pizza toppings. All but the creation begin with a pizza
// with basil.
type write func(t *testing.T, s *scope, version, suffix string, dryRun []string, toppings ...string) (*unstructured.Unstructured, error)

// patchWrite is a patch whose body is made of the list of toppings.
func patchWrite(kind types.PatchType, body string) write {
	return func(t *testing.T, s *scope, version, suffix string, dryRun []string, toppings ...string) (*unstructured.Unstructured, error) {
		t.Helper()
		s.createPizzaWith(t, version, suffix, "basil")
		list, err := json.Marshal(framework.Toppings(version, toppings...))
		require.NoError(t, err)
		return s.pizzas(version).Patch(t.Context(), s.Name(suffix), kind, []byte(strings.ReplaceAll(body, "TOPPINGS", string(list))), metav1.PatchOptions{DryRun: dryRun})
	}
}

// writes are all ways to give a pizza toppings.
var writes = map[string]write{
	"create": func(t *testing.T, s *scope, version, suffix string, dryRun []string, toppings ...string) (*unstructured.Unstructured, error) {
		return s.pizzas(version).Create(t.Context(), s.pizzaWith(version, suffix, toppings...), metav1.CreateOptions{DryRun: dryRun})
	},
	"update": func(t *testing.T, s *scope, version, suffix string, dryRun []string, toppings ...string) (*unstructured.Unstructured, error) {
		pizza := s.createPizzaWith(t, version, suffix, "basil")
		pizza.Object["spec"].(map[string]any)["toppings"] = framework.Toppings(version, toppings...)
		return s.pizzas(version).Update(t.Context(), pizza, metav1.UpdateOptions{DryRun: dryRun})
	},
	"apply": func(t *testing.T, s *scope, version, suffix string, dryRun []string, toppings ...string) (*unstructured.Unstructured, error) {
		_, err := s.pizzas(version).Apply(t.Context(), s.Name(suffix), s.pizzaWith(version, suffix, "basil"), metav1.ApplyOptions{FieldManager: "cook"})
		require.NoError(t, err)
		return s.pizzas(version).Apply(t.Context(), s.Name(suffix), s.pizzaWith(version, suffix, toppings...), metav1.ApplyOptions{FieldManager: "cook", DryRun: dryRun})
	},
	"merge patch": patchWrite(types.MergePatchType, `{"spec":{"toppings":TOPPINGS}}`),
	"JSON patch":  patchWrite(types.JSONPatchType, `[{"op":"replace","path":"/spec/toppings","value":TOPPINGS}]`),
	"strategic merge patch": patchWrite(types.StrategicMergePatchType,
		// It replaces the spec, as lists are merged.
		`{"spec":{"$patch":"replace","replicas":1,"toppings":TOPPINGS}}`),
}

// forEachWrite runs a test for each way to write a pizza in each version, as a dry
// run and in earnest.
func forEachWrite(t *testing.T, test func(t *testing.T, s *scope, version, suffix string, write func(toppings ...string) (*unstructured.Unstructured, error), dry bool)) {
	t.Helper()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newScope(t)
			for _, name := range slices.Sorted(maps.Keys(writes)) {
				for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
					suffix := slug(strings.ToLower(name))
					if dryRun != nil {
						name, suffix = name+", dry run", suffix+"-dry"
					}
					t.Run(name, func(t *testing.T) {
						way := strings.TrimSuffix(name, ", dry run")
						test(t, s, version, suffix, func(toppings ...string) (*unstructured.Unstructured, error) {
							return writes[way](t, s, version, suffix, dryRun, toppings...)
						}, dryRun != nil)
					})
				}
			}
		})
	}
}

// requireStored requires a pizza to have these toppings after a write. After a dry run, it
// requires what the pizza had before: basil, or nothing if it did not exist.
func (s *scope) requireStored(t *testing.T, version, suffix string, dry bool, want ...string) {
	t.Helper()
	stored, err := s.pizzas(version).Get(t.Context(), s.Name(suffix), metav1.GetOptions{})
	if dry && suffix == "create-dry" {
		require.True(t, apierrors.IsNotFound(err), "A dry run has created it: %v", err)
		return
	}
	require.NoError(t, err)
	if dry {
		want = []string{"basil"}
	}
	require.Equal(t, want, toppingNames(stored))
}

func TestEmptyToppingsAreFilled(t *testing.T) {
	forEachWrite(t, func(t *testing.T, s *scope, version, suffix string, write func(...string) (*unstructured.Unstructured, error), dry bool) {
		written, err := write()
		require.NoError(t, err)
		require.Equal(t, framework.Toppings(version, "mozzarella", "tomato", "salami"), written.Object["spec"].(map[string]any)["toppings"])
		s.requireStored(t, version, suffix, dry, "mozzarella", "tomato", "salami")
	})
}

func TestKnownToppings(t *testing.T) {
	forEachWrite(t, func(t *testing.T, s *scope, version, suffix string, write func(...string) (*unstructured.Unstructured, error), dry bool) {
		_, err := write("tomato", "basil")
		require.NoError(t, err)
		s.requireStored(t, version, suffix, dry, "tomato", "basil")
	})
}

func TestUnknownToppings(t *testing.T) {
	forEachWrite(t, func(t *testing.T, s *scope, version, suffix string, write func(...string) (*unstructured.Unstructured, error), _ bool) {
		_, err := write("tomato", "tar", "glue")
		status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		require.ElementsMatch(t, []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueNotFound, Field: "spec.toppings[tar]", Message: `Not found: "tar"`},
			{Type: metav1.CauseTypeFieldValueNotFound, Field: "spec.toppings[glue]", Message: `Not found: "glue"`},
		}, status.Details.Causes)
		require.Equal(t, fmt.Sprintf(`Pizza.restaurant.programming-kubernetes.info %q is invalid: `+
			`[spec.toppings[tar]: Not found: "tar", spec.toppings[glue]: Not found: "glue"]`, s.Name(suffix)), status.Message)

		if strings.HasPrefix(suffix, "create") {
			_, err := s.pizzas(version).Get(t.Context(), s.Name(suffix), metav1.GetOptions{})
			require.True(t, apierrors.IsNotFound(err), "A refused pizza was created: %v", err)
			return
		}
		s.requireStored(t, version, suffix, false, "basil")
	})
}

// A topping that is about to go is not put on more pizzas.
func TestToppingThatIsBeingDeleted(t *testing.T) {
	s := newScope(t)
	const finalizer = "example.com/chef"
	topping := s.topping("v1", "old")
	topping.SetFinalizers([]string{finalizer})
	_, err := s.toppings("v1").Create(t.Context(), topping, metav1.CreateOptions{})
	require.NoError(t, err)
	s.Cleanup(func(ctx context.Context) error {
		_, err := s.toppings("v1").Patch(ctx, topping.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	})
	s.createPizzaWith(t, "v1", "before", "tomato")
	require.NoError(t, s.toppings("v1").Delete(t.Context(), topping.GetName(), metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizzaWith("v1", "after", topping.GetName()), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			err = fmt.Errorf("it is still put on pizzas")
		} else if status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid); status.Details.Causes[0].Message == fmt.Sprintf("Invalid value: %q: is being deleted", topping.GetName()) {
			return nil
		}
		return err
	})
}

// Status and scale put no toppings on a pizza, and their writers need not care.
func TestToppingsAndSubresources(t *testing.T) {
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newScope(t)
			s.createPizza(version, "a")
			for subresource, patch := range map[string]string{
				"status": `{"spec":{"toppings":[]},"status":{"replicas":1}}`,
				"scale":  `{"spec":{"replicas":3}}`,
			} {
				_, err := s.pizzas(version).Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource)
				require.NoError(t, err, subresource)
			}
			// An update of the status with a spec that would be refused elsewhere.
			unknown, err := s.pizzas(version).Get(t.Context(), s.Name("a"), metav1.GetOptions{})
			require.NoError(t, err)
			unknown.Object["spec"].(map[string]any)["toppings"] = framework.Toppings(version, "tar")
			unknown.Object["status"] = map[string]any{"replicas": int64(2)}
			_, err = s.pizzas(version).UpdateStatus(t.Context(), unknown, metav1.UpdateOptions{})
			require.NoError(t, err)

			stored, err := s.pizzas(version).Get(t.Context(), s.Name("a"), metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, map[string]any{"toppings": framework.Toppings(version, "mozzarella"), "replicas": int64(3)}, stored.Object["spec"])
			require.Equal(t, int64(2), stored.Object["status"].(map[string]any)["replicas"])
		})
	}
}

// A created topping can be used at once.
func TestToppingThenPizza(t *testing.T) {
	framework.Long(t, "200 toppings and pizzas")
	s := newScope(t)
	for i := range 200 {
		suffix := fmt.Sprintf("fresh-%d", i)
		s.createTopping(framework.Versions()[i%len(framework.Versions())], suffix)
		version := framework.Versions()[(i+1)%len(framework.Versions())]
		_, err := s.pizzas(version).Create(t.Context(), s.pizzaWith(version, suffix, s.Name(suffix)), metav1.CreateOptions{})
		require.NoError(t, err, "pizza %d", i)
	}
	// The toppings can go when the pizzas have gone.
	require.NoError(t, s.pizzas("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

func TestToppingInUse(t *testing.T) {
	s := newScope(t)
	other := newScopeBeside(t, s, "first")
	topping := s.createTopping("v1", "a").GetName()
	forbidden := fmt.Sprintf("toppings.restaurant.programming-kubernetes.info %q is forbidden: ", topping)
	requireInUse := func(want string) {
		t.Helper()
		for _, version := range framework.Versions() {
			for name, options := range map[string]metav1.DeleteOptions{
				"":            {},
				", dry run":   {DryRun: []string{metav1.DryRunAll}},
				", orphaning": {PropagationPolicy: new(metav1.DeletePropagationOrphan)},
			} {
				err := s.toppings(version).Delete(t.Context(), topping, options)
				status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
				require.Equal(t, forbidden+want, status.Message, version+name)
				require.Equal(t, &metav1.StatusDetails{Name: topping, Group: "restaurant.programming-kubernetes.info", Kind: "toppings"}, status.Details)
			}
		}
	}
	at := func(s *scope, suffix string) string { return s.Namespace + "/" + s.Name(suffix) }

	s.createPizzaWith(t, "v1", "b", "tomato", topping)
	requireInUse("it is on the pizza " + at(s, "b"))
	s.createPizzaWith(t, "v1beta1", "a", topping)
	requireInUse("it is on 2 pizzas: " + at(s, "a") + ", " + at(s, "b"))
	other.createPizzaWith(t, "v1", "a", topping)
	requireInUse("it is on 3 pizzas: " + at(other, "a") + ", " + at(s, "a") + ", " + at(s, "b"))
	s.createPizzaWith(t, "v1alpha1", "c", topping, topping)
	requireInUse("it is on 4 pizzas: " + at(other, "a") + ", " + at(s, "a") + ", " + at(s, "b") + " and 1 more")
	other.createPizzaWith(t, "v1", "b", topping)
	requireInUse("it is on 5 pizzas: " + at(other, "a") + ", " + at(other, "b") + ", " + at(s, "a") + " and 2 more")

	// It stays when a collection is deleted.
	err := s.toppings("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(s.Selector())})
	status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
	require.Contains(t, status.Message, forbidden+"it is on 5 pizzas: ")
	_, err = s.toppings("v1").Get(t.Context(), topping, metav1.GetOptions{})
	require.NoError(t, err)

	// It may be changed, and a pizza may give it up.
	_, err = s.toppings("v1").Patch(t.Context(), topping, types.MergePatchType, []byte(`{"spec":{"cost":"2"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	for _, s := range []*scope{s, other} {
		require.NoError(t, s.pizzas("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name!=" + s.Name("b")}))
	}
	requireInUse("it is on 2 pizzas: " + at(other, "b") + ", " + at(s, "b"))
	require.NoError(t, other.pizzas("v1").Delete(t.Context(), other.Name("b"), metav1.DeleteOptions{}))
	_, err = s.pizzas("v1").Patch(t.Context(), s.Name("b"), types.MergePatchType, []byte(`{"spec":{"toppings":[{"name":"tomato"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, s.toppings("v1").Delete(t.Context(), topping, metav1.DeleteOptions{}))
}

// newScopeBeside is another namespace of the test, which comes before the first in lists of pizzas.
func newScopeBeside(t *testing.T, s *scope, suffix string) *scope {
	t.Helper()
	return &scope{s.Beside(suffix), t}
}

// The toppings of a pizza are in use from the moment it is stored until it is gone.
func TestToppingInUseForAMoment(t *testing.T) {
	framework.Long(t, "50 toppings and pizzas")
	s := newScope(t)
	for i := range 50 {
		topping := s.createTopping("v1", fmt.Sprintf("topping-%d", i)).GetName()
		pizza := s.createPizzaWith(t, "v1", fmt.Sprintf("pizza-%d", i), topping).GetName()
		err := s.toppings("v1").Delete(t.Context(), topping, metav1.DeleteOptions{})
		framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
		require.NoError(t, s.pizzas("v1").Delete(t.Context(), pizza, metav1.DeleteOptions{}))
		require.NoError(t, s.toppings("v1").Delete(t.Context(), topping, metav1.DeleteOptions{}))
	}
}

func TestNamespaceThatDoesNotExist(t *testing.T) {
	s := newScope(t)
	s.Namespace = s.Name("missing")
	for _, version := range framework.Versions() {
		for _, options := range []metav1.CreateOptions{{}, {DryRun: []string{metav1.DryRunAll}}} {
			_, err := s.pizzas(version).Create(t.Context(), s.pizza(version, "a"), options)
			status := framework.RequireStatus(t, err, http.StatusNotFound, metav1.StatusReasonNotFound)
			require.Equal(t, fmt.Sprintf("namespaces %q not found", s.Namespace), status.Message)
		}
		_, err := s.pizzas(version).Apply(t.Context(), s.Name("a"), s.pizza(version, "a"), metav1.ApplyOptions{FieldManager: "cook"})
		framework.RequireStatus(t, err, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// A created namespace can be used at once.
func TestNamespaceThenPizza(t *testing.T) {
	s := newScope(t)
	for i := range 50 {
		beside := newScopeBeside(t, s, fmt.Sprint(i))
		_, err := beside.pizzas("v1").Create(t.Context(), beside.pizza("v1", "a"), metav1.CreateOptions{})
		require.NoError(t, err, "namespace %d", i)
	}
}

// Objects in a namespace that is being deleted can be changed until they go, but
// none can be created.
func TestNamespaceThatIsBeingDeleted(t *testing.T) {
	framework.Long(t, "the controllers of the cluster take their time")
	s := newScope(t)
	beside := newScopeBeside(t, s, "old")
	pizza := beside.pizza("v1", "a")
	pizza.SetFinalizers([]string{"example.com/guest"})
	_, err := beside.pizzas("v1").Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)
	namespaces := framework.Kube(cp).CoreV1().Namespaces()
	require.NoError(t, namespaces.Delete(t.Context(), beside.Namespace, metav1.DeleteOptions{}))
	for _, version := range framework.Versions() {
		controlplane.Eventually(t, func() error {
			_, err := beside.pizzas(version).Create(t.Context(), beside.pizza(version, "b"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				return fmt.Errorf("there is still something new")
			}
			status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
			require.Equal(t, fmt.Sprintf("pizzas.restaurant.programming-kubernetes.info %q is forbidden: unable to create new content in namespace %s because it is being terminated",
				beside.Name("b"), beside.Namespace), status.Message)
			require.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause))
			return nil
		})
	}
	_, err = beside.pizzas("v1").Patch(t.Context(), beside.Name("a"), types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = beside.pizzas("v1").Patch(t.Context(), beside.Name("a"), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		_, err := namespaces.Get(t.Context(), beside.Namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the namespace is still there: %w", err)
	})
}
