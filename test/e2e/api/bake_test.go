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

package api

import (
	"fmt"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// dry is how a client says that nothing may be persisted.
var dry = []string{metav1.DryRunAll}

// newOrder asks for this number of pizzas in this version.
func (s subject) newOrder(count int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": s.GroupVersion().String(), "kind": "Bake",
		"spec": map[string]any{"count": int64(count)},
	}}
}

// bake sends an order for the pizza "a".
func (s subject) bake(t *testing.T, config *rest.Config, count int, options metav1.CreateOptions) (*unstructured.Unstructured, error) {
	t.Helper()
	order := s.newOrder(count)
	order.SetName(s.Name("a")) // The dynamic client takes the path from it.
	return dynamic.NewForConfigOrDie(config).Resource(s.GroupVersionResource()).Namespace(s.Namespace).
		Create(t.Context(), order, options, "bake")
}

// wanting creates the pizza "a" with this number of replicas.
func (s subject) wanting(t *testing.T, replicas int, finalizers ...string) *unstructured.Unstructured {
	t.Helper()
	object := s.New("a")
	object.SetFinalizers(finalizers)
	require.NoError(t, unstructured.SetNestedField(object.Object, int64(replicas), "spec", "replicas"))
	created, err := s.Client().Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

func TestBake(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, "Pizza", version)
			before := s.wanting(t, 5)
			for i, want := range []struct{ count, baked, total int64 }{{2, 2, 2}, {1, 1, 3}, {7, 2, 5}} {
				tried, err := s.bake(t, framework.Config(cp), int(want.count), metav1.CreateOptions{DryRun: dry})
				require.NoError(t, err)
				stored := s.stored(t)
				answer, err := s.bake(t, framework.Config(cp), int(want.count), metav1.CreateOptions{})
				require.NoError(t, err)
				require.NotEqual(t, stored, s.stored(t))
				require.Equal(t, answer, tried, "A dry run is answered in the same way.")
				require.Equal(t, map[string]any{
					"apiVersion": s.GroupVersion().String(), "kind": "Bake",
					"metadata": map[string]any{"name": s.Name("a"), "namespace": s.Namespace},
					"spec":     map[string]any{"count": want.count},
					"status":   map[string]any{"baked": want.baked},
				}, answer.Object, i)
				after, err := s.Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{})
				require.NoError(t, err)
				expected := before.DeepCopy()
				expected.SetResourceVersion(after.GetResourceVersion())
				require.NoError(t, unstructured.SetNestedField(expected.Object, want.total, "status", "replicas"))
				require.Equal(t, expected.Object, after.Object, "A bake changes the number of baked pizzas, and nothing else.")
			}

			stored := s.stored(t)
			for _, options := range []metav1.CreateOptions{{}, {DryRun: dry}} {
				_, err := s.bake(t, framework.Config(cp), 1, options)
				status := framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
				require.Equal(t, fmt.Sprintf("Operation cannot be fulfilled on pizzas/bake.%s %q: 5 of 5 pizzas are baked already", s.Group, s.Name("a")), status.Message)
				require.Equal(t, &metav1.StatusDetails{Name: s.Name("a"), Group: s.Group, Kind: "pizzas/bake"}, status.Details)
			}
			require.Equal(t, stored, s.stored(t))

			// Nothing is wrong with the order: it succeeds when there is work again.
			_, err := s.patch(t, "a", types.MergePatchType, `{"spec":{"replicas":6}}`)
			require.NoError(t, err)
			answer, err := s.bake(t, framework.Config(cp), 3, metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, map[string]any{"baked": int64(1)}, answer.Object["status"])
		})
	}
}

func TestBakeOfPizzaThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	s.wanting(t, 5, "example.com/e2e")
	require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
	stored := s.stored(t)
	_, err := s.bake(t, framework.Config(cp), 1, metav1.CreateOptions{})
	status := framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
	require.Equal(t, fmt.Sprintf("Operation cannot be fulfilled on pizzas/bake.%s %q: it is being deleted", s.Group, s.Name("a")), status.Message)
	require.Equal(t, stored, s.stored(t))
	_, err = s.patch(t, "a", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
	require.NoError(t, err)
}

