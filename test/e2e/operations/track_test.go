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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// order creates a pizza at a server, of which none is baked.
func orderPizza(t *testing.T, at *controlplane.Component, name string, replicas int32) {
	t.Helper()
	wanted := pizza(name)
	wanted.Spec.Replicas = &replicas
	_, err := client(t, at).RestaurantV1().Pizzas("default").Create(t.Context(), wanted, metav1.CreateOptions{})
	require.NoError(t, err)
}

func bakeOne(t *testing.T, at *controlplane.Component, name string) {
	t.Helper()
	_, err := client(t, at).RestaurantV1().Pizzas("default").Bake(t.Context(), name, &restaurantv1.Bake{}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// track returns the body of a stream that goes on until the pizza is ready.
func track(t *testing.T, client *http.Client, at *controlplane.Component, name string, seconds int) *bufio.Scanner {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		fmt.Sprintf("%s%s/v1/namespaces/default/pizzas/%s/track?follow=true&timeoutSeconds=%d", at.URL(), group, name, seconds), http.NoBody)
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
	client, err := rest.HTTPClientFor(configFor(t, cp, at, "admin", "system:masters"))
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// A stream is no request that takes too long.
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
	t.Parallel()
	const delay = 3 * time.Second
	server := newServer(t, cp, flags("--shutdown-delay-duration="+delay.String()))
	require.NoError(t, server.Start(t.Context()))
	stock(t, server)
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
	waitUnready(t, server, "shutdown")
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
	require.Equal(t, "exit status 0", end(t, server))
}

// A stream is fed by etcd, and waits for it when it is away.
func TestTrackWhileEtcdIsAway(t *testing.T) {
	orderPizza(t, cp.APIServer, "patient", 2)
	lines := track(t, httpClient(t, cp.APIServer), cp.APIServer, "patient", 3600)
	requireLine(t, lines, "0 of 2 baked")
	storage := cp.Component("storage")
	require.NoError(t, storage.Stop())
	waitUnready(t, cp.APIServer, "etcd")
	require.NoError(t, storage.Start(t.Context()))
	require.NoError(t, cp.APIServer.WaitReady(t.Context()))
	bakeOne(t, cp.APIServer, "patient")
	requireLine(t, lines, "1 of 2 baked")
	bakeOne(t, cp.APIServer, "patient")
	requireLine(t, lines, "2 of 2 baked: ready")
	requireEnd(t, lines)
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
