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

package operations

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// orderPizza creates a pizza at a server. None of its replicas is baked.
func orderPizza(t *testing.T, at *controlplane.Component, name string, replicas int32) {
	t.Helper()
	wanted := framework.Pizza(name)
	wanted.Spec.Replicas = &replicas
	_, err := framework.ClientAt(t, cp, at).RestaurantV1().Pizzas("default").Create(t.Context(), wanted, metav1.CreateOptions{})
	require.NoError(t, err)
}

func bakeOne(t *testing.T, at *controlplane.Component, name string) {
	t.Helper()
	_, err := framework.ClientAt(t, cp, at).RestaurantV1().Pizzas("default").Bake(t.Context(), name, &restaurantv1.Bake{}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// track returns the body of a stream that goes on until the pizza is ready.
func track(t *testing.T, client *http.Client, at *controlplane.Component, name string, seconds int) *bufio.Scanner {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		fmt.Sprintf("%s%s/v1/namespaces/default/pizzas/%s/track?follow=true&timeoutSeconds=%d", at.URL(), framework.GroupPath, name, seconds), http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	return bufio.NewScanner(response.Body)
}

func requireLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	require.True(t, lines.Scan(), "The stream has ended: %v", lines.Err())
	require.Equal(t, want, lines.Text())
}

func requireEnd(t *testing.T, lines *bufio.Scanner) {
	t.Helper()
	require.False(t, lines.Scan(), "There is more: %q", lines.Text())
	require.NoError(t, lines.Err(), "The stream was cut off.")
}

func httpClient(t *testing.T, at *controlplane.Component) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(framework.AdminConfig(t, cp, at))
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// A stream is not a request that takes too long.
func TestTrackOutlivesTheRequestTimeout(t *testing.T) {
	t.Parallel()
	seconds := int(requestTimeout.Seconds()) + 2
	orderPizza(t, cp.APIServer, "long", 2)
	lines := track(t, httpClient(t, cp.APIServer), cp.APIServer, "long", seconds)
	requireLine(t, lines, "0 of 2 baked")
	requireLine(t, lines, fmt.Sprintf("timed out after %ds", seconds))
	requireEnd(t, lines)
}

// A server that is told to stop serves its streams for as long as requests may still
// be sent to it. Then it ends each with a last line, and ends itself.
func TestTrackUntilTheServerStops(t *testing.T) {
	framework.Long(t, "a server stops slowly")
	t.Parallel()
	// Long enough for all that is done until it is over.
	const delay = 15 * time.Second
	server := framework.NewServer(t, cp, framework.Flags("--shutdown-delay-duration="+delay.String()))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	orderPizza(t, server, "margherita", 5)
	client := httpClient(t, server)
	var streams []*bufio.Scanner
	for range 50 {
		lines := track(t, client, server, "margherita", 3600)
		requireLine(t, lines, "0 of 5 baked")
		streams = append(streams, lines)
	}

	stopped := time.Now()
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGTERM))
	framework.WaitUnready(t, cp, server, "shutdown")
	bakeOne(t, server, "margherita")
	late := track(t, client, server, "margherita", 3600)
	requireLine(t, late, "1 of 5 baked")
	for _, lines := range streams {
		requireLine(t, lines, "1 of 5 baked")
	}
	for _, lines := range append(streams, late) {
		requireLine(t, lines, "the server is shutting down")
		requireEnd(t, lines)
	}
	require.GreaterOrEqual(t, time.Since(stopped), delay)
	require.Equal(t, "without an error", framework.WaitEnded(t, server))
}

// A stream is fed by etcd, and waits for it when it is unavailable.
func TestTrackWhileEtcdIsAway(t *testing.T) {
	framework.Long(t, "timeouts are waited for")
	orderPizza(t, cp.APIServer, "patient", 2)
	lines := track(t, httpClient(t, cp.APIServer), cp.APIServer, "patient", 3600)
	requireLine(t, lines, "0 of 2 baked")
	storage := cp.Component("storage")
	require.NoError(t, storage.Stop())
	framework.WaitUnready(t, cp, cp.APIServer, "etcd")
	require.NoError(t, storage.Start(t.Context()))
	require.NoError(t, cp.APIServer.WaitReady(t.Context()))
	bakeOne(t, cp.APIServer, "patient")
	requireLine(t, lines, "1 of 2 baked")
	bakeOne(t, cp.APIServer, "patient")
	requireLine(t, lines, "2 of 2 baked: ready")
	requireEnd(t, lines)
}

