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

// Package rollout tests that users do not notice when replicas are replaced. With
// --enable-aggregator-routing, kube-apiserver chooses a replica for each request. Without
// it, something between them chooses one for each connection, as kube-proxy and load
// balancers do.
//
// ROLLINGS=20 says how often all replicas are replaced, "make nightly SUITE=rollings" runs many.
package rollout

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

const (
	// shutdownDelay is how long a replica that is to end goes on serving.
	shutdownDelay = 3 * time.Second
	// workers send the requests of the load, with a pause between two.
	workers  = 16
	pause    = time.Second / 200
	watchers = 20
	// lostPerStop is how many writes may fail when a replica stops: those on their way when kube-apiserver reads GOAWAY,
	// which it can't repeat. Upstream fault 77.
	lostPerStop = workers
)

// retries is how often client-go repeats a request that it is told to repeat, by default.
const retries = 10

// TestRollingRestart replaces replicas in turn, under load.
func TestRollingRestart(t *testing.T) {
	for _, test := range []struct {
		name     string
		replicas int
		balanced bool
		// retries counts what clients repeated.
		retries int
		// rollings is how often all are replaced, unless ROLLINGS says so.
		rollings int
	}{
		{"2 replicas", 2, false, 0, 1},
		{"3 replicas", 3, false, 0, 0},
		{"2 replicas behind an address", 2, true, retries, 1},
		{"3 replicas behind an address", 3, true, retries, 0},
	} {
		rollings := test.rollings
		if value := os.Getenv("ROLLINGS"); value != "" {
			var err error
			rollings, err = strconv.Atoi(value)
			require.NoError(t, err)
		}
		if rollings == 0 {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			if test.balanced {
				framework.Long(t, "replicas behind kube-apiserver are the short one")
			}
			r := newReplicas(t, test.replicas, test.balanced)
			load := startLoad(t, r.cp.RESTConfig(), test.retries)
			began := time.Now()
			for range rollings {
				for i := range r.servers {
					r.replace(t, i)
				}
			}
			load.stop()

			t.Logf("%d rollings in %.0f s: %d requests, %d of them to watch; %d failed, and %d of the writes: %v",
				rollings, time.Since(began).Seconds(), load.requests.Load(), load.watches.Load(), len(load.failures), len(load.lost), load.lost)
			require.Empty(t, load.failures)
			require.LessOrEqual(t, len(load.lost), lostPerStop*rollings*test.replicas)
			// Each replacement ends the watches of one replica.
			require.Greater(t, load.watches.Load(), int64(watchers))
			require.Greater(t, load.requests.Load(), int64(200))
			for i, seen := range load.seen {
				require.GreaterOrEqual(t, seen, load.written, "Watcher %d has missed something.", i)
				require.LessOrEqual(t, seen, load.written+len(load.lost), "Watcher %d has seen too much.", i)
			}
		})
	}
}

// replicas are servers that kube-apiserver chooses from, or somebody for it.
type replicas struct {
	cp       *controlplane.ControlPlane
	servers  []*controlplane.Component
	balancer *balancer
}

// The Service, with an address of the range that kube-apiserver gives to Services.
const (
	namespace = "restaurant-system"
	service   = "apiserver"
	serviceIP = "10.96.0.77"
	port      = 8443
)

