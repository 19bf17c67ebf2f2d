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

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
