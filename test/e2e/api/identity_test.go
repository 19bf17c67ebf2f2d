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
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// frontProxy is the only name under which a front proxy is believed.
const frontProxy = "front-proxy-client"

// credentials are what somebody presents to a server.
type credentials struct {
	certificate *controlplane.KeyPair
	token       string
	header      http.Header
}

// forged are the headers of a front proxy that speaks for an administrator.
func forged() http.Header {
	return http.Header{
		"X-Remote-User":         {"admin"},
		"X-Remote-Uid":          {"0"},
		"X-Remote-Group":        {"system:masters"},
		"X-Remote-Extra-Scopes": {"all"},
	}
}

// do sends a request and returns the answer with its body.
func (c credentials) do(t *testing.T, method, url, body string) (*http.Response, []byte) {
	t.Helper()
	config := &tls.Config{RootCAs: cp.PKI.ServingCA.Pool()}
	if c.certificate != nil {
		certificate, err := tls.X509KeyPair(c.certificate.Cert, c.certificate.Key)
		require.NoError(t, err)
		// Unlike a list of certificates it is sent to any server, not only to
		// one that names its certificate authority.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if c.header != nil {
		request.Header = c.header.Clone()
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/yaml")
	}
	request.Header.Set("Accept", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, answer
}

func issue(t *testing.T, ca *controlplane.CA, certificate controlplane.Certificate) *controlplane.KeyPair {
	t.Helper()
	pair, err := ca.Issue(certificate)
	require.NoError(t, err)
	return &pair
}

func serviceAccount(t *testing.T, namespace string, audiences ...string) (account *corev1.ServiceAccount, token string) {
	t.Helper()
	accounts := framework.Kube(cp).CoreV1().ServiceAccounts(namespace)
	account, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "cook-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	answer, err := accounts.CreateToken(t.Context(), account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return account, answer.Status.Token
}

func accountUser(account *corev1.ServiceAccount) string {
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name
}

// A client that forges the headers of a front proxy acts as itself, or as nobody.
// The forged user might do everything.
func TestForgedIdentity(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	stranger, err := controlplane.NewCA("stranger")
	require.NoError(t, err)
	account, token := serviceAccount(t, ns)
	_, tokenForOthers := serviceAccount(t, ns, "https://example.com")
	header, payload, _ := strings.Cut(token, ".")
	_, signature, _ := strings.Cut(payload, ".")
	tampered := header + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"admin","groups":["system:masters"]}`)) + "." + signature

	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	proxyCA, clientCA := cp.PKI.FrontProxyCA, cp.PKI.ClientCA
	const unauthorized = "401 Unauthorized"
	forbidden := func(user string) string {
		return fmt.Sprintf("403 pizzas.restaurant.programming-kubernetes.info is forbidden: User %q cannot create resource \"pizzas\" "+
			"in API group \"restaurant.programming-kubernetes.info\" in the namespace %q", user, ns)
	}
	for name, test := range map[string]struct {
		credentials credentials
		// want is the answer of both servers, unless kube-apiserver's differs.
		want, kubeAPIServer string
	}{
		"no certificate": {credentials{}, unauthorized, forbidden("system:anonymous")},
		"a certificate of a strange certificate authority for the front proxy": {
			credentials{certificate: issue(t, stranger, controlplane.Certificate{User: frontProxy})}, unauthorized, "",
		},
		"a certificate of a strange certificate authority for an administrator": {
			credentials{certificate: issue(t, stranger, controlplane.Certificate{User: "admin", Groups: []string{"system:masters"}})}, unauthorized, "",
		},
		"a certificate of the front proxy's certificate authority for another": {
			credentials{certificate: issue(t, proxyCA, controlplane.Certificate{User: "admin", Groups: []string{"system:masters"}})}, unauthorized, "",
		},
		"a certificate of the front proxy's certificate authority for no name": {
			credentials{certificate: issue(t, proxyCA, controlplane.Certificate{Groups: []string{"system:masters"}})}, unauthorized, "",
		},
		"a certificate of the front proxy's certificate authority for a server": {
			credentials{certificate: issue(t, proxyCA, controlplane.Certificate{User: frontProxy, Hosts: []string{"localhost"}})}, unauthorized, "",
		},
		"an expired certificate of the front proxy": {
			credentials{certificate: issue(t, proxyCA, controlplane.Certificate{User: frontProxy, NotBefore: past.Add(-time.Hour), NotAfter: past})}, unauthorized, "",
		},
		"a certificate of the front proxy that is not valid yet": {
			credentials{certificate: issue(t, proxyCA, controlplane.Certificate{User: frontProxy, NotBefore: future, NotAfter: future.Add(time.Hour)})}, unauthorized, "",
		},
		"an expired certificate of an administrator": {
			credentials{certificate: issue(t, clientCA, controlplane.Certificate{User: "admin", Groups: []string{"system:masters"}, NotBefore: past.Add(-time.Hour), NotAfter: past})}, unauthorized, "",
		},
		"a user's certificate": {
			credentials{certificate: issue(t, clientCA, controlplane.Certificate{User: "stranger"})}, forbidden("stranger"), "",
		},
		"a user's certificate with the front proxy's name": {
			credentials{certificate: issue(t, clientCA, controlplane.Certificate{User: frontProxy})}, forbidden(frontProxy), "",
		},
		"a service account's token":      {credentials{token: token}, forbidden(accountUser(account)), ""},
		"a token for another audience":   {credentials{token: tokenForOthers}, unauthorized, ""},
		"a token with another's payload": {credentials{token: tampered}, unauthorized, ""},
		"a token that is garbage":        {credentials{token: "garbage"}, unauthorized, ""},
		"a user's certificate and a token that is garbage": {
			credentials{certificate: issue(t, clientCA, controlplane.Certificate{User: "stranger"}), token: "garbage"}, forbidden("stranger"), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.kubeAPIServer == "" {
				test.kubeAPIServer = test.want
			}
			test.credentials.header = forged()
			for host, want := range map[string]string{cp.APIServer.URL(): test.want, cp.KubeAPIServer.URL(): test.kubeAPIServer} {
				requireAnswer(t, want, test.credentials, host, ns)
			}
		})
	}

	proxy := issue(t, proxyCA, controlplane.Certificate{User: frontProxy})
	for name, header := range map[string]http.Header{
		"a front proxy that names nobody":                    {},
		"a front proxy that names only a group":              {"X-Remote-Group": {"system:masters"}},
		"a front proxy that names a user without characters": {"X-Remote-User": {""}, "X-Remote-Group": {"system:masters"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireAnswer(t, unauthorized, credentials{certificate: proxy, header: header}, cp.APIServer.URL(), ns)
		})
	}
	t.Cleanup(func() {
		pizzas, err := framework.Restaurant(cp).RestaurantV1().Pizzas(ns).List(context.WithoutCancel(t.Context()), metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, pizzas.Items, "Somebody has created a pizza.")
	})
}

// requireAnswer has somebody create a pizza and requires the code and message of
// the answer.
func requireAnswer(t *testing.T, want string, who credentials, host, namespace string) {
	t.Helper()
	response, body := who.do(t, http.MethodPost, host+"/apis/restaurant.programming-kubernetes.info/v1/namespaces/"+namespace+"/pizzas", margherita(1))
	var status metav1.Status
	require.NoError(t, json.Unmarshal(body, &status), "%s", body)
	require.Equal(t, want, fmt.Sprintf("%d %s", response.StatusCode, status.Message), "The answer of %s.", host)
}

// audited returns what the server has written down about a request when it had
// answered.
func audited(t *testing.T, id string) auditv1.Event {
	t.Helper()
	require.NotEmpty(t, id)
	var event auditv1.Event
	controlplane.Eventually(t, func() error {
		for _, event = range framework.AuditEvents(t, filepath.Join(cp.APIServer.Dir(), framework.AuditLog), id) {
			if event.Stage == auditv1.StageResponseComplete {
				return nil
			}
		}
		return fmt.Errorf("the audit log does not say that request %s has been answered", id)
	})
	return event
}

// Nobody needs credentials to see that the server is well; for all else they do.
func TestPathsThatAreOpen(t *testing.T) {
	t.Parallel()
	nobody := credentials{}
	user := credentials{certificate: issue(t, cp.PKI.ClientCA, controlplane.Certificate{User: "stranger"})}
	monitor := credentials{certificate: issue(t, cp.PKI.ClientCA, controlplane.Certificate{User: "prometheus", Groups: []string{"system:monitoring"}})}
	admin := credentials{certificate: issue(t, cp.PKI.ClientCA, controlplane.Certificate{User: "admin", Groups: []string{"system:masters"}})}
	const group = "/apis/restaurant.programming-kubernetes.info"
	for path, want := range map[string][4]int{
		"/healthz":              {200, 200, 200, 200},
		"/livez":                {200, 200, 200, 200},
		"/readyz":               {200, 200, 200, 200},
		"/readyz?verbose":       {200, 200, 200, 200},
		"/healthz/ping":         {401, 403, 200, 200},
		"/livez/ping":           {401, 403, 200, 200},
		"/readyz/etcd":          {401, 403, 200, 200},
		"/healthz/":             {401, 403, 404, 404},
		"/metrics":              {401, 403, 200, 200},
		"/metrics/slis":         {401, 403, 200, 200},
		"/version":              {401, 200, 200, 200},
		"/openapi/v2":           {401, 200, 200, 200},
		"/openapi/v3":           {401, 200, 200, 200},
		"/apis":                 {401, 200, 200, 200},
		group:                   {401, 200, 200, 200},
		group + "/v1":           {401, 200, 200, 200},
		group + "/v1/watch":     {401, 404, 404, 404},
		"/":                     {401, 403, 403, 200},
		"/debug/pprof/":         {401, 403, 403, 200},
		"/debug/pprof/heap":     {401, 403, 403, 200},
		"/no/such":              {401, 403, 403, 404},
		"/livez/../metrics":     {401, 403, 404, 404},
		"//metrics":             {401, 403, 403, 404},
		"/livez%2F..%2Fmetrics": {401, 403, 404, 404},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			var got [4]int
			for i, who := range []credentials{nobody, user, monitor, admin} {
				response, _ := who.do(t, http.MethodGet, cp.APIServer.URL()+path, "")
				got[i] = response.StatusCode
			}
			require.Equal(t, want, got, "The answers to nobody, a user, a monitor and an administrator.")
		})
	}
}

// A server with an audience of its own takes no token that kube-apiserver takes, and the other way
// round.
func TestAudiences(t *testing.T) {
	framework.Long(t, "it has a server of its own")
	t.Parallel()
	ns := framework.Namespace(t, cp)
	server := framework.NewServer(t, cp, framework.Flags("--api-audiences=kitchen,pizzeria", "--run-controllers=false"))
	require.NoError(t, server.Start(t.Context()))
	_, forThis := serviceAccount(t, ns, "pizzeria")
	_, forOthers := serviceAccount(t, ns, "https://example.com")
	_, forKubeAPIServer := serviceAccount(t, ns)
	for name, test := range map[string]struct {
		credentials credentials
		url         string
		want        int
	}{
		"a token for this server":                   {credentials{token: forThis}, server.URL(), http.StatusOK},
		"a token for kube-apiserver":                {credentials{token: forKubeAPIServer}, server.URL(), http.StatusUnauthorized},
		"a token for another":                       {credentials{token: forOthers}, server.URL(), http.StatusUnauthorized},
		"a certificate":                             {credentials{certificate: issue(t, cp.PKI.ClientCA, controlplane.Certificate{User: "stranger"})}, server.URL(), http.StatusOK},
		"kube-apiserver, a token for this server":   {credentials{token: forThis}, cp.KubeAPIServer.URL(), http.StatusUnauthorized},
		"kube-apiserver, a token for itself":        {credentials{token: forKubeAPIServer}, cp.KubeAPIServer.URL(), http.StatusOK},
		"a server without audiences, a default one": {credentials{token: forKubeAPIServer}, cp.APIServer.URL(), http.StatusOK},
	} {
		response, body := test.credentials.do(t, http.MethodGet, test.url+"/apis", "")
		require.Equal(t, test.want, response.StatusCode, "%s: %s", name, body)
	}
}
