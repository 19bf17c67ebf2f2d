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

package faults

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// stopping is how long a server may take to end, beside --shutdown-delay-duration. A
	// machine that does other things may need more. A server that waited for a silent
	// client would need a minute.
	stopping     = 6 * time.Second
	slowStopping = 30 * time.Second
	// stoppers are servers that are started and stopped at the same time.
	stoppers = 4
	// longestStart is when servers are ready on most machines.
	longestStart = 4 * time.Second
)

// TestStops ends servers, with an etcd in their process, by SIGTERM at random moments.
// STOPS=1000 ends a thousand, half while they start, and half while they have connections.
// These are busy, idle, or in a handshake that never ends, or ends too late.
func TestStops(t *testing.T) {
	framework.Long(t, "servers are stopped again and again")
	stops := number(t, "STOPS", 8)
	limit := slowStopping
	if os.Getenv("STOPS") != "" {
		limit = stopping
	}
	config := controlplane.Config{}
	config.APIServer.Off = true
	config.ControllerManager.Off = true
	cp := controlplane.ForTest(t, config)
	require.NoError(t, cp.Install(t.Context()))

	var mu sync.Mutex
	took := map[string][]time.Duration{}
	var stopping sync.WaitGroup
	for i := range stoppers {
		delay := time.Duration(i%2) * time.Second
		server, err := cp.NewAPIServer(fmt.Sprintf("stops-%d", i), controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{
			Flags: []string{"--shutdown-delay-duration=" + delay.String()},
		}})
		require.NoError(t, err)
		random := rand.New(rand.NewPCG(uint64(number(t, "FAULTS_SEED", 1)), uint64(i)))
		stopping.Go(func() {
			for range stops / stoppers {
				moment, duration := stopOnce(t, cp, server, random)
				mu.Lock()
				took[moment] = append(took[moment], duration-delay)
				mu.Unlock()
			}
		})
	}
	stopping.Wait()

	var out strings.Builder
	out.WriteString("| SIGTERM | stops | longer than the delay by: median | longest |\n|---|---|---|---|\n")
	var longest time.Duration
	for _, moment := range []string{"while it starts", "when it serves"} {
		times := slices.Sorted(slices.Values(took[moment]))
		if len(times) == 0 {
			continue
		}
		fmt.Fprintf(&out, "| %s | %d | %.1f s | %.1f s |\n", moment, len(times), times[len(times)/2].Seconds(), times[len(times)-1].Seconds())
		longest = max(longest, times[len(times)-1])
	}
	t.Log("\n" + out.String())
	require.NotZero(t, longest)
	require.Less(t, longest, limit)
}

// stopOnce starts a server and stops it, and returns how long the latter took.
func stopOnce(t *testing.T, cp *controlplane.ControlPlane, server *controlplane.Component, random *rand.Rand) (moment string, took time.Duration) {
	var late []func()
	if random.IntN(2) == 0 {
		moment = "while it starts"
		if err := server.Launch(); err != nil {
			assert.Fail(t, err.Error())
			return moment, 0
		}
		time.Sleep(time.Duration(random.Int64N(int64(longestStart))))
	} else {
		moment = "when it serves"
		if err := server.Start(t.Context()); err != nil {
			assert.Fail(t, err.Error())
			return moment, 0
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		late = occupy(ctx, t, cp, server, random)
		time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
	}
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// As a kubelet does, with more patience.
		assert.NoError(t, server.Stop())
	}()
	for _, act := range late {
		go act()
	}
	<-ended
	return moment, time.Since(began)
}

// occupy opens connections of all kinds, until the context ends, and returns what is to be
// done once the server is told to stop.
func occupy(ctx context.Context, t *testing.T, cp *controlplane.ControlPlane, server *controlplane.Component, random *rand.Rand) (late []func()) {
	client := versioned.NewForConfigOrDie(framework.AdminConfig(t, cp, server)).RestaurantV1().Toppings()
	if watch, err := client.Watch(ctx, metav1.ListOptions{}); assert.NoError(t, err) {
		go func() {
			for range watch.ResultChan() { // Until it is closed.
			}
		}()
	}
	go func() {
		for ctx.Err() == nil {
			_, _ = client.List(ctx, metav1.ListOptions{}) // It fails in the end.
		}
	}()
	open := func() net.Conn {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(server.URL(), "https://"))
		if err != nil {
			assert.Fail(t, err.Error())
			return nil
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		return conn
	}
	for range 3 {
		handshake := func(conn net.Conn) {
			_ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(ctx)
		}
		open() // A handshake that never begins.
		if conn := open(); conn != nil {
			handshake(conn) // Nothing is ever sent.
		}
		if conn := open(); conn != nil {
			wait := time.Duration(random.Int64N(int64(3 * time.Second)))
			late = append(late, func() {
				time.Sleep(wait)
				handshake(conn)
			})
		}
	}
	return late
}

// TestOutages takes etcd away from servers for OUTAGE=240s, in several ways. It says
// how soon a write succeeds once etcd answers again.
func TestOutages(t *testing.T) {
	framework.Long(t, "timeouts are waited for")
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("OUTAGE"), "5s"))
	require.NoError(t, err)
	c := newCampaign(t, "storage", 2)
	etcd := c.cp.Component("storage")
	var out strings.Builder
	out.WriteString("| etcd | writes back |\n|---|---|\n")
	var longest time.Duration
	for _, outage := range []struct {
		name string
		away func()
		back func()
	}{
		{"stopped", func() { require.NoError(t, etcd.Stop()) }, func() { require.NoError(t, etcd.Start(t.Context())) }},
		{"its network closes connections", func() { c.setLinks(cut) }, func() { c.setLinks(healthy) }},
		{"its network says nothing", func() { c.setLinks(silent) }, func() { c.setLinks(healthy) }},
		{"away before servers start", func() {
			c.setLinks(cut)
			for _, server := range c.servers {
				require.NoError(t, server.Stop())
				require.NoError(t, server.Launch())
			}
		}, func() { c.setLinks(healthy) }},
	} {
		outage.away()
		time.Sleep(duration)
		outage.back()
		began := time.Now()
		for i := range c.servers {
			controlplane.Eventually(t, func() error {
				// Of a short time, so that it is not the one that waits.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return c.write(ctx, c.toppings[i])
			})
		}
		took := time.Since(began)
		fmt.Fprintf(&out, "| %s | %.1f s |\n", outage.name, took.Seconds())
		longest = max(longest, took)
	}
	t.Logf("after %s\n%s", duration, out.String())
	if os.Getenv("OUTAGE") != "" {
		require.LessOrEqual(t, longest, 2*time.Second)
	}
}
