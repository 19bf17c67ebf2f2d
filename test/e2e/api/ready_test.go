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
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A server that says it is ready knows whom to trust: the front proxy, and users
// with certificates. It once read their certificate authorities only afterwards,
// and refused the first requests.
func TestReadyMeansReadyForRequests(t *testing.T) {
	framework.Long(t, "three servers are started one after the other")
	t.Parallel()
	proxy, err := cp.PKI.FrontProxyCA.Issue(controlplane.Certificate{User: "front-proxy-client"})
	require.NoError(t, err)
	topping := newSubject(t, "Topping", "v1")
	for range 3 {
		server, err := cp.NewAPIServer(names.SimpleNameGenerator.GenerateName("ready-"), controlplane.ServerConfig{})
		require.NoError(t, err)
		require.NoError(t, server.Start(t.Context()))
		asUser := framework.Config(cp)
		asUser.Host = server.URL()
		asProxy := rest.CopyConfig(asUser)
		asProxy.CertData, asProxy.KeyData = proxy.Cert, proxy.Key
		asProxy.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return transport.NewAuthProxyRoundTripper("somebody", "", []string{"system:masters"}, nil, next)
		})
		for who, config := range map[string]*rest.Config{"the front proxy": asProxy, "a user": asUser} {
			list, err := topping.ClientFor(config).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err, who)
			require.Equal(t, []unstructured.Unstructured{}, list.Items, who)
		}
		require.NoError(t, server.Stop())
	}
}
