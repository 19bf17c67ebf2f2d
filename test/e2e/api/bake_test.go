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
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	restaurantv1alpha1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1alpha1"
	restaurantv1beta1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1beta1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// dry is how a client says that nothing may be persisted.
var dry = []string{metav1.DryRunAll}

// newOrder asks for so many pizzas in this version.
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

// wanting creates the pizza "a", of which so many are wanted.
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
				require.Equal(t, answer, tried, "What is only tried is answered in the same way.")
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

func TestBakeWithoutPizza(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		s := newSubject(t, "Pizza", version)
		_, err := s.bake(t, framework.Config(cp), 1, metav1.CreateOptions{})
		status := framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
		require.Equal(t, s.Details(s.Name("a")), status.Details)

		s.wanting(t, 5, "example.com/e2e")
		require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
		stored := s.stored(t)
		_, err = s.bake(t, framework.Config(cp), 1, metav1.CreateOptions{})
		status = framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
		require.Equal(t, fmt.Sprintf("Operation cannot be fulfilled on pizzas/bake.%s %q: it is being deleted", s.Group, s.Name("a")), status.Message)
		require.Equal(t, stored, s.stored(t))
		_, err = s.patch(t, "a", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
		require.NoError(t, err)
	}
}

// The generated clients speak protobuf.
func TestTypedBake(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for version, bake := range map[string]func(t *testing.T, client versioned.Interface, ns, name string, count *int32) (int32, error){
		"v1": func(t *testing.T, client versioned.Interface, ns, name string, count *int32) (int32, error) {
			answer, err := client.RestaurantV1().Pizzas(ns).Bake(t.Context(), name, &restaurantv1.Bake{Spec: restaurantv1.BakeSpec{Count: count}}, metav1.CreateOptions{})
			return answer.Status.Baked, err
		},
		"v1beta1": func(t *testing.T, client versioned.Interface, ns, name string, count *int32) (int32, error) {
			answer, err := client.RestaurantV1beta1().Pizzas(ns).Bake(t.Context(), name, &restaurantv1beta1.Bake{Spec: restaurantv1beta1.BakeSpec{Count: count}}, metav1.CreateOptions{})
			return answer.Status.Baked, err
		},
		"v1alpha1": func(t *testing.T, client versioned.Interface, ns, name string, count *int32) (int32, error) {
			answer, err := client.RestaurantV1alpha1().Pizzas(ns).Bake(t.Context(), name, &restaurantv1alpha1.Bake{Spec: restaurantv1alpha1.BakeSpec{Count: count}}, metav1.CreateOptions{})
			return answer.Status.Baked, err
		},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, "Pizza", version)
			s.wanting(t, 5)
			config, warned := framework.Config(cp), &warnings{}
			config.WarningHandler = warned
			client := versioned.NewForConfigOrDie(config)
			for _, order := range []struct{ count, want int32 }{{2, 2}, {0, 1}, {9, 2}} {
				count := &order.count
				if order.count == 0 {
					count = nil
				}
				baked, err := bake(t, client, s.Namespace, s.Name("a"), count)
				require.NoError(t, err)
				require.Equal(t, order.want, baked)
				var want []string
				if version == "v1alpha1" {
					want = []string{"restaurant.programming-kubernetes.info/v1alpha1 Bake is deprecated in v0.37+; use restaurant.programming-kubernetes.info/v1 Bake"}
				}
				require.Equal(t, want, warned.take())
			}
			_, err := bake(t, client, s.Namespace, s.Name("a"), nil)
			framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
		})
	}
}