// A thousand users that follow one pizza, through kube-apiserver as users do, cost what
// their connections cost. etcd does not notice them, and when they have left, nothing of
// them remains.
func TestAThousandTracks(t *testing.T) {
	framework.Long(t, "a thousand clients")
	const clients, megabyte = 1000, 1 << 20
	const goroutines = "go_goroutines"
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "orders"})
	etcd := cp.Component("orders")
	require.NoError(t, etcd.Start(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	orderPizza(t, server, "margherita", 3)
	framework.RegisterAtEnd(t, cp)
	require.NoError(t, cp.Register(t.Context(), server))
	ofServer := httpClient(t, server)
	config := rest.CopyConfig(framework.Config(cp))
	config.QPS = -1
	// It tries again, as clients do, where a busy machine has too much to do.
	ofKube, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	kube, err := kubernetes.NewForConfigAndClient(config, ofKube)
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	// kube-apiserver asks for it sooner or later, and it stays in memory.
	_, openAPI := framework.Get(t, cp, server, "/openapi/v2")
	require.NotEmpty(t, openAPI)
	memoryBefore, goroutinesBefore := memoryInUse(t, ofServer, server), metric(t, ofServer, server, goroutines)
	var all sync.WaitGroup
	var baked [2]atomic.Int32
	for client := range clients {
		all.Go(func() {
			stream, err := kube.CoreV1().RESTClient().Get().AbsPath(framework.GroupPath+"/v1/namespaces/default/pizzas/margherita/track").
				SetHeader(transport.ImpersonateUserHeader, fmt.Sprintf("user-%d", client)).
				SetHeader(transport.ImpersonateGroupHeader, user.SystemPrivilegedGroup).
				Param("follow", "true").Param("timeoutSeconds", "3600").Stream(ctx)
			if err != nil {
				assert.Fail(t, err.Error())
				return
			}
			defer stream.Close()
			lines := bufio.NewScanner(stream)
			for i := range baked {
				if !assert.True(t, lines.Scan(), "The stream has ended: %v", lines.Err()) {
					return
				}
				assert.Equal(t, fmt.Sprintf("%d of 3 baked", i), lines.Text())
				baked[i].Add(1)
			}
			<-ctx.Done()
		})
	}
	told := func(i int) {
		controlplane.Eventually(t, func() error {
			if told := baked[i].Load(); told < clients {
				return fmt.Errorf("only %d clients know that %d are baked", told, i)
			}
			return nil
		})
	}
	told(0)
	bakeOne(t, server, "margherita")
	told(1)
	more := (memoryInUse(t, ofServer, server) - memoryBefore) / megabyte
	t.Logf("%.0f MB more are in use", more)
	require.Less(t, more, 100.0)
	watches := metric(t, etcdClient(t), etcd, "etcd_debugging_mvcc_watcher_total")
	require.Positive(t, watches)
	require.Less(t, watches, 10.0)

	leave()
	all.Wait()
	ofKube.CloseIdleConnections()
	controlplane.Eventually(t, func() error {
		// Some come and go whatever a client does.
		if now := metric(t, ofServer, server, goroutines); now > goroutinesBefore+clients/20 {
			return fmt.Errorf("%v goroutines run, %v more than before", now, now-goroutinesBefore)
		}
		return nil
	})
}

// etcdClient may read the metrics of an etcd.
func etcdClient(t *testing.T) *http.Client {
	t.Helper()
	pair, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: "e2e"})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cp.PKI.ServingCA.Pool(), Certificates: []tls.Certificate{certificate}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// A server that has started a moment ago knows nothing of what was before: a pizza
// that is older is followed like any other.
func TestTrackAnOldPizza(t *testing.T) {
	framework.Long(t, "thousands of writes")
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	orderPizza(t, server, "old", 50)
	orderPizza(t, server, "new", 1)
	require.NoError(t, server.Restart(t.Context()))
	lines := track(t, httpClient(t, server), server, "old", 3600)
	requireLine(t, lines, "0 of 50 baked")
	const some = 10
	for range some {
		bakeOne(t, server, "old")
	}
	// A client that only looked now and then would have missed most of them.
	for baked := range some {
		requireLine(t, lines, fmt.Sprintf("%d of 50 baked", baked+1))
	}
}

// metric reads a number from the metrics of a component.
func metric(t *testing.T, client *http.Client, at *controlplane.Component, name string) float64 {
	t.Helper()
	response, err := client.Get(at.URL() + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	for line := range strings.Lines(string(body)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			require.NoError(t, err)
			return value
		}
	}
	require.Fail(t, "There is no such metric.", name)
	return 0
}

// memoryInUse is the bytes that a server can't give back. It collects the garbage first.
func memoryInUse(t *testing.T, client *http.Client, server *controlplane.Component) float64 {
	t.Helper()
	response, err := client.Get(server.URL() + "/debug/pprof/heap?gc=1")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	return metric(t, client, server, "go_memstats_heap_alloc_bytes") + metric(t, client, server, "go_memstats_stack_inuse_bytes")
}

// Replicas compete for the same pizzas. None is lost, and none is baked twice. On a busy machine
// a client may be told that nobody knows whether its order was executed.
func TestBakesOfTwoReplicas(t *testing.T) {
	framework.Long(t, "two replicas are started")
	t.Parallel()
	const orders, wanted = 200, 150
	second := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "storage"})
	require.NoError(t, second.Start(t.Context()))
	orderPizza(t, second, "competed-for", wanted)
	var baked, refused, unknown atomic.Int32
	var all sync.WaitGroup
	replicas := []*controlplane.Component{cp.APIServer, second}
	for i := range orders {
		pizzas := framework.ClientAt(t, cp, replicas[i%len(replicas)]).RestaurantV1().Pizzas("default")
		all.Go(func() {
			answer, err := pizzas.Bake(t.Context(), "competed-for", &restaurantv1.Bake{}, metav1.CreateOptions{})
			switch {
			case err == nil:
				baked.Add(answer.Status.Baked)
			case apierrors.IsConflict(err):
				refused.Add(1)
			default:
				unknown.Add(1)
				t.Log(err)
			}
		})
	}
	all.Wait()
	if unknown.Load() == 0 {
		require.EqualValues(t, wanted, baked.Load())
		require.EqualValues(t, orders-wanted, refused.Load())
	}
	for _, replica := range replicas {
		pizza, err := framework.ClientAt(t, cp, replica).RestaurantV1().Pizzas("default").Get(t.Context(), "competed-for", metav1.GetOptions{})
		require.NoError(t, err)
		require.LessOrEqual(t, pizza.Status.Replicas, int32(wanted))
		require.GreaterOrEqual(t, pizza.Status.Replicas, baked.Load())
		require.LessOrEqual(t, pizza.Status.Replicas, baked.Load()+unknown.Load())
	}
}