// The generated clients speak protobuf.
func TestTypedBake(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	s.wanting(t, 5)
	pizzas := framework.Restaurant(cp).RestaurantV1().Pizzas(s.Namespace)
	for _, order := range []struct {
		count *int32
		want  int32
	}{{new(int32(2)), 2}, {nil, 1}, {new(int32(9)), 2}} {
		answer, err := pizzas.Bake(t.Context(), s.Name("a"), &restaurantv1.Bake{Spec: restaurantv1.BakeSpec{Count: order.count}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, order.want, answer.Status.Baked)
	}
	_, err := pizzas.Bake(t.Context(), s.Name("a"), &restaurantv1.Bake{}, metav1.CreateOptions{})
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
}

// bakePath is where the margherita of newKubectl is baked.
func bakePath(k kubectl) string {
	return path.Join("/apis", restaurant.GroupName, "v1/namespaces", k.namespace, "pizzas/margherita/bake")
}

func TestKubectlBake(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := newKubectl(t)
	for _, want := range []string{`"baked":2`, `"baked":1`} {
		require.Contains(t, k.okWith(t, `{"spec":{"count":2}}`, "create", "--raw", bakePath(k), "--filename=-"), want)
	}
	require.Equal(t, answer{
		stderr: "Error from server (Conflict): Operation cannot be fulfilled on pizzas/bake." + restaurant.GroupName + ` "margherita": 3 of 3 pizzas are baked already` + "\n", code: 1,
	}, k.run(t, "{}", "create", "--raw", bakePath(k), "--filename=-"))
}

// Package conformance sends each subresource the requests that no resource takes.
func TestBadBakes(t *testing.T) {
	order := func(body string) badRequest { return createAt("{pizza}/bake", body) }
	const protobuf = "application/vnd.kubernetes.protobuf"
	requireRefused(t, map[string]badRequest{
		"count/none":          order(`{"spec":{"count":0}}`).gets(422, "spec.count: Invalid value: 0: must be greater than or equal to 1"),
		"count/negative":      order(`{"spec":{"count":-1}}`).gets(422, "spec.count: Invalid value: -1: must be greater than or equal to 1"),
		"count/too many":      order(`{"spec":{"count":1001}}`).gets(422, "spec.count: Invalid value: 1001: must be less than or equal to 1000"),
		"count/no int32":      order(`{"spec":{"count":2147483648}}`).gets(400),
		"count/a string":      order(`{"spec":{"count":"1"}}`).gets(400),
		"count/huge":          order(`{"spec":{"count":1e999999999}}`).gets(400),
		"count/in YAML":       order("spec: {count: 0}").as("application/yaml").gets(422, "spec.count: Invalid value: 0: must be greater than or equal to 1"),
		"count/unknown field": createAt("{pizza}/bake?fieldValidation=Strict", `{"spec":{"number":1}}`).gets(400).saying(`Bake in version "{v}" cannot be handled as a Bake: strict decoding error: unknown field "spec.number"`),

		"metadata/another name":      order(`{"metadata":{"name":"other"}}`).gets(400).saying(`metadata.name is "other", but the path names "margherita"`),
		"metadata/another namespace": order(`{"metadata":{"namespace":"other"}}`).gets(400).saying("the namespace of the provided object does not match the namespace sent on the request"),
		"metadata/resourceVersion":   order(`{"metadata":{"resourceVersion":"1"}}`).gets(422, `metadata.resourceVersion: Invalid value: "1": must not be set on objects to be created`),
		"metadata/a bad label":       order(`{"metadata":{"labels":{"a b":"c"}}}`).gets(422, `metadata.labels: Invalid value: "a b": …`),
		"another kind":               order(`{"apiVersion":"{version}","kind":"Pizza"}`).gets(400).saying(`Pizza in version "{v}" cannot be handled as a Bake…`),
		"another version":            order(`{"apiVersion":"{group}/v9","kind":"Bake"}`).gets(400),
		"laughs":                     order(laughs(12)).as("application/yaml").gets(400),
		"protobuf/another kind":      order(envelope("Pizza", "")).as(protobuf).gets(400),
		"protobuf/garbage":           order(envelope("Bake", "\x93\x1e\xb0\x77\x04\x5a\xd1\xff")).as(protobuf).gets(400),
		"Accept/a table":             order("{}").accepting("application/json;as=Table;g=meta.k8s.io;v=v1").gets(406),
		"path/no pizza":              createAt("{pizzas}/new/bake", "{}").gets(404),
		"path/further":               createAt("{pizza}/bake/more", "{}").gets(404),
		"path/of all":                createAt("{root}/pizzas/bake", "{}").gets(404),
		"path/toppings":              createAt("{topping}/bake", "{}").gets(404),
	})
}
