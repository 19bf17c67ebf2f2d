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

package crd

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Without the webhook nothing is stored that it has not seen, and only the version of
// the storage can be read.
func TestWebhookIsAway(t *testing.T) {
	ns := framework.Namespace(t, cp)
	_, err := pizzas("v1", ns).Create(t.Context(), pizza("v1", "before", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, webhook.Stop())
	t.Cleanup(func() {
		if webhook.PID() == 0 {
			require.NoError(t, webhook.Start(context.WithoutCancel(t.Context())))
		}
	})

	_, err = pizzas("v1", ns).Create(t.Context(), pizza("v1", "meanwhile", nil), metav1.CreateOptions{})
	requireServerError(t, err, `failed calling webhook "admit.restaurant.programming-kubernetes.info"`)
	err = toppings("v1").Delete(t.Context(), "basil", metav1.DeleteOptions{})
	requireServerError(t, err, `failed calling webhook "toppings.validate.restaurant.programming-kubernetes.info"`)
	_, err = pizzas("v1", ns).Get(t.Context(), "before", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = pizzas("v1alpha1", ns).Get(t.Context(), "before", metav1.GetOptions{})
	requireServerError(t, err, "conversion webhook for restaurant.programming-kubernetes.info/v1, Kind=Pizza failed")

	require.NoError(t, webhook.Start(t.Context()))
	_, err = pizzas("v1alpha1", ns).Get(t.Context(), "before", metav1.GetOptions{})
	require.NoError(t, err)
	_, err = pizzas("v1", ns).Create(t.Context(), pizza("v1", "after", nil), metav1.CreateOptions{})
	require.NoError(t, err)
}

// startWebhook starts one more webhook, which only the test calls.
func startWebhook(t *testing.T, name string, flags ...string) *controlplane.Component {
	t.Helper()
	server, err := framework.NewWebhook(cp, name, flags...)
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// client speaks HTTP/2, as kube-apiserver does, over a connection of its own.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: cp.PKI.ServingCA.Pool()}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, client *http.Client, url string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(body)
}

// A certificate is replaced by replacing the files, for new connections; those that
// are open go on.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	issue := func() (serial string) {
		issued, err := cp.PKI.ServingCA.Issue(controlplane.Certificate{User: "webhook", Hosts: []string{"127.0.0.1"}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(keyFile, issued.Key, 0o600))
		require.NoError(t, os.WriteFile(certFile, issued.Cert, 0o600))
		certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
		require.NoError(t, err)
		return certificate.Leaf.SerialNumber.String()
	}
	first := issue()
	server := startWebhook(t, "webhook-reloading", "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	pid := server.PID()
	early := client(t)
	response, _ := get(t, early, server.URL()+"/livez")
	require.Equal(t, first, response.TLS.PeerCertificates[0].SerialNumber.String())
	require.Equal(t, 1, response.ProtoMajor)

	second := issue()
	eventually(t, func(context.Context) error {
		response, _ := get(t, client(t), server.URL()+"/livez")
		if serial := response.TLS.PeerCertificates[0].SerialNumber.String(); serial != second {
			return fmt.Errorf("new connections get the certificate %s, of %s and %s", serial, first, second)
		}
		return nil
	})
	response, _ = get(t, early, server.URL()+"/livez")
	require.Equal(t, first, response.TLS.PeerCertificates[0].SerialNumber.String())
	require.Equal(t, pid, server.PID())
}
