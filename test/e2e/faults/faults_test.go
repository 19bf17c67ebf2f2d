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

// Package faults breaks everything that servers depend on, at random moments and while
// clients use them. It checks that no client was ever told an untruth. The answers to all
// reads and writes have to fit one order of all requests. Every watch has to show every
// change, once and in order.
//
// A campaign makes FAULTS=10 faults, chosen by FAULTS_SEED=1: the same seed chooses the same
// faults, if not the same moments. "make nightly SUITE=faults FAULTS=1000" runs a long one.
package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const (
	// watchers keep copies of all objects.
	watchers = 6
	// longestFault is how long something is stopped or cut off at most, and longestCalm
	// how long nothing happens.
	longestFault = 6 * time.Second
	longestCalm  = 2 * time.Second
	// slowness is what a slow network adds to each packet.
	slowness = 50 * time.Millisecond
	// checkTimeout bounds the search for an order of the requests for one object.
	checkTimeout = 2 * time.Minute
)

// number is an environment variable's, or the default.
func number(t *testing.T, variable string, fallback int) int {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return fallback
	}
	n, err := strconv.Atoi(value)
	require.NoError(t, err, variable)
	return n
}

// TestReplicas breaks two replicas, their external etcd, the networks between them, and kube-apiserver.
func TestReplicas(t *testing.T) {
	framework.Long(t, "TestEmbedded is the short one")
	c := newCampaign(t, "storage", 2)
	etcd := c.cp.Component("storage")
	client := framework.EtcdClient(t, c.cp, etcd)
	faults := slices.Concat(c.faultsOf(c.servers[0]), c.faultsOf(c.servers[1]), c.faultsOf(etcd), c.faultsOf(c.cp.KubeAPIServer), []fault{
		{"kill all replicas", func() { c.killAndStart(c.servers...) }},
		{"kill all replicas and etcd", func() { c.killAndStart(slices.Concat(c.servers, []*controlplane.Component{etcd})...) }},
		{"compact etcd", func() {
			response, err := client.Get(t.Context(), "none")
			require.NoError(t, err)
			_, err = client.Compact(t.Context(), response.Header.Revision)
			require.NoError(t, err)
		}},
		{"take the Lease from the leader", func() {
			leases := kubernetes.NewForConfigOrDie(c.cp.RESTConfig()).CoordinationV1().Leases("restaurant-system")
			require.NoError(t, leases.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
		}},
	})
	for i, link := range c.links {
		faults = append(faults, c.networkFaults(fmt.Sprintf("replica %d's network to etcd", i), link)...)
	}
	c.run(faults)
}

// TestEmbedded breaks a server with an etcd in its process.
func TestEmbedded(t *testing.T) {
	c := newCampaign(t, "", 1)
	c.run(slices.Concat(c.faultsOf(c.servers[0]), c.faultsOf(c.cp.KubeAPIServer)))
}

// fault is something that goes wrong, and is repaired.
type fault struct {
	name  string
	cause func()
}

// campaign breaks things while clients use them.
type campaign struct {
	*testing.T
	cp      *controlplane.ControlPlane
	servers []*controlplane.Component
	links   []*link
	configs []*rest.Config
	// toppings are clients of each server, and of kube-apiserver.
	toppings []typed.ToppingInterface
	load     *workload
	seed     uint64
	random   *rand.Rand
}

// newCampaign starts servers with the etcd of that name, or with their own.
func newCampaign(t *testing.T, etcd string, servers int) *campaign {
	t.Helper()
	config := controlplane.Config{}
	config.APIServer.Off = true
	config.ControllerManager.Off = true
	seed := uint64(number(t, "FAULTS_SEED", 1))
	c := &campaign{T: t, cp: controlplane.ForTest(t, config), seed: seed, random: rand.New(rand.NewPCG(seed, 0))}
	require.NoError(t, c.cp.Install(t.Context()))
	for i := range servers {
		server, err := c.cp.NewAPIServer(fmt.Sprintf("replica-%d", i), controlplane.ServerConfig{Etcd: etcd})
		require.NoError(t, err)
		c.servers = append(c.servers, server)
		if etcd == "" {
			continue
		}
		link := newLink(t, strings.TrimPrefix(c.cp.Component(etcd).URL(), "https://"))
		server.SetFlags("--etcd-servers=https://" + link.address())
		c.links = append(c.links, link)
	}
	if etcd != "" {
		require.NoError(t, c.cp.Component(etcd).Start(t.Context()))
	}
	for _, server := range c.servers {
		require.NoError(t, server.Start(t.Context()))
		c.configs = append(c.configs, framework.AdminConfig(t, c.cp, server))
	}
	require.NoError(t, c.cp.Register(t.Context(), c.servers[0]))
	c.configs = append(c.configs, c.cp.RESTConfig())
	for _, config := range c.configs {
		c.toppings = append(c.toppings, versioned.NewForConfigOrDie(config).RestaurantV1().Toppings())
	}
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(c.cp.RESTConfig()), "tomato"))
	return c
}

func (c *campaign) setLinks(condition condition) {
	for _, link := range c.links {
		link.set(condition)
	}
}

// sleep waits for a random time.
func (c *campaign) sleep(longest time.Duration) {
	time.Sleep(time.Duration(c.random.Int64N(int64(longest))))
}

