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

package certificates

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// The certificate authorities of front proxies and of clients are replaced while a
// server runs, as docs/operations/certificates.md describes. No request fails, and nothing has to
// be restarted. Certificates of the old certificate authority are valid until it is removed, and no
// longer.
func TestAuthoritiesOfClientsAreRotated(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{
		// It logs what it has loaded.
		KubeAPIServer:     controlplane.ComponentConfig{Flags: []string{"--v=2"}},
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})
	require.NoError(t, cp.Install(t.Context()))
	// As in a pod, the server is known by a token, and so is the client: theirs is
	// not the certificate authority that is rotated.
	account := tokenConfig(t, cp, "restaurant-system", "apiserver")
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Kubeconfig: tokenKubeconfig(t, account, "restaurant-system")})
	require.NoError(t, server.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), server))
	pid := server.PID()
	framework.Kubectl(t, cp, "create", "serviceaccount", "operator", "--namespace=default")
	framework.Kubectl(t, cp, "create", "clusterrolebinding", "operator", "--clusterrole=cluster-admin", "--serviceaccount=default:operator", "--user=administrator")
	operator := tokenConfig(t, cp, "default", "operator")
	failed, requests := requestAllTheTime(t, operator)

	for _, test := range []struct {
		key    string
		ca     *controlplane.CA
		client func(*testing.T, *controlplane.ControlPlane, *controlplane.Component, *controlplane.CA) *http.Client
		// replace gives clients of the old certificate authority a certificate of the new one.
		replace func(next *controlplane.CA)
	}{
		{"requestheader-client-ca-file", cp.PKI.FrontProxyCA, frontProxyOf, func(next *controlplane.CA) {
			pair, err := next.Issue(controlplane.Certificate{User: "front-proxy-client"})
			require.NoError(t, err)
			file := filepath.Join(filepath.Dir(cp.PKI.FrontProxyCA.File), "front-proxy-client")
			framework.ReplaceFile(t, file+".key", pair.Key)
			framework.ReplaceFile(t, file+".crt", pair.Cert)
			controlplane.Eventually(t, func() error {
				log, err := os.ReadFile(cp.KubeAPIServer.LogFile())
				// The first time was at its start.
				if err == nil && strings.Count(string(log), `"Loaded a new cert/key pair" name="aggregator-proxy-cert::`) < 2 {
					err = errors.New("kube-apiserver has not loaded the new certificate of its front proxy")
				}
				return err
			})
		}},
		{"client-ca-file", cp.PKI.ClientCA, adminOf, func(*controlplane.CA) {}},
	} {
		next, err := controlplane.NewCA("the next of " + test.key)
		require.NoError(t, err)
		type place struct{ at, by string }
		clients := map[place]*http.Client{}
		for _, at := range []*controlplane.Component{server, cp.KubeAPIServer} {
			clients[place{at.Name(), "old"}] = test.client(t, cp, at, test.ca)
			clients[place{at.Name(), "new"}] = test.client(t, cp, at, next)
		}
		answers := func(at *controlplane.Component, issuer string, want int) {
			t.Helper()
			controlplane.Eventually(t, func() error {
				response, err := clients[place{at.Name(), issuer}].Get(at.URL() + framework.PizzasPath)
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if response.StatusCode != want {
					return fmt.Errorf("%s: a certificate of the %s certificate authority gets %s from %s, not %d", test.key, issuer, response.Status, at.Name(), want)
				}
				return nil
			})
		}
		answers(server, "old", http.StatusOK)
		answers(server, "new", http.StatusUnauthorized)

		framework.ReplaceFile(t, test.ca.File, slices.Concat(test.ca.CertPEM(), next.CertPEM()))
		answers(server, "new", http.StatusOK)
		answers(server, "old", http.StatusOK)
		test.replace(next)

		// kube-apiserver adds to what is published, and never takes anything away.
		framework.ReplaceFile(t, test.ca.File, next.CertPEM())
		answers(cp.KubeAPIServer, "old", http.StatusUnauthorized)
		response, err := clients[place{server.Name(), "old"}].Get(server.URL() + framework.PizzasPath)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, "%s: the old certificate authority is refused before it is removed.", test.key)

		patch, err := json.Marshal(map[string]any{"data": map[string]string{test.key: string(next.CertPEM())}})
		require.NoError(t, err)
		configMaps := kubernetes.NewForConfigOrDie(operator).CoreV1().ConfigMaps(metav1.NamespaceSystem)
		_, err = configMaps.Patch(t.Context(), "extension-apiserver-authentication", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		answers(server, "old", http.StatusUnauthorized)
		answers(server, "new", http.StatusOK)
		// That goes on as it is, too.
		so := requests.Load()
		controlplane.Eventually(t, func() error {
			const some = 20
			if more := requests.Load() - so; more < some && len(failed) == 0 {
				return fmt.Errorf("only %d requests have been made since", more)
			}
			return nil
		})
		select {
		case err := <-failed:
			require.NoError(t, err, "After %d requests, while %s was rotated.", requests.Load(), test.key)
		default:
		}
		current, err := configMaps.Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, string(next.CertPEM()), current.Data[test.key])
	}
	require.Equal(t, pid, server.PID(), "The server has been restarted.")
}

// frontProxyOf is a front proxy with a certificate of a certificate authority, on connections that
// it keeps.
func frontProxyOf(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component, ca *controlplane.CA) *http.Client {
	t.Helper()
	return framework.HTTPClient(t, framework.FrontProxy(t, cp, at, ca, "administrator", "system:authenticated"))
}

// adminOf is a user with a certificate of a certificate authority.
func adminOf(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component, ca *controlplane.CA) *http.Client {
	t.Helper()
	pair, err := ca.Issue(controlplane.Certificate{User: "administrator"})
	require.NoError(t, err)
	config := framework.ConfigFor(t, cp, at, "administrator")
	config.CertData, config.KeyData = pair.Cert, pair.Key
	return framework.HTTPClient(t, config)
}

// requestAllTheTime makes requests until the test ends or one fails, which is then in
// the channel.
func requestAllTheTime(t *testing.T, config *rest.Config) (failed chan error, requests *atomic.Int64) {
	t.Helper()
	const pause = 10 * time.Millisecond
	config = rest.CopyConfig(config)
	// The test looks for requests that would be repeated.
	config.Wrap(withoutRetryAfter)
	client := versioned.NewForConfigOrDie(config)
	ctx, stop := context.WithCancel(t.Context())
	failed, requests = make(chan error, 1), &atomic.Int64{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, err := client.RestaurantV1().Toppings().List(ctx, metav1.ListOptions{}); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
			requests.Add(1)
			time.Sleep(pause)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return failed, requests
}

func withoutRetryAfter(next http.RoundTripper) http.RoundTripper {
	return framework.RoundTripper(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if err == nil {
			response.Header.Del("Retry-After")
		}
		return response, err
	})
}

// tokenConfig is the configuration of a service account at kube-apiserver.
func tokenConfig(t *testing.T, cp *controlplane.ControlPlane, namespace, name string) *rest.Config {
	t.Helper()
	const hour = int64(3600)
	config := cp.RESTConfig()
	accounts := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts(namespace)
	seconds := hour
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config.CertData, config.KeyData, config.BearerToken = nil, nil, token.Status.Token
	return config
}

// tokenKubeconfig writes a configuration into a file.
func tokenKubeconfig(t *testing.T, config *rest.Config, namespace string) string {
	t.Helper()
	kubeconfig := clientcmdapi.NewConfig()
	const name = "account"
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	kubeconfig.CurrentContext = name
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, file))
	return file
}
