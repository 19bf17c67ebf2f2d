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

package migration

import (
	"crypto/tls"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// kubeEtcdClient is one of kube-apiserver's etcd.
func (c *cluster) kubeEtcdClient(t *testing.T) *clientv3.Client {
	t.Helper()
	issued, err := c.PKI.EtcdCA.Issue(controlplane.Certificate{User: "test"})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{c.Etcd.URL()},
		TLS:       &tls.Config{RootCAs: c.PKI.ServingCA.Pool(), Certificates: []tls.Certificate{certificate}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// goneVersion is one that no definition and no server has.
const goneVersion = restaurant.GroupName + "/v1alpha0"

// manageByGoneVersion makes the managers of a pizza of kube-apiserver name a version that is gone, as they
// do if nobody has changed it since.
func (c *cluster) manageByGoneVersion(t *testing.T, name string) {
	t.Helper()
	client, key := c.kubeEtcdClient(t), path.Join("/registry", restaurant.GroupName, "pizzas", metav1.NamespaceDefault, name)
	stored, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, stored.Kvs, 1)
	object := parse(t, string(stored.Kvs[0].Value))
	managers := object.GetManagedFields()
	for i := range managers {
		managers[i].APIVersion = goneVersion
	}
	object.SetManagedFields(managers)
	content, err := object.MarshalJSON()
	require.NoError(t, err)
	_, err = client.Put(t.Context(), key, string(content))
	require.NoError(t, err)
}

// managers are those of an object, and the versions that they name.
func managers(object *unstructured.Unstructured) string {
	var found []string
	for _, manager := range object.GetManagedFields() {
		found = append(found, strings.TrimSpace(strings.Join([]string{manager.Manager, string(manager.Operation), path.Base(manager.APIVersion), manager.Subresource}, " ")))
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

// applied is what a manager applies to a pizza.
func applied(name string, replicas int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr("pizzas").GroupVersion().String(), "kind": "Pizza", "metadata": map[string]any{"name": name}, "spec": map[string]any{"replicas": replicas},
	}}
}

// Server-side apply of objects whose managers name a version that is gone fails in kube-apiserver, and so it does
// at a crd-apiserver. Other writes succeed, and record no manager. A server in Go forgets such managers, as
// kube-apiserver does for its own types.
func TestManagersOfGoneVersions(t *testing.T) {
	framework.Long(t, "objects move there and back")
	t.Parallel()
	type operation func(*testing.T, *cluster, string) (*unstructured.Unstructured, error)
	apply := func(manager string, replicas int64) operation {
		return func(t *testing.T, c *cluster, name string) (*unstructured.Unstructured, error) {
			return c.pizzas().Apply(t.Context(), name, applied(name, replicas), metav1.ApplyOptions{FieldManager: manager})
		}
	}
	patch := func(content string, subresources ...string) operation {
		return func(t *testing.T, c *cluster, name string) (*unstructured.Unstructured, error) {
			return c.pizzas().Patch(t.Context(), name, types.MergePatchType, []byte(content), metav1.PatchOptions{FieldManager: "other"}, subresources...)
		}
	}
	operations := map[string]operation{
		"reapplied": apply("old", 4),
		"applied":   apply("other", 5),
		"patched":   patch(`{"spec":{"replicas":6}}`),
		"labeled":   patch(`{"metadata":{"labels":{"a":"b"}}}`),
		"baked":     patch(`{"status":{"cost":"1"}}`, "status"),
		"updated": func(t *testing.T, c *cluster, name string) (*unstructured.Unstructured, error) {
			pizza, err := c.pizzas().Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			require.NoError(t, unstructured.SetNestedField(pizza.Object, int64(7), "spec", "replicas"))
			return c.pizzas().Update(t.Context(), pizza, metav1.UpdateOptions{FieldManager: "other"})
		},
		"cleared and applied": func(t *testing.T, c *cluster, name string) (*unstructured.Unstructured, error) {
			_, err := patch(`{"metadata":{"managedFields":[{}]}}`)(t, c, name)
			require.NoError(t, err)
			return apply("old", 3)(t, c, name)
		},
		"deleted": func(t *testing.T, c *cluster, name string) (*unstructured.Unstructured, error) {
			require.NoError(t, c.pizzas().Delete(t.Context(), name, metav1.DeleteOptions{}))
			_, err := patch(`{"metadata":{"finalizers":null}}`)(t, c, name)
			require.NoError(t, err)
			return c.pizzas().Get(t.Context(), name, metav1.GetOptions{})
		},
	}
	const (
		refused = "request to convert CR to an invalid group/version: " + goneVersion
		stay    = "migration.test Update v1alpha0, old Apply v1alpha0"
	)
	atKube := map[string]string{
		"reapplied": refused, "applied": refused, "patched": "6 " + stay, "labeled": "3 " + stay, "baked": "3 " + stay, "updated": "7 " + stay,
		"cleared and applied": "3 before-first-apply Update v1, old Apply v1", "deleted": "NotFound",
	}
	inGo := map[string]string{
		"reapplied": "4 old Apply v1", "applied": "5 other Apply v1", "patched": "6 other Update v1", "labeled": "3 other Update v1", "baked": "3 other Update v1 status",
		"updated": "7 other Update v1", "cleared and applied": "3 before-first-apply Update v1, old Apply v1", "deleted": "NotFound",
	}
	for name, test := range map[string]struct {
		start func(*testing.T) *cluster
		there map[string]string
	}{
		"in Go":   {newCluster, inGo},
		"defined": {newDefinedCluster, atKube},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := test.start(t)
			nameOf := func(stage, operation string) string {
				return stage + "-" + strings.ReplaceAll(operation, " ", "-")
			}
			for _, stage := range []string{"before", "there", "back"} {
				for operation := range operations {
					name := nameOf(stage, operation)
					require.NoError(t, c.createPizza(t, c.restaurant(), name, func(pizza metav1.Object) { pizza.SetFinalizers([]string{"example.com/kept"}) }))
					_, err := c.pizzas().Apply(t.Context(), name, applied(name, 3), metav1.ApplyOptions{FieldManager: "old", Force: true})
					require.NoError(t, err)
					c.manageByGoneVersion(t, name)
				}
			}
			outcomes := func(stage string) map[string]string {
				t.Helper()
				found := map[string]string{}
				for operation, run := range operations {
					object, err := run(t, c, nameOf(stage, operation))
					switch {
					case apierrors.IsNotFound(err):
						found[operation] = string(apierrors.ReasonForError(err))
					case err != nil:
						found[operation] = err.Error()
					default:
						replicas, _, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
						require.NoError(t, err)
						found[operation] = fmt.Sprint(replicas, " ", managers(object))
					}
				}
				return found
			}
			require.Equal(t, atKube, outcomes("before"))
			code, stdout, stderr := c.migrate(t, "plan")
			require.Equal(t, 0, code, "%s%s", stdout, stderr)
			code, _, stderr = c.migrate(t, "run")
			require.Equal(t, 0, code, stderr)
			require.Equal(t, test.there, outcomes("there"))
			code, _, stderr = c.migrate(t, "back")
			require.Equal(t, 0, code, stderr)
			require.Equal(t, atKube, outcomes("back"))
		})
	}
}

