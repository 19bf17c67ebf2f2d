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

package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/network"
)

// TestHosts runs kube-apiserver, the server and the clients on a host each.
func TestHosts(t *testing.T) {
	client, cluster, server := network.ForTest(t, "10.0.0.1"), network.ForTest(t, "10.0.0.2"), network.ForTest(t, "10.0.0.3")
	require.NoError(t, network.Connect(client, cluster))
	require.NoError(t, network.Connect(cluster, server))
	config := Config{Host: cluster, Client: ClientConfig{Host: client}}
	config.ControllerManager.Off = true
	config.APIServer.Host = server
	cp := ForTest(t, config)
	require.Equal(t, "10.0.0.2", cp.KubeAPIServer.Host().Address())
	require.Equal(t, "10.0.0.3", cp.APIServer.Host().Address())

	_, err := clientFor(t, cp.RESTConfig()).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	require.NoError(t, err)
	output, err := cp.Kubectl(t.Context(), "get", "pizzas").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Equal(t, "No resources found in default namespace.\n", string(output))
	// The client can't reach the server.
	output, err = cp.Kubectl(t.Context(), "--server="+cp.APIServer.URL(), "get", "pizzas").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "network is unreachable")
}