// faultsOf are what can go wrong with a process.
func (c *campaign) faultsOf(component *controlplane.Component) []fault {
	name := component.Name()
	return []fault{
		{"kill " + name, func() { c.killAndStart(component) }},
		{"kill " + name + " while it starts", func() {
			component.Kill()
			for range 1 + c.random.IntN(3) {
				require.NoError(c, component.Launch())
				c.sleep(2 * time.Second)
				component.Kill()
			}
			require.NoError(c, component.Start(c.Context()))
		}},
		{"restart " + name, func() { require.NoError(c, component.Restart(c.Context())) }},
		{"stop the time of " + name, func() {
			pid := component.PID()
			require.NoError(c, syscall.Kill(pid, syscall.SIGSTOP))
			c.sleep(longestFault)
			require.NoError(c, syscall.Kill(pid, syscall.SIGCONT))
		}},
	}
}

// networkFaults are what can go wrong with a network.
func (c *campaign) networkFaults(name string, network *link) []fault {
	var faults []fault
	for _, problem := range []struct {
		name      string
		condition condition
	}{{"cut", cut}, {"silence", silent}, {"slow down", slow}} {
		faults = append(faults, fault{problem.name + " " + name, func() {
			network.set(problem.condition)
			c.sleep(longestFault)
			network.set(healthy)
		}})
	}
	return faults
}

// killAndStart ends processes as a crash would, and starts them again after a while.
func (c *campaign) killAndStart(components ...*controlplane.Component) {
	for _, component := range components {
		component.Kill()
	}
	c.sleep(longestFault)
	for _, component := range components {
		require.NoError(c, component.Launch())
	}
	for _, component := range components {
		require.NoError(c, component.WaitReady(c.Context()))
	}
}

// run makes faults under load, and checks what clients and watchers were told.
func (c *campaign) run(faults []fault) *workload {
	count := number(c.T, "FAULTS", 10)
	c.Logf("FAULTS=%d FAULTS_SEED=%d", count, c.seed)
	load, err := newWorkload(c.configs)
	require.NoError(c, err)
	c.load = load
	var copies []*watcher
	var watching, working sync.WaitGroup
	watchContext, stopWatching := context.WithCancel(c.Context())
	defer watching.Wait()
	defer stopWatching()
	for i := range watchers {
		copies = append(copies, &watcher{servers: c.toppings, random: rand.New(rand.NewPCG(c.seed, uint64(100+i)))})
		watching.Go(func() { copies[i].run(watchContext) })
	}
	workContext, stopWorking := context.WithCancel(c.Context())
	defer working.Wait()
	defer stopWorking()
	for i := range clients {
		working.Go(func() { load.run(workContext, i, rand.New(rand.NewPCG(c.seed, uint64(1+i)))) })
	}

	back := map[string][]time.Duration{}
	// Each fault comes before any comes again.
	var next []int
	for i := range count {
		c.sleep(longestCalm)
		if len(next) == 0 {
			next = c.random.Perm(len(faults))
		}
		fault := faults[next[0]]
		next = next[1:]
		began := time.Now()
		fault.cause()
		repaired := time.Now()
		c.waitForWrites()
		back[fault.name] = append(back[fault.name], time.Since(repaired))
		c.Logf("%4d %s: %s, and writes %.1f s after it", i, began.Format(time.TimeOnly), fault.name, time.Since(repaired).Seconds())
		load.epoch.Add(1)
	}
	stopWorking()
	working.Wait()
	c.report(load, copies, back)
	c.check(load, copies, c.toppings[0])
	return load
}

// waitForWrites waits until every server stores what it is sent.
func (c *campaign) waitForWrites() {
	for _, toppings := range c.toppings {
		controlplane.Eventually(c, func() error {
			ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
			defer cancel()
			return c.write(ctx, toppings)
		})
	}
}

// write changes what no client does.
func (c *campaign) write(ctx context.Context, toppings typed.ToppingInterface) error {
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"faults.example.com/written": "%d"}}}`, time.Now().UnixNano())
	_, err := toppings.Patch(ctx, "tomato", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// check compares what clients and watchers were told with what is possible.
func (c *campaign) check(load *workload, copies []*watcher, toppings typed.ToppingInterface) {
	// A watcher that has seen the last write has seen all, but for those that nobody waits for
	// any more, which may still be stored.
	client := versioned.NewForConfigOrDie(c.configs[0])
	controlplane.Eventually(c, func() error { return fixture.CreateToppings(c.Context(), client, "last") })
	for _, copied := range copies {
		controlplane.Eventually(c, func() error {
			list, err := toppings.List(c.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			return copied.holds(list.Items)
		})
		require.Empty(c, copied.check(load.acknowledged))
	}
	wrong, undecided := load.history.check(checkTimeout)
	require.Empty(c, wrong, "There is no order of the requests that explains the answers.")
	require.Empty(c, undecided, "No order of the requests was found in %s.", checkTimeout)
	require.NotEmpty(c, load.acknowledged)
}

// report logs, as docs/lab/reliability.md has it, how many faults there were and how long after
// each all servers stored writes again.
func (c *campaign) report(load *workload, copies []*watcher, back map[string][]time.Duration) {
	var out strings.Builder
	out.WriteString("| fault | times | writes back: median | longest |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(back)) {
		times := slices.Sorted(slices.Values(back[name]))
		fmt.Fprintf(&out, "| %s | %d | %.1f s | %.1f s |\n", name, len(times), times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
	}
	lists, watches := 0, 0
	for _, copied := range copies {
		copied.mu.Lock()
		lists += len(copied.spans)
		watches += copied.watches
		copied.mu.Unlock()
	}
	fmt.Fprintf(&out, "%d requests, %d of them perhaps stored; %d watchers began %d watches after %d lists",
		len(load.history.operations), load.history.unknown, len(copies), watches, lists)
	c.Log("\n" + out.String())
}
