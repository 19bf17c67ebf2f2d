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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Objects move to the server of custom resources and back, while clients use them.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	thereAndBack(t, newDefinedCluster)
}

// Objects move to a server of types in Go and back, too.
func TestThereAndBackFromTypes(t *testing.T) {
	framework.Long(t, "TestThereAndBack is the short one")
	t.Parallel()
	thereAndBack(t, newCluster)
}

func thereAndBack(t *testing.T, newCluster func(*testing.T) *cluster) {
	t.Helper()
	for name, direct := range map[string]bool{"by kube-apiserver": false, "by its etcd": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			var args []string
			if direct {
				args = c.kubeEtcd(t)
			}
			c.thereAndBack(t, args)
		})
	}
}

func (c *cluster) thereAndBack(t *testing.T, args []string) {
	t.Helper()
	inDefault := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	kept := func(pizza metav1.Object) { pizza.SetFinalizers([]string{"example.com/kept"}) }
	for name, change := range map[string]func(metav1.Object){
		"owner": nil, "changed": nil, "gone-owner": nil, "deleted": kept, "deleted-since": kept, "finalized-gone": kept,
	} {
		require.NoError(t, c.createPizza(t, c.restaurant(), name, change))
	}
	require.NoError(t, c.pizzas().Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	c.dependent(t, "owner")
	c.dependent(t, "gone-owner")
	before := c.everything(t)
	informer, follower := c.watch(t), c.follow(t, c.pizzas().Watch)
	clients := c.startClients(t)

	began := time.Now()
	code, stdout, stderr := c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "Moved")
	t.Logf("%d objects were moved in %s; the longest write took %s.", len(before), time.Since(began).Round(time.Second), clients.longest())
	framework.MarkServed(t, c.ControlPlane, restaurant.GroupName)
	clients.awaitMore(t)
	require.Empty(t, clients.errors(), "Clients notice nothing but a pause.")
	there := c.everything(t)
	for name, object := range before {
		require.Empty(t, cmp.Diff(object, there[name]), name)
	}

	// Changes at the server have to come back.
	require.NoError(t, c.createPizza(t, c.restaurant(), "created", nil))
	_, err := c.pizzas().Patch(t.Context(), "changed", types.MergePatchType, []byte(`{"spec":{"replicas":7},"metadata":{"labels":{"changed":"since"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, c.pizzas().Delete(t.Context(), "deleted-since", metav1.DeleteOptions{}))
	require.NoError(t, c.pizzas().Delete(t.Context(), "finalized-gone", metav1.DeleteOptions{}))
	_, err = c.pizzas().Patch(t.Context(), "finalized-gone", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, c.pizzas().Delete(t.Context(), "gone-owner", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error { return gone(inDefault.Get(t.Context(), "of-gone-owner", metav1.GetOptions{})) })
	// Writes by the other name of the copies would get lost.
	require.True(t, apierrors.IsNotFound(c.writeByAlias(t, "owner")))
	there = c.everything(t)
	require.NotContains(t, there["pizzas/default/owner"].GetAnnotations(), "example.com/alias")
	require.NotZero(t, c.checksums(t))

	code, stdout, stderr = c.migrate(t, "plan", append(args, "--back")...)
	require.Equal(t, 0, code, stderr)
	require.Equal(t, len(args) == 0, strings.Contains(stdout, " get another UID"), stdout)
	if len(args) == 0 {
		require.Regexp(t, `deletes what they own: \[.*default/created.*\]: give --kube-etcd-servers`, stdout)
		require.NotRegexp(t, `default/owner`, stdout)
	}
	var editor *intruder
	if c.binary == "crd-apiserver" {
		editor = c.startIntruder(t)
	}
	began = time.Now()
	code, stdout, stderr = c.migrate(t, "back", args...)
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "Returned")
	t.Logf("%d objects were moved back in %s.", len(there), time.Since(began).Round(time.Second))
	framework.RequireForgotten(t, c.ControlPlane, restaurant.GroupName)
	if editor != nil {
		editor.require(t, len(args) == 0)
	}
	clients.awaitMore(t)
	clients.stop()
	require.Empty(t, clients.errors(), "Clients notice nothing but a pause.")
	t.Logf("The longest write took %s.", clients.longest())
	after := c.everything(t)
	direct := len(args) > 0
	for name, object := range there {
		// Clients may have changed it since, or deleted it.
		if written(clients, name) {
			continue
		}
		returned := after[name]
		if !direct {
			object, returned = withoutOwn(object), withoutOwn(returned)
		}
		require.Empty(t, cmp.Diff(object, returned), name)
	}
	for _, name := range []string{"owner", "changed", "deleted", "deleted-since"} {
		require.Equal(t, before["pizzas/default/"+name].GetUID(), c.everything(t)["pizzas/default/"+name].GetUID(), name)
	}
	// An object that nobody has changed is as it was, to the last field.
	require.Empty(t, cmp.Diff(there["pizzas/default/owner"], after["pizzas/default/owner"]))
	require.NotContains(t, after, "pizzas/default/finalized-gone")
	clients.requireWritten(t, after)
	informer.require(t, after)
	follower.require(t, after)

	code, _, stderr = c.migrate(t, "finish")
	require.Equal(t, 0, code, stderr)
	require.NoError(t, c.pizzas().Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error { return gone(inDefault.Get(t.Context(), "of-owner", metav1.GetOptions{})) })

	// There again, with the server's etcd as it is by now.
	code, _, stderr = c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	informer.require(t, c.everything(t))
	follower.require(t, c.everything(t))
	if c.server == c.APIServer {
		return // Copies with finalizers keep the definitions from being deleted.
	}
	// With kube-apiserver's etcd, or a webhook would keep the copies of toppings from being deleted.
	code, _, stderr = c.migrate(t, "finish", c.kubeEtcd(t)...)
	require.Equal(t, 0, code, stderr)
	informer.require(t, c.everything(t))
}

// The way back goes on where it was when it has been killed, in each of its phases. One
// that is aborted leaves the objects where they are.
func TestBackKilledAndAborted(t *testing.T) {
	framework.Long(t, "it is killed in each phase")
	t.Parallel()
	c := newDefinedCluster(t)
	code, _, stderr := c.migrate(t, "back")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "there is nothing to move back")
	require.NoError(t, c.createPizza(t, c.restaurant(), "finalized", func(pizza metav1.Object) { pizza.SetFinalizers([]string{"example.com/kept"}) }))
	for _, phase := range []string{"Copying", "Freezing", "Switching", "Releasing"} {
		c.killIn(t, phase, "run")
		require.Equal(t, phase, c.phase(t))
	}
	code, _, stderr = c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "since", nil) })
	there := c.everything(t)

	for _, phase := range []string{"Copying", "Freezing"} {
		c.killIn(t, phase, "back")
		require.Equal(t, phase, c.phase(t))
		code, _, stderr = c.migrate(t, "abort")
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "Moved", c.phase(t))
		controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "in-between", nil) })
		require.NoError(t, c.pizzas().Delete(t.Context(), "in-between", metav1.DeleteOptions{}))
		require.Empty(t, cmp.Diff(there, c.everything(t)))
	}
	args := c.kubeEtcd(t)
	for _, phase := range []string{"Copying", "Freezing", "Switching", "Releasing"} {
		c.killIn(t, phase, "back", args...)
		require.Equal(t, phase, c.phase(t))
	}
	code, _, stderr = c.migrate(t, "back", args...)
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "Returned", c.phase(t))
	require.Empty(t, cmp.Diff(there, c.everything(t)))
	controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "after", nil) })
	code, _, stderr = c.migrate(t, "abort")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "can't abort in the phase Returned")
	code, _, stderr = c.migrate(t, "finish")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "Error: no migration of the group has begun\n", c.phase(t))
}

func written(clients *clients, name string) bool {
	clients.mu.Lock()
	defer clients.mu.Unlock()
	_, found := clients.replicas[strings.TrimPrefix(name, "pizzas/default/")]
	return found
}

// withoutOwn is an object without what kube-apiserver sets itself.
func withoutOwn(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	object = object.DeepCopy()
	for _, field := range []string{"uid", "generation", "creationTimestamp", "deletionTimestamp"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object
}