// Clients of all kinds compete for fewer pizzas than they ask for.
func TestConcurrentBakes(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	const orders, wanted = 200, 150
	s := newSubject(t, "Pizza", "v1")
	s.wanting(t, wanted)
	type client func() (baked int64, err error)
	var clients []client
	for _, door := range doors() {
		typed := versioned.NewForConfigOrDie(door.config).RestaurantV1().Pizzas(s.Namespace)
		clients = append(clients, func() (int64, error) {
			answer, err := typed.Bake(t.Context(), s.Name("a"), &restaurantv1.Bake{}, metav1.CreateOptions{})
			return int64(answer.Status.Baked), err
		})
		for _, version := range framework.Versions() {
			clients = append(clients, func() (int64, error) {
				answer, err := s.in(version).bake(t, door.config, 1, metav1.CreateOptions{})
				if err != nil {
					return 0, err
				}
				baked, _, err := unstructured.NestedInt64(answer.Object, "status", "baked")
				return baked, err
			})
		}
	}
	var baked, refused int64
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range orders {
		all.Go(func() {
			some, err := clients[i%len(clients)]()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				baked += some
			case apierrors.IsConflict(err):
				refused++
			default:
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, wanted, baked)
	require.EqualValues(t, orders-wanted, refused)
	after, err := s.Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{})
	require.NoError(t, err)
	replicas, _, err := unstructured.NestedInt64(after.Object, "status", "replicas")
	require.NoError(t, err)
	require.EqualValues(t, wanted, replicas)
	require.EqualValues(t, 1, after.GetGeneration())
}

// bakePath is where the margherita of newKubectl is baked.
func bakePath(k kubectl) string {
	return path.Join("/apis", restaurant.GroupName, "v1/namespaces", k.namespace, "pizzas/margherita/bake")
}

func TestKubectlBake(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := newKubectl(t)
	order := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Bake","spec":{"count":2}}`, restaurant.GroupName)
	var answer restaurantv1.Bake
	require.NoError(t, json.Unmarshal([]byte(k.okWith(t, order, "create", "--raw", bakePath(k), "--filename=-")), &answer))
	require.EqualValues(t, 2, answer.Status.Baked)
	require.NoError(t, json.Unmarshal([]byte(k.okWith(t, "{}", "create", "--raw", bakePath(k), "--filename=-")), &answer))
	require.EqualValues(t, 1, answer.Status.Baked)
	require.Equal(t, "3/3", strings.Fields(k.ok(t, "get", "pizza", "margherita", "--no-headers"))[2])

	got := k.run(t, "{}", "create", "--raw", bakePath(k), "--filename=-")
	require.Equal(t, "Error from server (Conflict): Operation cannot be fulfilled on pizzas/bake."+restaurant.GroupName+` "margherita": 3 of 3 pizzas are baked already`+"\n", got.stderr)
	require.Equal(t, 1, got.code)
	got = k.run(t, order+"x", "create", "--raw", bakePath(k), "--filename=-")
	require.Contains(t, got.stderr, "Error from server (BadRequest): ")
	require.Equal(t, 1, got.code)
	require.Contains(t, k.run(t, "", "explain", "bake").stderr, "the server doesn't have a resource type")
}

// What is done to a pizza is written down as it was asked for.
func TestBakeIsAudited(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	client, err := rest.HTTPClientFor(framework.Config(cp))
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cp.APIServer.URL()+bakePath(k), strings.NewReader("{}"))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusCreated, response.StatusCode)
	event := audited(t, response.Header.Get(auditv1.HeaderAuditID))
	require.Equal(t, "create", event.Verb)
	require.Equal(t, &auditv1.ObjectReference{
		APIGroup: restaurant.GroupName, APIVersion: "v1", Resource: "pizzas", Subresource: "bake", Namespace: k.namespace, Name: "margherita",
	}, event.ObjectRef)
	require.EqualValues(t, http.StatusCreated, event.ResponseStatus.Code)
}