func newReplicas(t *testing.T, count int, balanced bool) *replicas {
	t.Helper()
	// Endpoints of a Service can't be on the loopback network.
	cluster := network.ForTest(t, "10.0.0.1")
	config := controlplane.Config{Host: cluster}
	if !balanced {
		config.KubeAPIServer.Flags = []string{"--enable-aggregator-routing=true"}
	}
	config.ControllerManager.Off = true
	config.APIServer.Off = true
	cp := controlplane.ForTest(t, config)
	require.NoError(t, cp.Install(t.Context()))

	r := &replicas{cp: cp}
	etcd := "storage"
	for i := range count {
		address := fmt.Sprintf("10.0.0.%d", 2+i)
		host, err := cluster.At(address)
		require.NoError(t, err)
		server, err := cp.NewAPIServer("server-"+address, controlplane.ServerConfig{
			Etcd: etcd,
			ComponentConfig: controlplane.ComponentConfig{
				Host: host, Port: port, Flags: []string{"--run-controllers=false", "--shutdown-delay-duration=" + shutdownDelay.String()},
			},
		})
		require.NoError(t, err)
		r.servers = append(r.servers, server)
	}
	require.NoError(t, cp.Component(etcd).Start(t.Context()))
	for _, server := range r.servers {
		require.NoError(t, server.Start(t.Context()))
	}
	if balanced {
		r.balancer = newBalancer(t, cluster, r.servers)
		_, err := kubernetes.NewForConfigOrDie(cp.RESTConfig()).CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: service},
			Spec:       corev1.ServiceSpec{ClusterIP: serviceIP, Ports: []corev1.ServicePort{{Name: "https", Port: port}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, cp.Register(t.Context(), r.servers...))
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato"))
	return r
}

// balancer connects each client of the Service to one of the servers that are ready, one
// after the other.
type balancer struct {
	servers []*controlplane.Component

	mu      sync.Mutex
	unready map[int]bool
	next    int
}

func newBalancer(t *testing.T, cluster *network.Host, servers []*controlplane.Component) *balancer {
	t.Helper()
	host, err := cluster.At(serviceIP)
	require.NoError(t, err)
	listener, err := host.Listen("tcp", net.JoinHostPort(serviceIP, strconv.Itoa(port)))
	require.NoError(t, err)
	b := &balancer{servers: servers, unready: map[int]bool{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go b.connect(conn)
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-ended
	})
	return b
}

func (b *balancer) connect(client net.Conn) {
	defer client.Close()
	target := b.choose()
	server, err := target.Host().DialContext(context.Background(), "tcp", strings.TrimPrefix(target.URL(), "https://"))
	if err != nil {
		return
	}
	defer server.Close()
	var copying sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		copying.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			// Data that was sent before is still delivered.
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	copying.Wait()
}

func (b *balancer) choose() *controlplane.Component {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		i := b.next % len(b.servers)
		b.next++
		if !b.unready[i] {
			return b.servers[i]
		}
	}
}

func (b *balancer) setReady(i int, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unready[i] = !ready
}

// replace ends a replica and starts it again, as the kubelet would. The replica is no
// longer an endpoint, but learns of its end at the same time as everybody else.
func (r *replicas) replace(t *testing.T, i int) {
	t.Helper()
	ended := make(chan error)
	go func() { ended <- r.servers[i].Stop() }()
	r.setReady(t, i, false)
	require.NoError(t, <-ended)
	require.NoError(t, r.servers[i].Start(t.Context()))
	r.setReady(t, i, true)
}

