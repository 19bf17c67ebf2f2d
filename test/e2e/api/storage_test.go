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
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
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

// codecs read and write objects as the server stores them.
func codecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme)
}

// storePizza replaces what etcd has of a pizza, in a version and a media type.
func (s subject) storePizza(t *testing.T, suffix, version, mediaType string, change func(*restaurant.Pizza)) {
	t.Helper()
	client, key := etcdOf(t, cp.APIServer), s.keys()+suffix
	answer, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	stored, err := etcd.OpenValue(key, answer.Kvs[0].Value)
	require.NoError(t, err)
	pizza := &restaurant.Pizza{}
	require.NoError(t, runtime.DecodeInto(codecs().UniversalDecoder(), stored, pizza))
	change(pizza)
	i := slices.IndexFunc(codecs().SupportedMediaTypes(), func(info runtime.SerializerInfo) bool { return info.MediaType == mediaType })
	encoder := codecs().EncoderForVersion(codecs().SupportedMediaTypes()[i].Serializer, s.in(version).GroupVersion())
	value, err := runtime.Encode(encoder, pizza)
	require.NoError(t, err)
	swapped, err := client.Txn(t.Context()).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", answer.Kvs[0].ModRevision)).
		Then(clientv3.OpPut(key, string(value))).
		Else(clientv3.OpGet(key)). // As kine wants it.
		Commit()
	require.NoError(t, err)
	require.True(t, swapped.Succeeded)
}

// Values that were stored under other rules may stay while something else changes.
func TestRatcheting(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	s.Create(t, "a")
	s.storePizza(t, "a", "v1", runtime.ContentTypeProtobuf, func(pizza *restaurant.Pizza) {
		pizza.Spec.Replicas = 2000
		pizza.Spec.Toppings[0].Quantity = 20
	})
	for _, version := range framework.Versions() {
		labelled, err := s.in(version).patch(t, "a", types.MergePatchType, `{"metadata":{"labels":{"seen-in":"`+version+`"}}}`)
		require.NoError(t, err)
		require.EqualValues(t, 2000, labelled.Object["spec"].(map[string]any)["replicas"])
		_, err = s.in(version).patch(t, "a", types.MergePatchType, `{"spec":{"replicas":2001}}`)
		status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
		require.Equal(t, []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.replicas", Message: "Invalid value: 2001: must be less than or equal to 1000",
		}}, status.Details.Causes)
	}
}

// Objects that were stored in another version, or as JSON, are read. They move to the
// version of the storage when they are written again.
func TestStorageMigration(t *testing.T) {
	t.Parallel()
	for _, stored := range framework.Versions() {
		for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
			t.Run(stored+"/"+mediaType, func(t *testing.T) {
				t.Parallel()
				s := newSubject(t, "Pizza", "v1")
				created := s.Create(t, "a")
				s.storePizza(t, "a", stored, mediaType, func(*restaurant.Pizza) {})
				for _, version := range framework.Versions() {
					read, err := s.in(version).Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{})
					require.NoError(t, err)
					require.Equal(t, s.in(version).New("a").Object["spec"], read.Object["spec"])
				}
				read, err := s.Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, created.Object["spec"], read.Object["spec"])
				updated, err := s.Client().Update(t.Context(), read, metav1.UpdateOptions{})
				require.NoError(t, err)
				require.EqualValues(t, 1, updated.GetGeneration())

				answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), s.keys()+"a")
				require.NoError(t, err)
				var envelope runtime.Unknown
				value, err := etcd.OpenValue(s.keys()+"a", answer.Kvs[0].Value)
				require.NoError(t, err)
				require.Equal(t, "k8s\x00", string(value[:4]))
				require.NoError(t, envelope.Unmarshal(value[4:]))
				require.Equal(t, runtime.TypeMeta{APIVersion: restaurant.GroupName + "/v1", Kind: "Pizza"}, envelope.TypeMeta)
			})
		}
	}
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
	code, metrics := framework.Get(t, cp, cp.APIServer, "/metrics")
	require.Equal(t, http.StatusOK, code)
	got := map[string]string{}
	sample := regexp.MustCompile(`(?m)^apiserver_watch_cache_initializations_total\{group="(.*)",resource="(.*)"\} (.*)$`)
	for _, match := range sample.FindAllStringSubmatch(metrics, -1) {
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
