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
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
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

// A webhook that is told to stop goes on for a while, as unready; then it answers what
// it has begun, and only refuses connections.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	server := startWebhook(t, "webhook-stopping", "--shutdown-delay-duration=2s")
	const objects = 50
	object := `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Pizza","metadata":{"name":"a"},"spec":{"toppings":[{"name":"tomato","quantity":10}]}}`
	body := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"restaurant.programming-kubernetes.info/v1alpha1","objects":[` +
		strings.Repeat(object+",", objects-1) + object + `]}}`

	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	var answered, answeredWhileStopping atomic.Int64
	var stopping atomic.Bool
	var callers sync.WaitGroup
	for range 8 {
		client := client(t)
		callers.Go(func() {
			for {
				connected := false
				traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
					// Once more, if the connection was about to end and took no more requests.
					GetConn: func(string) { connected = false },
					GotConn: func(httptrace.GotConnInfo) { connected = true },
				})
				converted, err := convert(traced, client, server.URL()+"/convert", body)
				switch {
				case err != nil:
					assert.False(t, connected, "A request that had a connection failed: %v", err)
					return // Nobody listens any more.
				case !assert.Equal(t, objects, converted):
					return
				}
				answered.Add(1)
				if stopping.Load() {
					answeredWhileStopping.Add(1)
				}
			}
		})
	}
	eventually(t, func(context.Context) error {
		if n := answered.Load(); n < 50 {
			return fmt.Errorf("only %d requests have been answered", n)
		}
		return nil
	})
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop() }()
	late := client(t)
	eventually(t, func(context.Context) error {
		response, answer := get(t, late, server.URL()+"/readyz")
		if response.StatusCode == http.StatusOK {
			return errors.New("it is still ready")
		}
		require.Contains(t, answer, "[-]shutdown failed")
		return nil
	})
	stopping.Store(true)
	callers.Wait()
	require.NoError(t, <-stopped)
	require.Positive(t, answeredWhileStopping.Load())
	require.NoError(t, ctx.Err())
}

// convert returns how many objects a webhook has converted.
func convert(ctx context.Context, client *http.Client, url, body string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var review struct {
		Response struct {
			ConvertedObjects []json.RawMessage `json:"convertedObjects"`
		} `json:"response"`
	}
	err = json.NewDecoder(response.Body).Decode(&review)
	return len(review.Response.ConvertedObjects), err
}

// A webhook that may not read toppings says so, and asks clients to come again.
func TestUnready(t *testing.T) {
	t.Parallel()
	server, err := framework.NewWebhook(cp, "webhook-nobody")
	require.NoError(t, err)
	kubeconfig, err := cp.KubeconfigFor("nobody")
	require.NoError(t, err)
	server.SetFlags("--kubeconfig=" + kubeconfig)
	require.NoError(t, server.Launch())
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	caller := client(t)
	eventually(t, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL()+"/livez", http.NoBody)
		if err != nil {
			return err
		}
		response, err := caller.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	response, body := get(t, caller, server.URL()+"/readyz")
	require.Equal(t, http.StatusInternalServerError, response.StatusCode)
	require.Contains(t, body, "[-]informer-toppings failed")
	response, _ = get(t, caller, server.URL()+"/readyz?exclude=informer-pizzas&exclude=informer-toppings")
	require.Equal(t, http.StatusOK, response.StatusCode)
	eventually(t, func(context.Context) error {
		log, err := os.ReadFile(server.LogFile())
		if err == nil && !strings.Contains(string(log), `cannot list resource \"toppings\"`) {
			err = fmt.Errorf("the log does not say what is missing: %s", log)
		}
		return err
	})
}
