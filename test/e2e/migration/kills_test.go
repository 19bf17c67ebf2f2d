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
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// number is an environment variable, or what it is by default.
func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 32)
	require.NoError(t, err, variable)
	return value
}

// A migration during which the server, kube-apiserver or kube-apiserver's etcd is killed ends
// with an error or goes on, and when it is run again, all objects are where they should be, as
// they were, and are owners of what they owned. MIGRATION_KILLS=100 does that more often than
// once on each way, and MIGRATION_SEED repeats what has failed.
func TestKilledServers(t *testing.T) {
	t.Parallel()
	c := newDefinedCluster(t)
	args := c.kubeEtcd(t)
	require.NoError(t, c.createPizza(t, c.restaurant(), "owner", func(pizza metav1.Object) { pizza.SetFinalizers([]string{"example.com/kept"}) }))
	c.dependent(t, "owner")
	want := c.everything(t)
	seed := number(t, "MIGRATION_SEED", rand.Uint64N(1<<32))
	t.Logf("MIGRATION_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range number(t, "MIGRATION_KILLS", 1) {
		c.killServer(t, random, "run")
		requireSame(t, c, want)
		c.killServer(t, random, "back", args...)
		requireSame(t, c, want)
		code, _, stderr := c.migrate(t, "finish")
		require.Equal(t, 0, code, stderr)
	}
	_, err := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "of-owner", metav1.GetOptions{})
	require.NoError(t, err)
}

// killServer runs a command of "migrate", kills something in one of its phases, and runs the
// command again until it succeeds.
func (c *cluster) killServer(t *testing.T, random *rand.Rand, command string, args ...string) {
	t.Helper()
	victims := []*controlplane.Component{c.server, c.KubeAPIServer, c.Etcd}
	phases := []string{"Copying", "Freezing", "Switching", "Releasing"}
	victim, phase := victims[random.IntN(len(victims))], phases[random.IntN(len(phases))]
	t.Logf("%s: killing %s in %s", command, victim.Name(), phase)
	cmd, stderr := c.startUntil(t, phase, command, args...)
	victim.Kill()
	require.NoError(t, victim.Start(t.Context()))
	said, err := io.ReadAll(stderr)
	require.NoError(t, err)
	t.Logf("%s: %v: %s", command, cmd.Wait(), said)
	controlplane.Eventually(t, func() error {
		if code, _, stderr := c.migrate(t, command, args...); code != 0 {
			return fmt.Errorf("%s: %s", command, stderr)
		}
		return nil
	})
}

func requireSame(t *testing.T, c *cluster, want map[string]*unstructured.Unstructured) {
	t.Helper()
	// Clients may write again.
	controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "another", nil) })
	require.NoError(t, c.pizzas().Delete(t.Context(), "another", metav1.DeleteOptions{}))
	require.Empty(t, cmp.Diff(want, c.everything(t)))
}
