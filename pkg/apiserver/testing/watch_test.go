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
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
)

// restart runs a server, stops it, does what is to happen to etcd meanwhile, and runs
// another. It returns that and a resourceVersion of the time of the first, after which
// something happened.
func restart(t *testing.T, meanwhile func(*clientv3.Client)) (server *Server, before string) {
	t.Helper()
	etcd := registrytesting.StartEtcd(t)
	config := Config{Flags: []string{"--etcd-servers=" + etcd.Endpoint()}}
	server = startWith(t, config)
	client := machines(t, server.ClientConfig)
	first, second := create(t, server.ClientConfig, "a"), create(t, server.ClientConfig, "b")
	require.NoError(t, unstructured.SetNestedField(second.Object, int64(3), "spec", "replicas"))
	_, err := client.Update(t.Context(), second, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.NoError(t, server.Stop())

	etcdClient, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}})
	require.NoError(t, err)
	defer etcdClient.Close()
	meanwhile(etcdClient)
	return startWith(t, config), first.GetResourceVersion()
}

// A watch that ends with its server goes on where it was, as far as etcd remembers. Once,
// each began again with a list.
func TestWatchesGoOnAfterRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: servers are restarted")
	}
	for name, test := range map[string]struct {
		meanwhile func(*clientv3.Client)
		want      []string
	}{
		"what etcd has": {
			func(*clientv3.Client) {},
			[]string{"ADDED b: 2", "MODIFIED b: 3", "DELETED a: 2", "ADDED c: 2"},
		},
		"what etcd has compacted": {
			func(client *clientv3.Client) {
				now, err := client.Get(t.Context(), "/")
				require.NoError(t, err)
				_, err = client.Compact(t.Context(), now.Header.Revision)
				require.NoError(t, err)
			},
			[]string{"ERROR Expired"},
		},
		"what was moved here since": {
			func(client *clientv3.Client) { moveHere(t, client) },
			[]string{"ERROR Expired"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, before := restart(t, test.meanwhile)
			client := machines(t, server.ClientConfig)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			watcher, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: before})
			require.NoError(t, err)
			defer watcher.Stop()
			create(t, server.ClientConfig, "c")
			for _, want := range test.want {
				require.Equal(t, want, describe(t, <-watcher.ResultChan()))
			}
			list, err := client.List(ctx, metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, list.Items, 2)
		})
	}
}

// moveHere says that all objects were moved to this etcd just now.
func moveHere(t *testing.T, client *clientv3.Client) {
	t.Helper()
	now, err := client.Get(t.Context(), "/")
	require.NoError(t, err)
	_, err = client.Put(t.Context(), keys.HistoryKey("/registry", "workshop.example.com"), strconv.FormatInt(now.Header.Revision+1, 10))
	require.NoError(t, err)
}

// Clients that remember revisions of another etcd would miss changes to objects that have moved.
// This can turn out after their watches have begun.
func TestWatchesEndWhenObjectsHaveMoved(t *testing.T) {
	t.Parallel()
	etcd := registrytesting.StartEtcd(t)
	server := startWith(t, Config{Flags: []string{"--etcd-servers=" + etcd.Endpoint()}})
	client := machines(t, server.ClientConfig)
	first := create(t, server.ClientConfig, "a")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watchFrom := func(revision string) watch.Interface {
		watcher, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: revision})
		require.NoError(t, err)
		t.Cleanup(watcher.Stop)
		return watcher
	}
	begun := map[string]watch.Interface{"a revision": watchFrom(first.GetResourceVersion()), "none": watchFrom(""), "any": watchFrom("0")}
	for _, name := range []string{"none", "any"} {
		require.Equal(t, "ADDED a: 2", describe(t, <-begun[name].ResultChan()))
	}
	create(t, server.ClientConfig, "b")
	for _, watcher := range begun {
		require.Equal(t, "ADDED b: 2", describe(t, <-watcher.ResultChan()))
	}

	etcdClient, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}})
	require.NoError(t, err)
	defer etcdClient.Close()
	moveHere(t, etcdClient)
	for name, watcher := range begun {
		event, more := <-watcher.ResultChan()
		require.False(t, more, "%s: the watch has gone on with %v.", name, event)
	}
	require.NoError(t, ctx.Err())
	require.Equal(t, "ERROR Expired", describe(t, <-watchFrom(first.GetResourceVersion()).ResultChan()))

	last := create(t, server.ClientConfig, "c")
	resumed := watchFrom(last.GetResourceVersion())
	create(t, server.ClientConfig, "d")
	require.Equal(t, "ADDED d: 2", describe(t, <-resumed.ResultChan()))
}

// An unreadable past does not keep clients from reading the present. The cache begins again, and no
// list waits until it is read from etcd instead.
func TestRestartWithUnreadableHistory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: servers are restarted")
	}
	const group = "workshop.example.com"
	server, _ := restart(t, func(client *clientv3.Client) {
		const key = "/registry/" + group + "/machines/default/d"
		_, err := client.Put(t.Context(), key, "{")
		require.NoError(t, err)
		_, err = client.Delete(t.Context(), key)
		require.NoError(t, err)
	})
	client, err := kubernetes.NewForConfig(server.ClientConfig)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		err := client.RESTClient().Get().AbsPath(machinesPath).MaxRetries(0).Do(t.Context()).Error()
		if err != nil {
			require.ErrorContains(t, err, "storage is (re)initializing")
		}
		return err == nil
	}, patience, tick)
	metrics, _ := get(t, server.ClientConfig, "/metrics")
	require.Contains(t, metrics, `apiserver_watch_cache_consistent_read_total{fallback="false",group="`+group+`",resource="machines"`)
	require.NotContains(t, metrics, `apiserver_watch_cache_consistent_read_total{fallback="true",group="`+group+`",resource="machines"`)
}

// describe returns an event in a few words.
func describe(t *testing.T, event watch.Event) string {
	t.Helper()
	if event.Type == watch.Error {
		return "ERROR " + string(apierrors.ReasonForError(apierrors.FromObject(event.Object)))
	}
	obj, ok := event.Object.(*unstructured.Unstructured)
	require.True(t, ok, "%#v", event)
	replicas, _, err := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	require.NoError(t, err)
	return fmt.Sprintf("%s %s: %d", event.Type, obj.GetName(), replicas)
}
