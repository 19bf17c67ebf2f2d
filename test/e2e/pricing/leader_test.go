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

package pricing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// get reads from a replica itself.
func get(ctx context.Context, replica *controlplane.Component, path string) (string, error) {
	config := cp.RESTConfig()
	config.Host = replica.URL()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	body, err := client.RESTClient().Get().AbsPath(path).DoRaw(ctx)
	return string(body), err
}

// leads reports whether a replica says of itself that it runs the controllers.
func leads(t *testing.T, replica *controlplane.Component) bool {
	t.Helper()
	metrics, err := get(t.Context(), replica, "/metrics")
	require.NoError(t, err)
	lines := strings.Split(metrics, "\n")
	leads := slices.Contains(lines, `leader_election_master_status{name="apiserver-controllers"} 1`)
	require.NotEqual(t, leads, slices.Contains(lines, `leader_election_master_status{name="apiserver-controllers"} 0`), "It says neither or both.")
	return leads
}

// awaitLeader waits until a replica leads.
func awaitLeader(t *testing.T, replica *controlplane.Component) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		if !leads(t, replica) {
			return fmt.Errorf("%s does not lead", replica.Name())
		}
		return nil
	})
}

// TestReplicas kills the replica that runs the controllers. Tests that run in
// parallel wait until it is over.
func TestReplicas(t *testing.T) {
	framework.Long(t, "leases expire")
	ns := framework.Namespace(t, cp)
	cheese := topping(t, "1")
	pizza(t, ns, "margherita", cheese)
	awaitPizza(t, ns, "margherita", costs("1"))

	leader := cp.APIServer
	awaitLeader(t, leader)
	second, err := cp.NewAPIServer(names.SimpleNameGenerator.GenerateName("second-"), replica())
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, second.Stop()) })

	// A replica that does not lead is as ready as the one that does.
	require.False(t, leads(t, second))
	for _, replica := range []*controlplane.Component{leader, second} {
		ready, err := get(t.Context(), replica, "/readyz")
		require.NoError(t, err)
		require.Equal(t, "ok", ready)
	}
	require.NoError(t, cp.Register(t.Context(), second))

	leader.Kill()
	awaitLeader(t, second)
	setCost(t, cheese, "2")
	awaitPizza(t, ns, "margherita", costs("2"))

	// A leader that is stopped gives its lease away at once.
	require.NoError(t, leader.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), leader))
	require.False(t, leads(t, leader))
	require.NoError(t, second.Stop())
	lease, err := framework.Kube(cp).CoordinationV1().Leases("restaurant-system").Get(t.Context(), "apiserver-controllers", metav1.GetOptions{})
	require.NoError(t, err)
	if holder := *lease.Spec.HolderIdentity; holder != "" {
		// It is the other one by now.
		awaitLeader(t, leader)
	}
	setCost(t, cheese, "3")
	awaitPizza(t, ns, "margherita", costs("3"))

	// A leader that can't renew its lease serves on without its controllers, until it gets the lease back.
	cp.KubeAPIServer.Kill()
	controlplane.Eventually(t, func() error {
		if leads(t, leader) {
			return fmt.Errorf("%s still leads", leader.Name())
		}
		return nil
	})
	ready, err := get(t.Context(), leader, "/readyz")
	require.NoError(t, err)
	require.Equal(t, "ok", ready)
	require.NoError(t, cp.KubeAPIServer.Start(t.Context()))
	awaitLeader(t, leader)
	require.NoError(t, cp.WaitAvailable(t.Context()))
	setCost(t, cheese, "4")
	awaitPizza(t, ns, "margherita", costs("4"))
}
