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

package remote

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/bastion"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// TestSOCKS uses the API by "ssh -D" from a host that has no other way to it.
func TestSOCKS(t *testing.T) {
	network := bastion.ForTest(t)
	var config controlplane.Config
	network.Configure(&config)
	cp := start(t, config, network.Open)
	server := net.JoinHostPort(network.Cluster.Address(), strconv.Itoa(cp.KubeAPIServer.Port()))
	direct := user{ControlPlane: cp, kubeconfig: kubeconfigVia(t, cp, "", "")}
	socks := user{ControlPlane: cp}

	t.Run("there is no other way", func(t *testing.T) {
		require.Equal(t, "Unable to connect to the server: dial tcp "+server+": connect: network is unreachable", direct.complaint(t, "get", "pizzas"))
		_, err := network.Client.DialContext(t.Context(), "tcp", server)
		require.ErrorContains(t, err, "network is unreachable")
	})
	t.Run("by proxy-url", func(t *testing.T) { requireAllWorks(t, socks, "by-proxy-url") })
	t.Run("by HTTPS_PROXY", func(t *testing.T) {
		u := direct
		u.env = []string{"HTTPS_PROXY=" + bastion.ProxyURL}
		requireAllWorks(t, u, "by-variable")
	})
	t.Run("by a name that only the bastion knows", func(t *testing.T) {
		address := net.JoinHostPort(bastion.Name, strconv.Itoa(cp.KubeAPIServer.Port()))
		u := user{ControlPlane: cp, kubeconfig: kubeconfigVia(t, cp, bastion.ProxyURL, "https://"+address)}
		requireAllWorks(t, u, "by-name")
		u.kubeconfig = kubeconfigVia(t, cp, "", "https://"+address)
		require.Regexp(t, `^Unable to connect to the server: dial tcp: lookup kubernetes\.default\.svc`, u.complaint(t, "get", "pizzas"))
	})
	for name, test := range map[string]struct{ address, reason string }{
		"to where nobody is":           {"10.0.0.3:1", "connect failed: Connection refused"},
		"to where the user may not go": {"10.0.0.2:22", "administratively prohibited: open failed"},
	} {
		t.Run(name, func(t *testing.T) {
			u := user{ControlPlane: cp, kubeconfig: kubeconfigVia(t, cp, bastion.ProxyURL, "https://"+test.address)}
			require.Equal(t, "Unable to connect to the server: socks connect tcp 127.0.0.1:1080->"+test.address+": EOF", u.complaint(t, "get", "pizzas"))
			log, err := os.ReadFile(network.Tunnel.LogFile())
			require.NoError(t, err)
			require.Contains(t, string(log), test.reason)
		})
	}
	t.Run("through a tunnel that is cut", func(t *testing.T) { testCut(t, network, cp, server) })
}

// testCut cuts the tunnel and opens it again.
func testCut(t *testing.T, network *bastion.Network, cp *controlplane.ControlPlane, server string) {
	socks := user{ControlPlane: cp}
	// A client in the cluster is there meanwhile.
	inside := cp.RESTConfig()
	inside.Proxy, inside.Dial = http.ProxyURL(nil), network.Cluster.DialContext
	near := versioned.NewForConfigOrDie(inside).RestaurantV1().Pizzas("default")
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/before created\n", socks.kubectl(t, margherita("before", 1), "create", "--filename=-"))

	informers := externalversions.NewSharedInformerFactory(versioned.NewForConfigOrDie(cp.RESTConfig()), 0)
	pizzas := informers.Restaurant().V1().Pizzas()
	synced := pizzas.Informer().HasSynced
	informers.Start(t.Context().Done())
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), synced))
	names := func() []string {
		list, err := pizzas.Lister().List(labels.Everything())
		require.NoError(t, err)
		var names []string
		for _, pizza := range list {
			names = append(names, pizza.Name)
		}
		slices.Sort(names)
		return names
	}
	require.Equal(t, []string{"before"}, names())
	watch := follow(t, socks.command(t, "get", "pizzas", "--watch", "--output-watch-events", "--no-headers"))
	require.Equal(t, "ADDED", watch.cells()[0])

	network.Tunnel.Kill()
	_, err := io.ReadAll(watch.lines)
	require.NoError(t, err)
	// kubectl's own words: they do not say that it is the tunnel that refused.
	refused := "The connection to the server " + server + " was refused - did you specify the right host or port?"
	// kubectl may have been between the list and the watch. The end of a watch is no error to it.
	if watch.cmd.Wait() != nil {
		require.Regexp(t, `^(error: Get "https://`+regexp.QuoteMeta(server)+`/.*": proxyconnect tcp: dial tcp 127\.0\.0\.1:1080: connect: connection refused|`+regexp.QuoteMeta(refused)+`)`,
			watch.stderr.String())
	}
	require.Equal(t, refused, socks.complaint(t, "get", "pizzas"))

	pizza, err := near.Get(t.Context(), "before", metav1.GetOptions{})
	require.NoError(t, err)
	pizza.ObjectMeta = metav1.ObjectMeta{Name: "meanwhile"}
	_, err = near.Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, near.Delete(t.Context(), "before", metav1.DeleteOptions{}))
	require.Equal(t, []string{"before"}, names())

	require.NoError(t, network.Tunnel.Start(t.Context()))
	controlplane.Eventually(t, func() error {
		if got := names(); !slices.Equal(got, []string{"meanwhile"}) {
			return fmt.Errorf("the informer knows %q", got)
		}
		return nil
	})
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/meanwhile\n", socks.kubectl(t, "", "get", "pizzas", "--output=name"))
}
