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

package testing

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/default/leases/test-controllers"

// fastElection makes a replica lose its lease within seconds.
func fastElection() []string {
	return []string{"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms"}
}

// controller creates a machine by the loopback client whenever it begins to run.
type controller struct {
	client  dynamic.Interface
	t       *testing.T
	started chan struct{}
	stopped chan struct{}
}

func (c *controller) Run(ctx context.Context) {
	begun := machine("")
	begun.SetGenerateName("begun-")
	_, err := c.client.Resource(machineResource).Namespace("default").Create(ctx, begun, metav1.CreateOptions{})
	if err != nil {
		assert.Fail(c.t, "the controller can't write by the loopback client", err.Error())
	}
	c.started <- struct{}{}
	<-ctx.Done()
	c.stopped <- struct{}{}
}

// replica starts a server with a controller, and informers of its cluster.
func replica(t *testing.T, of *cluster.Cluster, flags ...string) (*Server, *controller) {
	t.Helper()
	c := &controller{t: t, started: make(chan struct{}, 10), stopped: make(chan struct{}, 10)}
	group := workshop.Group()
	group.Runtime = func(clients registry.Clients) (r registry.Runtime, err error) {
		if c.client, err = dynamic.NewForConfig(clients.Loopback); err != nil {
			return r, err
		}
		kube, err := kubernetes.NewForConfig(clients.Cluster)
		if err != nil {
			return r, err
		}
		factory := informers.NewSharedInformerFactory(kube, 0)
		factory.Core().V1().Namespaces().Informer()
		return registry.Runtime{Informers: factory, Controllers: []registry.Controller{c}}, nil
	}
	return startWith(t, Config{Cluster: of, Groups: []registry.Group{group}, Flags: flags}), c
}

func await(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience):
		require.Failf(t, "nothing has happened", "The controller has not %s.", what)
	}
}

func leader(of *cluster.Cluster) string {
	lease := of.Get(leasePath)
	if lease == nil {
		return ""
	}
	spec, _ := lease.Object["spec"].(map[string]any)
	holder, _ := spec["holderIdentity"].(string)
	return holder
}

// One replica runs the controllers. One that stops hands over at once.
func TestOneReplicaLeads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: leases are waited for")
	}
	first, its := replica(t, nil)
	await(t, "started", its.started)
	holder := leader(first.Cluster)
	require.NotEmpty(t, holder)

	_, other := replica(t, first.Cluster)
	require.Equal(t, holder, leader(first.Cluster))
	select {
	case <-other.started:
		require.Fail(t, "Both replicas run their controllers.")
	default:
	}

	require.NoError(t, first.Stop())
	await(t, "stopped", its.stopped)
	await(t, "started", other.started)
	require.NotEqual(t, holder, leader(first.Cluster))
}

// A replica that loses its lease stops its controllers, serves on, and applies again.
func TestLostLease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: leases are waited for")
	}
	server, its := replica(t, nil, fastElection()...)
	await(t, "started", its.started)
	server.Cluster.Fail(func(req *http.Request) int {
		if strings.Contains(req.URL.Path, "/leases") {
			return http.StatusInternalServerError
		}
		return 0
	})
	await(t, "stopped", its.stopped)
	_, code := get(t, server.ClientConfig, "/readyz")
	require.Equal(t, http.StatusOK, code, "Whether a replica is ready does not depend on who leads.")
	create(t, server.ClientConfig, "drill")
	server.Cluster.Fail(func(*http.Request) int { return 0 })
	await(t, "started again", its.started)
}

// Controllers may run without an election, or elsewhere.
func TestNoElection(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: leases are waited for")
	}
	alone, its := replica(t, nil, "--leader-elect=false")
	await(t, "started", its.started)
	require.Empty(t, leader(alone.Cluster))
	require.NoError(t, alone.Stop())
	await(t, "stopped", its.stopped)

	never, its := replica(t, nil, "--run-controllers=false")
	require.NoError(t, never.Stop())
	require.Empty(t, its.started)
	require.Empty(t, leader(never.Cluster))
}
