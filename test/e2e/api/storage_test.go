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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// storedAs is how the objects of each resource are in etcd. A server that changes
// this cannot read what the previous one wrote.
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
