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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// jsonStorage is for types that have no protobuf.
const jsonStorage = "--storage-media-type=application/json"

const tick = 20 * time.Millisecond

func groups(names ...string) (all []registry.Group) {
	for _, name := range names {
		all = append(all, notesIn(name))
	}
	return all
}

func notes(t *testing.T, config *rest.Config, group string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "notes"}).Namespace("default")
}

func note(group, name, text string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Note",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"text": text},
	}}
}

// get returns the answer to a GET, and its status.
func get(t *testing.T, config *rest.Config, path string) (body string, code int) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	result := client.RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&code)
	raw, _ := result.Raw()
	return string(raw), code
}

// A second server in a process once could not register its metric.
func TestTwoServersInOneProcess(t *testing.T) {
	servers := map[string]*Server{}
	for name, group := range map[string]string{"first": "one.example.com", "second": "two.example.com"} {
		servers[name] = StartTestServer(t, Config{Name: name, Groups: groups(group), Flags: []string{jsonStorage}})
		_, err := notes(t, servers[name].ClientConfig, group).Create(t.Context(), note(group, "hello", name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for name, test := range map[string]struct{ own, other string }{
		"first":  {"one.example.com", "two.example.com"},
		"second": {"two.example.com", "one.example.com"},
	} {
		server := servers[name]
		got, err := notes(t, server.ClientConfig, test.own).Get(t.Context(), "hello", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"text": name}, got.Object["spec"])
		_, code := get(t, server.ClientConfig, "/apis/"+test.other+"/v1")
		require.Equal(t, 404, code, "%s serves the group of the other.", name)

		metrics, _ := get(t, server.ClientConfig, "/metrics")
		for other := range servers {
			require.Contains(t, metrics, `apiserver_serving_certificate_expiration_timestamp_seconds{server="`+other+`"} `)
		}
		require.Eventually(t, func() bool {
			return server.Cluster.Get("/apis/coordination.k8s.io/v1/namespaces/default/leases/"+name+"-controllers") != nil
		}, patience, tick, "%s has no lease of its own.", name)
		for _, agent := range server.Cluster.UserAgents() {
			require.True(t, strings.HasPrefix(agent, name+"/"), agent)
		}
	}

	require.NoError(t, servers["first"].Stop())
	metrics, _ := get(t, servers["second"].ClientConfig, "/metrics")
	require.NotContains(t, metrics, `{server="first"}`)
	require.Contains(t, metrics, `{server="second"}`)
	_, err := notes(t, servers["second"].ClientConfig, "two.example.com").Get(t.Context(), "hello", metav1.GetOptions{})
	require.NoError(t, err, "The other has stopped, too.")
}
