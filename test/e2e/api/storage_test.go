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

package api

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// storedAs is how the objects of each resource are in etcd. Who changes this makes
// a server that cannot read what the previous one wrote.
var storedAs = map[string]struct {
	kind string
	key  string
	// new returns what the bytes decode into.
	new func() storedObject
}{
	"pizzas": {
		"Pizza", "/registry/restaurant.programming-kubernetes.info/pizzas/NAMESPACE/NAME",
		func() storedObject { return &restaurantv1.Pizza{} },
	},
	"toppings": {
		"Topping", "/registry/restaurant.programming-kubernetes.info/toppings/NAME",
		func() storedObject { return &restaurantv1.Topping{} },
	},
}

// storedObject is an object of the storage version.
type storedObject interface {
	runtime.Object
	metav1.Object
	Unmarshal([]byte) error
}

func TestStorage(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, version := range framework.Versions() {
		served, err := framework.Kube(cp).Discovery().ServerResourcesForGroupVersion(restaurant.GroupName + "/" + version)
		require.NoError(t, err)
		for _, resource := range served.APIResources {
			// Subresources are stored with their resource, and reviews not at all.
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "get") {
				continue
			}
			want, listed := storedAs[resource.Name]
			require.True(t, listed, "Say here how %s are stored.", resource.Name)
			require.Equal(t, want.kind, resource.Kind)
			tested[resource.Name] = true

			s := newSubject(t, resource.Kind, version)
			created := s.Create(t, "a")
			key := strings.NewReplacer("NAMESPACE", s.Namespace, "NAME", created.GetName()).Replace(want.key)
			answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), key)
			require.NoError(t, err)
			require.Len(t, answer.Kvs, 1, "Nothing is stored at %s.", key)

			stored, err := etcd.OpenValue(key, answer.Kvs[0].Value)
			require.NoError(t, err)
			value, isProtobuf := strings.CutPrefix(string(stored), "k8s\x00")
			require.True(t, isProtobuf, "%s is not stored as protobuf.", key)
			var envelope runtime.Unknown
			require.NoError(t, envelope.Unmarshal([]byte(value)))
			require.Equal(t, runtime.TypeMeta{APIVersion: restaurant.GroupName + "/v1", Kind: want.kind}, envelope.TypeMeta)
			object := want.new()
			require.NoError(t, object.Unmarshal(envelope.Raw))
			require.Empty(t, object.GetResourceVersion(), "It is the key's revision, which the value cannot have.")
			object.SetResourceVersion(fmt.Sprint(answer.Kvs[0].ModRevision))
			object.GetObjectKind().SetGroupVersionKind(s.in("v1").GroupVersionKind)
			got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			require.NoError(t, err)
			read, err := s.in("v1").Client().Get(t.Context(), created.GetName(), metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, read.Object, got)
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(storedAs)), slices.Collect(maps.Keys(tested)), "Some of what is listed here is not served.")
}

// Nothing else is in etcd, which an operator may have to back up or clean.
func TestStoragePrefixes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Pizza", "Topping"} {
		newSubject(t, kind, "v1").Create(t, "a")
	}
	answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	prefixes := map[string]bool{}
	for _, kv := range answer.Kvs {
		elements := strings.Split(string(kv.Key), "/")
		prefixes[strings.Join(elements[:min(4, len(elements))], "/")] = true
	}
	// The note of the last compaction is there from the first one on.
	delete(prefixes, "compact_rev_key")
	want := []string{
		"/registry/restaurant.programming-kubernetes.info/pizzas",
		"/registry/restaurant.programming-kubernetes.info/toppings",
		"/registry/uses/restaurant.programming-kubernetes.info",
	}
	if os.Getenv(etcdServers) != "" {
		// Uses are of transactions. kine has the other by itself.
		want = slices.Concat([]string{"/registry/health"}, want[:2])
	}
	require.Equal(t, want, slices.Sorted(maps.Keys(prefixes)))
}

// All versions of a kind share one watch cache, and so its memory and its watch of
// etcd.
func TestOneWatchCachePerKind(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Pizza", "Topping"} {
		for _, version := range framework.Versions() {
			newSubject(t, kind, version).watch(t, metav1.ListOptions{})
		}
	}
	config := framework.Config(cp)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	response, err := client.Get(cp.APIServer.URL() + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	metrics, err := io.ReadAll(response.Body)
	require.NoError(t, err)

	got := map[string]string{}
	sample := regexp.MustCompile(`(?m)^apiserver_watch_cache_initializations_total\{group="(.*)",resource="(.*)"\} (.*)$`)
	for _, match := range sample.FindAllStringSubmatch(string(metrics), -1) {
		got[match[2]+"."+match[1]] = match[3]
	}
	want := map[string]string{}
	for resource := range storedAs {
		want[resource+"."+restaurant.GroupName] = "1"
	}
	require.Equal(t, want, got)
}

// keys is the prefix of the keys under which the test's objects are stored.
func (s subject) keys() string {
	elements := []string{"/registry", s.Group, s.Resource}
	if s.Namespace != "" {
		elements = append(elements, s.Namespace)
	}
	return path.Join(elements...) + "/" + s.ID + "-"
}

// stored returns what etcd has of the test's objects, by key and revision.
func (s subject) stored(t *testing.T) map[string]string {
	t.Helper()
	answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), s.keys(), clientv3.WithPrefix())
	require.NoError(t, err)
	all := map[string]string{}
	for _, kv := range answer.Kvs {
		all[fmt.Sprintf("%s at revision %d", kv.Key, kv.ModRevision)] = string(kv.Value)
	}
	return all
}

// etcdOf connects to the etcd that is embedded in a server, or that all tests share.
func etcdOf(t *testing.T, server *controlplane.Component) *clientv3.Client {
	t.Helper()
	endpoint := "unix://" + filepath.Join(server.Dir(), "data", "etcd.sock")
	if server == cp.APIServer {
		endpoint = cmp.Or(os.Getenv(etcdServers), endpoint)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{endpoint},
		DialTimeout: 5 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
