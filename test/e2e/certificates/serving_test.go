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

// Package certificates tests that certificates and their certificate authorities are replaced without
// anybody noticing. Each test has a control plane of its own.
package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// caSecret is the Secret that the manifests let the server use.
	caSecret = "apiserver-serving-ca"
	// authorityValidity has a certificate authority renewed every minute. It leaves half a
	// minute for all that has to happen until the previous one is no longer valid.
	authorityValidity   = 90 * time.Second
	certificateValidity = 30 * time.Second
	rotations           = 2
)

// selfCertified is a server that issues its own certificates, which last for
// seconds.
func selfCertified() controlplane.ServerConfig {
	config := framework.Flags("--serving-ca-secret="+caSecret, "--serving-ca-validity="+authorityValidity.String(), "--serving-cert-validity="+certificateValidity.String())
	config.Etcd, config.OwnCertificate = "storage", true
	return config
}

// TestCertificateRotation lives through several certificate authorities under load,
// with two replicas, without one failed request.
func TestCertificateRotation(t *testing.T) {
	framework.Long(t, "certificates expire")
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{APIServer: selfCertified(), ControllerManager: controlplane.ComponentConfig{Off: true}})
	second, err := cp.NewAPIServer("second", selfCertified())
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))

	client, err := versioned.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	// Requests through kube-apiserver, which verifies each new connection. Those
	// that are open already are closed now and then, or they would be good for ever.
	ctx, stop := context.WithCancel(t.Context())
	var requests atomic.Int64
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			if _, err := client.RestaurantV1().Toppings().List(ctx, metav1.ListOptions{}); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
			requests.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
	}()

	seen := map[string]bool{}
	deadline := time.Now().Add(2*rotations*authorityValidity + controlplane.Patience)
	for len(seen) <= rotations {
		require.Less(t, time.Now(), deadline, "There were only %d certificate authorities.", len(seen))
		secret, err := kubernetes.NewForConfigOrDie(cp.RESTConfig()).CoreV1().Secrets("restaurant-system").Get(t.Context(), caSecret, metav1.GetOptions{})
		require.NoError(t, err)
		current := string(secret.Data["ca.crt"])
		if !seen[current] {
			// The other replica goes by the same certificate authority: kube-apiserver trusts both.
			server := []*controlplane.Component{cp.APIServer, second}[len(seen)%2]
			require.NoError(t, cp.Register(t.Context(), server))
			seen[current] = true
		}
		require.NoError(t, trusted(t.Context(), cp, cp.APIServer, second))
		select {
		case err := <-failed:
			require.NoError(t, err, "After %d requests, with %d certificate authorities.", requests.Load(), len(seen))
		case <-time.After(200 * time.Millisecond):
		}
	}
	stop()
	require.NoError(t, <-failed)

	config := cp.RESTConfig()
	config.Host = cp.APIServer.URL()
	config.Insecure, config.CAData = true, nil
	metrics, err := kubernetes.NewForConfigOrDie(config).RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	_, value, found := strings.Cut(string(metrics), "\napiserver_serving_certificate_expiration_timestamp_seconds{server=\"apiserver\"} ")
	require.True(t, found)
	value, _, _ = strings.Cut(value, "\n")
	expires, err := strconv.ParseFloat(value, 64)
	require.NoError(t, err)
	require.LessOrEqual(t, expires, float64(time.Now().Add(certificateValidity).Unix()+1))
	require.Greater(t, requests.Load(), int64(100))
}

// trusted checks that kube-apiserver would trust the certificates of the servers.
func trusted(ctx context.Context, cp *controlplane.ControlPlane, servers ...*controlplane.Component) error {
	apiService, err := aggregator.NewForConfigOrDie(cp.RESTConfig()).ApiregistrationV1().APIServices().Get(ctx, "v1.restaurant.programming-kubernetes.info", metav1.GetOptions{})
	if err != nil {
		return err
	}
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: apiService.Spec.CABundle, ServerName: "apiserver.restaurant-system.svc"}})
	if err != nil {
		return err
	}
	for _, server := range servers {
		connection, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", strings.TrimPrefix(server.URL(), "https://"))
		if err != nil {
			return fmt.Errorf("%s: %w", server.Name(), err)
		}
		if err := connection.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
	return nil
}

// TestCertificateRights shows what a server says that may not keep its certificate authority,
// and that it goes on when it may.
func TestCertificateRights(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
		ControllerManager: controlplane.ComponentConfig{Off: true},
	})
	require.NoError(t, cp.Install(t.Context()))
	roles := kubernetes.NewForConfigOrDie(cp.RESTConfig()).RbacV1().RoleBindings("restaurant-system")
	binding, err := roles.Get(t.Context(), "restaurant-apiserver:serving-ca", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, roles.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}))

	config := selfCertified()
	config.Etcd = ""
	server := framework.NewServer(t, cp, config)
	require.NoError(t, server.Launch())
	framework.WaitForLog(t, server, "allow the user of this server to get and update the Secret apiserver-serving-ca in restaurant-system")
	binding.ResourceVersion = ""
	_, err = roles.Create(t.Context(), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, server.WaitReady(t.Context()))
}