func TestBadBakes(t *testing.T) {
	const (
		protobuf = "application/vnd.kubernetes.protobuf"
		unknown  = "the body of the request was in an unknown format…"
	)
	order := func(body string) badRequest { return createAt("{pizza}/bake", body) }
	requests := map[string]badRequest{
		"count/none":          order(`{"spec":{"count":0}}`).gets(422, "spec.count: Invalid value: 0: must be greater than or equal to 1"),
		"count/negative":      order(`{"spec":{"count":-1}}`).gets(422, "spec.count: Invalid value: -1: must be greater than or equal to 1"),
		"count/too many":      order(`{"spec":{"count":1001}}`).gets(422, "spec.count: Invalid value: 1001: must be less than or equal to 1000"),
		"count/no int32":      order(`{"spec":{"count":2147483648}}`).gets(400),
		"count/a fraction":    order(`{"spec":{"count":1.5}}`).gets(400),
		"count/a string":      order(`{"spec":{"count":"1"}}`).gets(400),
		"count/huge":          order(`{"spec":{"count":1e999999999}}`).gets(400),
		"count/in YAML":       order("spec: {count: 0}").as("application/yaml").gets(422, "spec.count: Invalid value: 0: must be greater than or equal to 1"),
		"count/unknown field": createAt("{pizza}/bake?fieldValidation=Strict", `{"spec":{"number":1}}`).gets(400).saying(`Bake in version "{v}" cannot be handled as a Bake: strict decoding error: unknown field "spec.number"`),

		"metadata/another name":      order(`{"metadata":{"name":"other"}}`).gets(400).saying(`metadata.name is "other", but the path names "margherita"`),
		"metadata/another namespace": order(`{"metadata":{"namespace":"other"}}`).gets(400).saying("the namespace of the provided object does not match the namespace sent on the request"),
		"metadata/resourceVersion":   order(`{"metadata":{"resourceVersion":"1"}}`).gets(422, `metadata.resourceVersion: Invalid value: "1": must not be set on objects to be created`),
		"metadata/a bad label":       order(`{"metadata":{"labels":{"a b":"c"}}}`).gets(422, `metadata.labels: Invalid value: "a b": …`),
		"metadata/a list":            order(`{"metadata":[]}`).gets(400),

		"JSON/another kind":     order(`{"apiVersion":"{version}","kind":"Pizza"}`).gets(400).saying(`Pizza in version "{v}" cannot be handled as a Bake…`),
		"JSON/an unknown kind":  order(`{"apiVersion":"{version}","kind":"Fry"}`).gets(400),
		"JSON/another group":    order(`{"apiVersion":"example.com/v1","kind":"Bake"}`).gets(400),
		"JSON/another version":  order(`{"apiVersion":"{group}/v9","kind":"Bake"}`).gets(400),
		"JSON/a list":           order(`[]`).gets(400),
		"JSON/a string":         order(`"bake"`).gets(400),
		"JSON/cut off":          order(`{"spec":`).gets(400),
		"JSON/nothing":          order("").gets(400),
		"JSON/deep":             order(strings.Repeat(`{"spec":`, 20_000)).gets(400),
		"JSON/too large":        order(`{"metadata":{"annotations":{"a":"` + strings.Repeat("a", 4<<20) + `"}}}`).gets(413),
		"YAML/a tab":            order("\tspec: {}").as("application/yaml").gets(400),
		"YAML/a list":           order("- a").as("application/yaml").gets(400),
		"YAML/cut off":          order("spec: {").as("application/yaml").gets(400),
		"YAML/laughs":           order(laughs(12)).as("application/yaml").gets(400),
		"protobuf/nothing":      order("").as(protobuf).gets(400),
		"protobuf/JSON":         order("{}").as(protobuf).gets(400),
		"protobuf/cut off":      order("k8s\x00\xff").as(protobuf).gets(400),
		"protobuf/another kind": order(envelope("Pizza", "")).as(protobuf).gets(400),
		"protobuf/garbage":      order(envelope("Bake", "\x93\x1e\xb0\x77\x04\x5a\xd1\xff")).as(protobuf).gets(400),
		"text":                  order("{}").as("text/plain").gets(415).saying(unknown),
		"CBOR":                  order("\xa0").as("application/cbor").gets(415).saying(unknown),
		"a patch":               order("{}").as("application/merge-patch+json").gets(415).saying(unknown),
		"Accept":                order("{}").accepting("text/html").gets(406),
		"Accept/a table":        order("{}").accepting("application/json;as=Table;g=meta.k8s.io;v=v1").gets(406),
		"dryRun":                createAt("{pizza}/bake?dryRun=yes", "{}").gets(422, `dryRun: Unsupported value: ["yes"]: supported values: "All"`),

		"method/get":    get("{pizza}/bake").gets(405),
		"method/update": replaceAt("{pizza}/bake", "{}").gets(405),
		"method/patch":  patchAt("{pizza}/bake", types.MergePatchType, "{}").gets(405),
		"method/delete": remove("{pizza}/bake", "").gets(405),
		"path/no pizza": createAt("{pizzas}/new/bake", "{}").gets(404),
		"path/further":  createAt("{pizza}/bake/more", "{}").gets(404),
		"path/of all":   createAt("{root}/pizzas/bake", "{}").gets(404),
		"path/toppings": createAt("{topping}/bake", "{}").gets(404),
	}
	requireRefused(t, requests)
}
