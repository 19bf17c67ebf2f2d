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
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
)

const (
	// jsonStorage is for types that have no protobuf.
	jsonStorage = "--storage-media-type=application/json"

	groupPath    = "/apis/workshop.example.com/v1"
	machinesPath = groupPath + "/namespaces/default/machines"

	tick = 20 * time.Millisecond
)

var machineResource = schema.GroupVersionResource{Group: "workshop.example.com", Version: "v1", Resource: "machines"}

// start starts a server of workshop.example.com.
func start(t *testing.T, flags ...string) *Server {
	t.Helper()
	return startWith(t, Config{Flags: flags})
}

func startWith(t *testing.T, config Config) *Server {
	t.Helper()
	if config.Groups == nil {
		config.Groups = []registry.Group{workshop.Group()}
	}
	config.Flags = append(config.Flags, jsonStorage)
	return StartTestServer(t, config)
}

// machines is a client of the machines in the namespace default.
func machines(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return client.Resource(machineResource).Namespace("default")
}

// machine returns a machine of this name with two replicas.
func machine(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "workshop.example.com/v1", "kind": "Machine",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"replicas": int64(2)},
	}}
}

func create(t *testing.T, config *rest.Config, name string) *unstructured.Unstructured {
	t.Helper()
	created, err := machines(t, config).Create(t.Context(), machine(name), metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// get returns the answer to a GET, and its status.
func get(t *testing.T, config *rest.Config, path string) (body string, code int) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	result := client.RESTClient().Get().RequestURI(path).Do(t.Context()).StatusCode(&code)
	raw, _ := result.Raw()
	return string(raw), code
}

// file writes a file, and returns its path.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestMain runs more tests at once than there are processors: they wait for servers that stop.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	m.Run()
}

// TestSmoke is the one test of a server that "make check" runs for any change.
func TestSmoke(t *testing.T) {
	t.Parallel()
	server := start(t)
	server.Cluster.Allow(func(review authorizationv1.SubjectAccessReviewSpec) bool { return review.User != "stranger" })
	created := create(t, server.ClientConfig, "drill")
	require.NotEmpty(t, created.GetUID())
	got, err := machines(t, server.ClientConfig).Get(t.Context(), "drill", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, created, got)

	stranger := server.UserConfig(t, "stranger")
	_, err = machines(t, stranger).Get(t.Context(), "drill", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	require.NoError(t, machines(t, server.ClientConfig).Delete(t.Context(), "drill", metav1.DeleteOptions{}))
	_, err = machines(t, server.ClientConfig).Get(t.Context(), "drill", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// A second server in a process once could not register its metric.
func TestTwoServersInOneProcess(t *testing.T) {
	t.Parallel()
	servers := map[string]*Server{}
	kinds := map[string]registry.Declaration{"first": workshop.Machine(), "second": workshop.Prototype()}
	for name, kind := range kinds {
		group := workshop.Group()
		group.Kinds = []registry.Declaration{kind}
		servers[name] = startWith(t, Config{Name: name, Groups: []registry.Group{group}})
	}
	create(t, servers["first"].ClientConfig, "drill")
	const machines, prototypes = machinesPath, "/apis/workshop.example.com/v1alpha1/namespaces/default/prototypes"
	for name, test := range map[string]struct{ own, other, version string }{
		"first":  {machines + "/drill", prototypes, "v1"},
		"second": {prototypes, machines, "v1alpha1"},
	} {
		server := servers[name]
		answer, code := get(t, server.ClientConfig, test.own)
		require.Equal(t, http.StatusOK, code, answer)
		_, code = get(t, server.ClientConfig, test.other)
		require.Equal(t, http.StatusNotFound, code, "%s serves the kind of the other.", name)

		answering, err := cluster.AnsweringServer(t.Context(), server.ClientConfig, machineResource.Group, test.version)
		require.NoError(t, err)
		require.Equal(t, name, answering)

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
	_, code := get(t, servers["second"].ClientConfig, prototypes)
	require.Equal(t, http.StatusOK, code, "The other has stopped, too.")
}
