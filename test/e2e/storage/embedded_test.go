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
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// names are those of all pizzas that a server has.
func names(t *testing.T, server *controlplane.Component) sets.Set[string] {
	t.Helper()
	list, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	names := sets.New[string]()
	for _, pizza := range list.Items {
		names.Insert(pizza.Name)
	}
	return names
}

// Acknowledged writes are there after the server was killed at any moment.
func TestDataSurvives(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	acknowledged := sets.New[string]()
	for round, end := range []func(){func() { require.NoError(t, server.Stop()) }, server.Kill, server.Kill} {
		require.NoError(t, server.Start(t.Context()))
		framework.Stock(t, cp, server)
		require.Subset(t, names(t, server).UnsortedList(), acknowledged.UnsortedList(), "After round %d.", round)
		acknowledged = acknowledged.Union(write(t, server, fmt.Sprintf("round-%d", round), 100, end))
	}
	require.NoError(t, server.Start(t.Context()))
	require.Subset(t, names(t, server).UnsortedList(), acknowledged.UnsortedList())
}

// write creates pizzas, several at a time, until the server has ended, and returns
// those that were acknowledged. The server's end comes when there are some.
func write(t *testing.T, server *controlplane.Component, prefix string, some int, end func()) sets.Set[string] {
	t.Helper()
	var (
		mu           sync.Mutex
		acknowledged = sets.New[string]()
		enough       = make(chan struct{})
		writers      sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	for writer := range 8 {
		// Connections of their own, so that many writes are under way at the end.
		pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default")
		writers.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%s-%d-%d", prefix, writer, i)
				if _, err := pizzas.Create(ctx, framework.Pizza(name), metav1.CreateOptions{}); err != nil {
					return
				}
				mu.Lock()
				acknowledged.Insert(name)
				if acknowledged.Len() == some {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case <-ctx.Done():
		require.Failf(t, "too few writes", "The server has not taken %d in %s.", some, controlplane.Patience)
	}
	end()
	writers.Wait()
	return acknowledged
}

func TestDataDirectoryIsPrivate(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, server.Start(t.Context()))
	data := filepath.Join(server.Dir(), "data")
	for _, path := range []string{data, filepath.Join(data, "etcd")} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.ModeDir|0o700, info.Mode(), path)
	}
	socket, err := os.Stat(filepath.Join(data, "etcd.sock"))
	require.NoError(t, err)
	require.Equal(t, os.ModeSocket, socket.Mode().Type())
}

// A server that is replaced gives its data to the next one.
func TestSuccessorWaitsForTheDirectory(t *testing.T) {
	framework.Long(t, "a server waits for another")
	t.Parallel()
	first := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, first.Start(t.Context()))
	framework.Stock(t, cp, first)
	_, err := framework.ClientAt(t, cp, first).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("margherita"), metav1.CreateOptions{})
	require.NoError(t, err)

	dir := filepath.Join(first.Dir(), "data")
	second := framework.NewServer(t, cp, framework.Flags("--data-dir="+dir))
	require.NoError(t, second.Launch())
	framework.WaitForLog(t, second, "The data directory is in use by another server; waiting until it stops. If it is not being replaced, choose another directory with --data-dir")
	code, output := framework.Execute(t, cp, "apiserver", "--kubeconfig="+cp.Kubeconfig(), "--data-dir="+dir, "--startup-timeout=1s")
	require.Equal(t, 1, code)
	require.True(t, strings.HasSuffix(output, "the data directory "+dir+" is in use by another server: stop it or choose another directory with --data-dir\"\n"), output)

	require.NoError(t, first.Stop())
	require.NoError(t, second.WaitReady(t.Context()))
	require.Equal(t, sets.New("margherita"), names(t, second))
}

// A server whose database is full says so, still answers reads, and recovers in
// both ways that it names.
func TestDatabaseIsFull(t *testing.T) {
	framework.Long(t, "a database is filled")
	t.Parallel()
	const quota = "--etcd-quota-backend-bytes=%d"
	server := framework.NewServer(t, cp, framework.Flags(fmt.Sprintf(quota, 8<<20)))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default")
	large := framework.Pizza("")
	large.GenerateName = "large-"
	large.Annotations = map[string]string{"example.com/menu": strings.Repeat("x", 200<<10)}
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = pizzas.Create(t.Context(), large, metav1.CreateOptions{})
	}
	require.True(t, apierrors.IsServiceUnavailable(err), "got %v", err)
	framework.WaitUnready(t, cp, server, "etcd-alarms")
	code, _ := framework.Get(t, cp, server, "/readyz/etcd-alarms")
	require.Equal(t, 500, code)
	stored := names(t, server)
	require.NotEmpty(t, stored)

	require.NoError(t, pizzas.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, server.Restart(t.Context()))
	_, err = framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), large, metav1.CreateOptions{})
	require.NoError(t, err)
}

// A server that is told to stop tells its watchers, and stops soon.
func TestStopWithWatchesOpen(t *testing.T) {
	framework.Long(t, "a server stops slowly")
	t.Parallel()
	// If it did not tell them, it would wait for them as long as for requests.
	server := framework.NewServer(t, cp, framework.Flags("--request-timeout=1h"))
	require.NoError(t, server.Start(t.Context()))
	var clients []versioned.Interface
	for range 5 {
		clients = append(clients, framework.ClientAt(t, cp, server))
	}
	var ended sync.WaitGroup
	for i := range 50 {
		watcher, err := clients[i%len(clients)].RestaurantV1().Pizzas("default").Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		ended.Go(func() {
			for range watcher.ResultChan() { // Until it is closed.
			}
		})
	}
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGTERM))
	require.Equal(t, "without an error", framework.WaitEnded(t, server))
	ended.Wait()
	require.NoError(t, server.Start(t.Context()))
}
