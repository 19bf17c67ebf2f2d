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

package storage

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// While etcd is unavailable, clients still learn which resources the server has. What requests for objects get
// is tested in test/e2e/operations.
func TestEtcdGoesAwayAndComesBack(t *testing.T) {
	framework.Long(t, "timeouts are waited for")
	storage, server := cp.Component("storage"), cp.APIServer
	pid := server.PID()
	_, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("before"), metav1.CreateOptions{})
	require.NoError(t, err)
	watcher, err := framework.ClientAt(t, cp, cp.KubeAPIServer).RestaurantV1().Pizzas("default").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watcher.Stop()
	require.Equal(t, watch.Added, framework.Next(t, watcher).Type)

	require.NoError(t, storage.Stop())
	framework.WaitUnready(t, cp, server, "etcd")
	code, _ := framework.Get(t, cp, server, "/livez")
	require.Equal(t, 200, code, "The server would be restarted for no gain.")

	for path, want := range map[string]string{
		"/apis":                                     `"restaurant.programming-kubernetes.info/v1"`,
		framework.GroupPath:                         `"preferredVersion":{"groupVersion":"restaurant.programming-kubernetes.info/v1","version":"v1"}`,
		framework.GroupPath + "/v1":                 `"name":"pizzas/scale"`,
		framework.GroupPath + "/v1beta1":            `"name":"pizzas/scale"`,
		framework.GroupPath + "/v1alpha1":           `"name":"pizzas/scale"`,
		"/openapi/v2":                               `info.programming-kubernetes.restaurant.v1alpha1.Pizza"`,
		"/openapi/v3":                               `"` + framework.GroupPath[1:] + `/v1alpha1"`,
		"/openapi/v3" + framework.GroupPath + "/v1": `"kind":"Pizza"`,
	} {
		for _, at := range []*controlplane.Component{server, cp.KubeAPIServer} {
			code, body := framework.Get(t, cp, at, path)
			require.Equal(t, 200, code, "%s at %s: %s", path, at.Name(), body)
			require.Contains(t, body, want, "%s at %s.", path, at.Name())
		}
	}
	explained, err := cp.Kubectl(t.Context(), "explain", "pizza.spec.toppings").CombinedOutput()
	require.NoError(t, err, "%s", explained)
	require.Contains(t, string(explained), "FIELD: toppings <[]PizzaTopping>")

	// A client can ask for what was seen last.
	cached, err := framework.ClientAt(t, cp, cp.KubeAPIServer).RestaurantV1().Pizzas("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, err)
	require.Len(t, cached.Items, 1)

	require.NoError(t, storage.Start(t.Context()))
	require.NoError(t, server.WaitReady(t.Context()))
	require.Equal(t, pid, server.PID(), "The server has been restarted.")
	back := framework.ClientAt(t, cp, cp.KubeAPIServer).RestaurantV1().Pizzas("default")
	require.NoError(t, back.Delete(t.Context(), "before", metav1.DeleteOptions{}))
	// The pricing controller may have written meanwhile.
	for event := framework.Next(t, watcher); event.Type != watch.Deleted; event = framework.Next(t, watcher) {
		require.Equal(t, watch.Modified, event.Type)
	}
}

func TestServerStartsBeforeItsEtcd(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "late"})
	late := cp.Component("late")
	require.NoError(t, server.Launch())
	framework.WaitForLog(t, server, `"Waiting for etcd" reason="etcd at [`+late.URL()+`] does not answer: `)
	require.NoError(t, late.Start(t.Context()))
	require.NoError(t, server.WaitReady(t.Context()))
	framework.Stock(t, cp, server)
	_, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("margherita"), metav1.CreateOptions{})
	require.NoError(t, err)
}

// A kind can be given an etcd of its own. Plugins know about other kinds, but not of changes at
// the same moment.
func TestKindsInDifferentEtcds(t *testing.T) {
	const prefix = "/different"
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Flags: []string{
		"--etcd-prefix=" + prefix, "--etcd-servers-overrides=restaurant.programming-kubernetes.info/pizzas#" + cp.Etcd.URL(),
	}}})
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	client := framework.ClientAt(t, cp, server).RestaurantV1()
	watcher, err := client.Pizzas("default").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watcher.Stop()
	_, err = client.Pizzas("default").Create(t.Context(), framework.Pizza("margherita"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, watch.Added, framework.Next(t, watcher).Type)

	for etcd, want := range map[*controlplane.Component][]string{
		cp.Component("storage"): {"toppings/tomato"},
		cp.Etcd:                 {"pizzas/default/margherita"},
	} {
		require.Equal(t, want, keysIn(t, etcd, prefix+"/restaurant.programming-kubernetes.info/"), etcd.Name())
	}
	requireUsed(t, client)
}

// keysIn returns what follows the prefix in the keys of an etcd that have it.
func keysIn(t *testing.T, etcd *controlplane.Component, prefix string) (keys []string) {
	t.Helper()
	stored, err := framework.EtcdClient(t, cp, etcd).Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	for _, kv := range stored.Kvs {
		keys = append(keys, strings.TrimPrefix(string(kv.Key), prefix))
	}
	return keys
}

// requireUsed has the margherita's topping be deleted after it, not before.
func requireUsed(t *testing.T, client typed.RestaurantV1Interface) {
	t.Helper()
	require.ErrorContains(t, client.Toppings().Delete(t.Context(), "tomato", metav1.DeleteOptions{}), "it is on the pizza default/margherita")
	require.NoError(t, client.Pizzas("default").Delete(t.Context(), "margherita", metav1.DeleteOptions{}))
	require.NoError(t, client.Toppings().Delete(t.Context(), "tomato", metav1.DeleteOptions{}))
}

// A backend without transactions of several keys stores the objects and nothing else. Plugins
// know about other kinds, but not of changes at the same moment.
func TestWithoutTransactions(t *testing.T) {
	const prefix = "/plain"
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Flags: []string{
		"--etcd-prefix=" + prefix, "--etcd-transactions=false",
	}}})
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	client := framework.ClientAt(t, cp, server).RestaurantV1()
	_, err := client.Pizzas("default").Create(t.Context(), framework.Pizza("margherita"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{
		"/restaurant.programming-kubernetes.info/pizzas/default/margherita",
		"/restaurant.programming-kubernetes.info/toppings/tomato",
	}, keysIn(t, cp.Component("storage"), prefix))
	requireUsed(t, client)
}
