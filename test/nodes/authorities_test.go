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

package nodes

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// testServingCA replaces the certificate authority of the servers.
func (o *operations) testServingCA(t *testing.T) {
	const caBundle = "kubectl get apiservice v1.restaurant.programming-kubernetes.info --output=jsonpath='{.spec.caBundle}'"
	before := o.Run(t, caBundle)
	o.follow(t, "Certificates", "kubectl patch secret")
	controlplane.Eventually(t, func() error {
		if o.Run(t, caBundle) == before {
			return errors.New("the APIService trusts the old certificate authority")
		}
		return nil
	})
	o.awaitCalm(t)
}

// testEtcdCA replaces the certificate authority of etcd and its clients.
func (o *operations) testEtcdCA(t *testing.T) {
	const ca = "kubectl get secret --namespace restaurant-system etcd-server --output=jsonpath='{.data.ca\\.crt}'"
	before := o.Run(t, ca)
	o.follow(t, "Certificates", "SERVER=")
	o.rolledOut(t)
	require.NotEqual(t, before, o.Run(t, ca))
	o.awaitCalm(t)
	o.asUser(t, "kubectl get pizza margherita")
}

// testClusterAuthorities replaces the certificate authority of the front proxy, and adds and removes one of clients, while
// clients use the server.
func (o *operations) testClusterAuthorities(t *testing.T) {
	load := o.load(t)
	frontProxy := credentials{controlplane.Certificate{User: "front-proxy-client"}, http.Header{"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}}
	o.rotate(t, "requestheader-client-ca-file", o.cluster.PKI.FrontProxyCA, frontProxy, func(old, next *controlplane.CA) (left, gone *controlplane.CA) {
		pair, err := next.Issue(frontProxy.identity)
		require.NoError(t, err)
		file := filepath.Join(filepath.Dir(old.File), "front-proxy-client")
		framework.ReplaceFile(t, file+".key", pair.Key)
		framework.ReplaceFile(t, file+".crt", pair.Cert)
		return next, old
	})
	// All clients in the cluster have certificates of the old one, and keep them.
	client := credentials{controlplane.Certificate{User: "admin", Groups: []string{"system:masters"}}, nil}
	o.rotate(t, "client-ca-file", o.cluster.PKI.ClientCA, client, func(old, next *controlplane.CA) (left, gone *controlplane.CA) { return old, next })
	result := load.Stop()
	t.Log(result)
	require.Zero(t, result.Failed)
}

// credentials are the identity in a client's certificate, and other headers of its requests.
type credentials struct {
	identity controlplane.Certificate
	headers  http.Header
}

// rotate makes all servers trust two certificate authorities, and then one. It follows the
// documentation for a key of the ConfigMap.
func (o *operations) rotate(t *testing.T, key string, old *controlplane.CA, who credentials, replace func(old, next *controlplane.CA) (left, gone *controlplane.CA)) {
	t.Helper()
	const section, file = "Rotating the cluster's certificate authorities", "front-proxy-ca.crt"
	next, err := controlplane.NewCA("the next of " + key)
	require.NoError(t, err)
	servers := []string{controlAddress + ":6443"}
	for _, pod := range o.pods(t, "restaurant-apiserver") {
		servers = append(servers, pod.Status.PodIP+":8443")
	}
	names := map[*controlplane.CA]string{old: "old", next: "next"}
	answer := func(to []string, ca *controlplane.CA, want int) {
		t.Helper()
		client := o.client(t, ca, who)
		controlplane.Eventually(t, func() error {
			for _, server := range to {
				response, err := client.Get("https://" + server + framework.GroupPath)
				if err != nil {
					return err
				}
				if err := response.Body.Close(); err != nil {
					return err
				}
				if response.StatusCode != want {
					return fmt.Errorf("%s: a certificate of the %s certificate authority gets %s from %s, not %d", key, names[ca], response.Status, server, want)
				}
			}
			return nil
		})
	}
	answer(servers, old, http.StatusOK)
	answer(servers, next, http.StatusUnauthorized)

	framework.ReplaceFile(t, old.File, slices.Concat(old.CertPEM(), next.CertPEM()))
	answer(servers, next, http.StatusOK)
	answer(servers, old, http.StatusOK)
	published := With(t, o.page.Commands(t, section, "kubectl get configmap"), "--output yaml", "--output=jsonpath='{.data."+key+"}'")
	require.Equal(t, 2, strings.Count(o.Run(t, published), "BEGIN CERTIFICATE"))

	left, gone := replace(old, next)
	framework.ReplaceFile(t, old.File, left.CertPEM())
	// After that, kube-apiserver has read the certificate of its front proxy as well.
	answer(servers[:1], gone, http.StatusUnauthorized)
	write(t, filepath.Join(o.Dir, file), string(left.CertPEM()))
	remove := o.page.Commands(t, section, "kubectl patch configmap")
	if other := "requestheader-client-ca-file"; key != other {
		remove = With(t, remove, other, key)
	}
	o.Run(t, remove)
	answer(servers, gone, http.StatusUnauthorized)
	answer(servers, left, http.StatusOK)
	require.Equal(t, string(left.CertPEM()), o.Run(t, published))
}

// client returns a client that trusts any server.
func (o *operations) client(t *testing.T, ca *controlplane.CA, who credentials) *http.Client {
	t.Helper()
	pair, err := ca.Issue(who.identity)
	require.NoError(t, err)
	config := rest.CopyConfig(o.cluster.RESTConfig())
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true, CertData: pair.Cert, KeyData: pair.Key}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return framework.RoundTripper(func(request *http.Request) (*http.Response, error) {
			request = request.Clone(request.Context())
			maps.Copy(request.Header, who.headers)
			return next.RoundTrip(request)
		})
	})
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	return client
}