// A value that a type in Go writes in another way belongs to its manager as before, which can apply it again. Several
// managers have to write it as it is stored, as with quantities of Kubernetes' own kinds.
func TestManagersOfRewrittenValues(t *testing.T) {
	framework.Long(t, "objects move there and back")
	t.Parallel()
	c := newCluster(t)
	toppings := dynamic.NewForConfigOrDie(c.config()).Resource(gvr("toppings"))
	forced := true
	apply := func(manager, cost string) (*unstructured.Unstructured, error) {
		return toppings.Apply(t.Context(), "tomato", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr("toppings").GroupVersion().String(), "kind": "Topping", "metadata": map[string]any{"name": "tomato"}, "spec": map[string]any{"cost": cost},
		}}, metav1.ApplyOptions{FieldManager: manager, Force: forced})
	}
	requireCost := func(want string, topping *unstructured.Unstructured, err error) {
		t.Helper()
		require.NoError(t, err)
		cost, _, err := unstructured.NestedString(topping.Object, "spec", "cost")
		require.NoError(t, err)
		require.Equal(t, want, cost)
	}
	applied, err := apply("owner", "1.50")
	requireCost("1.50", applied, err)
	forced = false
	_, err = apply("another", "1500m")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)

	code, _, stderr := c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	moved, err := toppings.Get(t.Context(), "tomato", metav1.GetOptions{})
	requireCost("1500m", moved, err)
	applied, err = apply("owner", "1.50")
	requireCost("1500m", applied, err)
	require.Equal(t, moved.GetResourceVersion(), applied.GetResourceVersion())
	applied, err = apply("another", "1500m")
	requireCost("1500m", applied, err)
	_, err = apply("another", "2")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
	require.ErrorContains(t, err, `conflict with "owner"`)
	_, err = apply("owner", "1.50")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)

	code, _, stderr = c.migrate(t, "back")
	require.Equal(t, 0, code, stderr)
	applied, err = apply("another", "1500m")
	requireCost("1500m", applied, err)
	_, err = apply("owner", "1.50")
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
}
