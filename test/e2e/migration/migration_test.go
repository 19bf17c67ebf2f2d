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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A migration that is killed in each of its phases goes on where it was, and one that is
// aborted leaves nothing behind.
func TestKilledAndAborted(t *testing.T) {
	framework.Long(t, "it is killed in each phase")
	t.Parallel()
	c := newCluster(t)
	require.NoError(t, c.createPizza(t, c.restaurant(), "finalized", func(pizza metav1.Object) { pizza.SetFinalizers([]string{"example.com/kept"}) }))
	before := c.everything(t)
	require.Len(t, before, 5)

	require.Equal(t, "Error: no migration of the group has begun\n", c.phase(t))
	for _, phase := range []string{"Copying", "Freezing"} {
		c.killIn(t, phase, "run")
		require.Equal(t, phase, c.phase(t))
		code, _, stderr := c.migrate(t, "abort")
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "Error: no migration of the group has begun\n", c.phase(t))
		response, err := c.etcd(t).Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		for _, kv := range response.Kvs {
			require.NotContains(t, string(kv.Key), "restaurant")
		}
		require.NoError(t, c.createPizza(t, c.restaurant(), "in-between", nil))
		require.NoError(t, c.pizzas().Delete(t.Context(), "in-between", metav1.DeleteOptions{}))
	}

	for _, phase := range []string{"Copying", "Freezing", "Switching", "Releasing"} {
		c.killIn(t, phase, "run")
		require.Equal(t, phase, c.phase(t))
	}
	code, _, stderr := c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "Moved", c.phase(t))
	require.Empty(t, cmp.Diff(before, c.everything(t)))
	require.Equal(t, len(before), c.checksums(t))
	controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "after", nil) })

	code, _, stderr = c.migrate(t, "finish")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "pizzas/default/finalized, and perhaps of others, have finalizers")
	code, _, stderr = c.migrate(t, "abort")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "Error: can't abort in the phase Moved")
	// Once more, it has nothing to do.
	code, _, stderr = c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
}

// References to the objects stay valid.
func TestRun(t *testing.T) {
	framework.Long(t, "TestThereAndBack is the short one")
	t.Parallel()
	c := newCluster(t)
	inDefault := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for name, change := range map[string]func(metav1.Object){
		"owner":      nil,
		"last-owner": nil,
		"deleted":    func(pizza metav1.Object) { pizza.SetFinalizers([]string{"example.com/kept"}) },
		"owned": func(pizza metav1.Object) {
			owner, err := inDefault.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
			require.NoError(t, err)
			pizza.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}})
		},
	} {
		require.NoError(t, c.createPizza(t, c.restaurant(), name, change))
	}
	require.NoError(t, c.pizzas().Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
	c.dependent(t, "owner")
	c.dependent(t, "last-owner")
	_, err := c.pizzas().Patch(t.Context(), "owner", types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Baked","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`),
		metav1.PatchOptions{FieldManager: "kitchen"}, "status")
	require.NoError(t, err)
	before := c.everything(t)

	informer := c.watch(t)
	clients := c.startClients(t)
	code, stdout, stderr := c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "Moved")
	clients.awaitMore(t)
	clients.stop()
	require.Empty(t, clients.errors(), "Clients notice nothing but a pause.")
	t.Logf("The longest write took %s.", clients.longest().Round(time.Millisecond))

	after := c.everything(t)
	for name, object := range before {
		require.Empty(t, cmp.Diff(object, after[name]), name)
	}
	clients.requireWritten(t, after)
	informer.require(t, after)

	// The garbage collector knows the objects by the same UIDs.
	require.NoError(t, c.pizzas().Delete(t.Context(), "last-owner", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error { return gone(inDefault.Get(t.Context(), "of-last-owner", metav1.GetOptions{})) })
	_, err = inDefault.Get(t.Context(), "of-owner", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, inDefault.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error { return gone(c.pizzas().Get(t.Context(), "owned", metav1.GetOptions{})) })
	// The object that was being deleted still is.
	_, err = c.pizzas().Patch(t.Context(), "deleted", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, gone(c.pizzas().Get(t.Context(), "deleted", metav1.GetOptions{})))

	// Definitions that are applied again, as by an update of their chart, change nothing.
	for _, resource := range []string{"pizzas", "toppings"} {
		framework.Kubectl(t, c.ControlPlane, "patch", "customresourcedefinition", resource+"."+restaurant.GroupName, "--type=json",
			`--patch=[{"op": "replace", "path": "/spec/versions/0/served", "value": true}, {"op": "replace", "path": "/spec/versions/1/served", "value": true}, {"op": "replace", "path": "/spec/versions/2/served", "value": true}]`)
	}
	require.NoError(t, c.Register(t.Context(), c.APIServer))
	require.Len(t, c.everything(t), len(after)-3, "But for the three that were deleted.")
}