func (r *replicas) setReady(t *testing.T, i int, ready bool) {
	t.Helper()
	if r.balancer != nil {
		r.balancer.setReady(i, ready)
	}
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/endpoints/%d/conditions/ready", "value": %t}]`, i, ready)
	_, err := kubernetes.NewForConfigOrDie(r.cp.RESTConfig()).DiscoveryV1().EndpointSlices(namespace).
		Patch(t.Context(), service, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// load is what users do all the time.
type load struct {
	pizzas typed.PizzaInterface
	rest   rest.Interface
	// retries is how often a request is repeated that the client is told to repeat.
	retries int

	// stop ends the load and waits until nothing of it is left.
	stop func()

	requests, watches atomic.Int64

	mu       sync.Mutex
	failures []string
	// lost are the errors of writes.
	lost []string
	// written counts the pizzas that were created; seen, those that each of the
	// watchers was told of.
	written int
	seen    [watchers]int
}

func startLoad(t *testing.T, config *rest.Config, retries int) *load {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	l := &load{pizzas: client.RestaurantV1().Pizzas("default"), rest: client.RestaurantV1().RESTClient(), retries: retries}

	list, err := l.pizzas.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	watching, stopWatching := context.WithCancel(t.Context())
	var watches sync.WaitGroup
	for i := range watchers {
		watches.Go(func() { l.watch(watching, i, list.ResourceVersion) })
	}
	writing, stopWriting := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	var next atomic.Int64
	for range workers {
		// A client that waits for an answer sends nothing meanwhile, so that a slow
		// machine is not given more than it can do.
		requests.Go(func() {
			ticker := time.NewTicker(workers * pause)
			defer ticker.Stop()
			for {
				select {
				case <-writing.Done():
					return
				case <-ticker.C:
					l.request(t.Context(), int(next.Add(1)-1))
				}
			}
		})
	}
	l.stop = func() {
		stopWriting()
		requests.Wait()
		// The last that was written is the last that is seen.
		deadline := time.Now().Add(controlplane.Patience)
		for !l.seenAll() && time.Now().Before(deadline) {
			time.Sleep(pause)
		}
		stopWatching()
		watches.Wait()
	}
	return l
}

// request sends the i-th request.
func (l *load) request(ctx context.Context, i int) {
	name := fmt.Sprintf("pizza-%d", i)
	var err error
	switch i % 4 {
	case 0:
		body := &restaurantv1.Pizza{
			TypeMeta:   metav1.TypeMeta{APIVersion: restaurantv1.SchemeGroupVersion.String(), Kind: "Pizza"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: "tomato"}}},
		}
		err = l.rest.Post().MaxRetries(l.retries).Namespace("default").Resource("pizzas").Body(body).Do(ctx).Error()
		if err == nil {
			l.mu.Lock()
			l.written++
			l.mu.Unlock()
		}
	case 1:
		err = l.rest.Get().MaxRetries(l.retries).Namespace("default").Resource("pizzas").Param("limit", "10").Do(ctx).Error()
	case 2:
		err = l.rest.Get().MaxRetries(l.retries).Resource("toppings").Name("tomato").Do(ctx).Error()
	case 3:
		patch := fmt.Sprintf(`{"apiVersion": %q, "kind": "Topping", "metadata": {"name": "topping-%d"}, "spec": {"cost": "%d"}}`,
			restaurantv1.SchemeGroupVersion.String(), i%100, i)
		err = l.rest.Patch(types.ApplyPatchType).MaxRetries(l.retries).Resource("toppings").Name(fmt.Sprintf("topping-%d", i%100)).
			Param("fieldManager", "load").Body([]byte(patch)).Do(ctx).Error()
	}
	l.requests.Add(1)
	if err != nil && (i%4 == 0 || i%4 == 3) {
		l.mu.Lock()
		l.lost = append(l.lost, fmt.Sprintf("request %d: %v", i, err))
		l.mu.Unlock()
		return
	}
	l.fail(ctx, fmt.Sprintf("request %d", i), err)
}

// watch watches from where the last watch has ended.
func (l *load) watch(ctx context.Context, i int, resourceVersion string) {
	for ctx.Err() == nil {
		watcher, err := l.pizzas.Watch(ctx, metav1.ListOptions{ResourceVersion: resourceVersion, AllowWatchBookmarks: true})
		l.watches.Add(1)
		l.requests.Add(1)
		if l.fail(ctx, fmt.Sprintf("watch %d", i), err); err != nil {
			return
		}
		for event := range watcher.ResultChan() {
			pizza, ok := event.Object.(*restaurantv1.Pizza)
			if !ok {
				l.fail(ctx, fmt.Sprintf("watch %d", i), fmt.Errorf("event %v", event))
				return
			}
			resourceVersion = pizza.ResourceVersion
			if event.Type == watch.Added {
				l.mu.Lock()
				l.seen[i]++
				l.mu.Unlock()
			}
		}
	}
}

func (l *load) seenAll() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seen := range l.seen {
		if seen < l.written {
			return false
		}
	}
	return true
}

// fail notes what went wrong, unless it is over.
func (l *load) fail(ctx context.Context, what string, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf("%s %s: %v", time.Now().Format(time.StampMilli), what, err))
}
