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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestIdentity shows which user a server takes a request to be from, and what is open to nobody. It knows the certificate
// authorities from the cluster, or from flags.
func TestIdentity(t *testing.T) {
	t.Parallel()
	withFiles := framework.NewServer(t, cp, framework.Flags("--authentication-skip-lookup", "--client-ca-file="+cp.PKI.ClientCA.File,
		"--requestheader-client-ca-file="+cp.PKI.FrontProxyCA.File, "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--run-controllers=false"))
	require.NoError(t, withFiles.Start(t.Context()))
	namespace := framework.Namespace(t, cp)
	accounts := framework.Kube(cp).CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cook"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	issued, err := accounts.CreateToken(t.Context(), "cook", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, cook := issued.Status.Token, "system:serviceaccount:"+namespace+":cook"
	foreign, err := controlplane.NewCA("foreign")
	require.NoError(t, err)

	const front = "front-proxy-client"
	users, proxies, admin := cp.PKI.ClientCA, cp.PKI.FrontProxyCA, []string{"admin", user.SystemPrivilegedGroup}
	for name, test := range map[string]struct {
		// ca has issued a certificate for a name and groups, if there is one.
		ca     *controlplane.CA
		name   string
		groups []string
		token  string
		// headers are the user and the groups that the client asserts to be.
		headers []string
		// want is the user; admin may do everything, and all others nothing.
		want string
	}{
		"a certificate":                       {ca: users, name: "reader", want: "reader"},
		"the certificate of an administrator": {ca: users, name: "admin", groups: admin[1:], want: "admin"},
		"a token":                             {token: token, want: cook},
		"a user of the front proxy":           {ca: proxies, name: front, headers: []string{"reader"}, want: "reader"},
		"an administrator of it":              {ca: proxies, name: front, headers: admin, want: "admin"},
		"an anonymous user of it":             {ca: proxies, name: front, headers: []string{user.Anonymous, user.AllUnauthenticated}, want: user.Anonymous},
		"a front proxy that names nobody":     {ca: proxies, name: front, headers: []string{""}},
		"a front proxy of another name":       {ca: proxies, name: "impostor", headers: admin},
		"a certificate, and headers":          {ca: users, name: "reader", headers: admin, want: "reader"},
		"a token, and headers":                {token: token, headers: admin, want: cook},
		"only headers":                        {headers: admin},
		"another certificate authority":       {ca: foreign, name: "admin", groups: admin[1:], headers: admin},
		"a token that nobody has issued":      {token: "guessed"},
		"nothing":                             {},
	} {
		for _, server := range []*controlplane.Component{cp.APIServer, withFiles} {
			t.Run(name+" at "+server.Name(), func(t *testing.T) {
				t.Parallel()
				config := rest.AnonymousClientConfig(framework.AdminConfig(t, cp, server))
				config.BearerToken = test.token
				if test.ca != nil {
					pair, err := test.ca.Issue(controlplane.Certificate{User: test.name, Groups: test.groups})
					require.NoError(t, err)
					config.CertData, config.KeyData = pair.Cert, pair.Key
				}
				if len(test.headers) > 0 {
					config.Wrap(func(next http.RoundTripper) http.RoundTripper {
						return transport.NewAuthProxyRoundTripper(test.headers[0], "", test.headers[1:], nil, next)
					})
				}
				want := `403 pizzas.restaurant.programming-kubernetes.info is forbidden: User "` + test.want + `" cannot list`
				switch test.want {
				case "admin":
					want = "200 "
				case "":
					want = "401 Unauthorized"
				}
				got, err := framework.Send(config, http.MethodGet, framework.PizzasPath, "", "")
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(got, want), "got %s, want %s", got, want)
			})
		}
	}
	// Clusters let everybody read some of these.
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/healthz": 200, "/readyz?verbose": 200,
		"/readyz/ping": 401, "/version": 401, "/openapi/v2": 401, "/apis": 401, framework.GroupPath + "/v1": 401, "/metrics": 401, "/": 401,
	} {
		code, _, err := framework.GetAs(t, rest.AnonymousClientConfig(framework.AdminConfig(t, cp, cp.APIServer)), path)
		require.NoError(t, err)
		require.Equal(t, want, code, path)
	}
}

// A server with an audience of its own takes tokens for this audience only.
func TestAudiences(t *testing.T) {
	framework.Long(t, "it has a server of its own")
	t.Parallel()
	accounts := framework.Kube(cp).CoreV1().ServiceAccounts(framework.Namespace(t, cp))
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cook"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	server := framework.NewServer(t, cp, framework.Flags("--api-audiences=kitchen,pizzeria", "--run-controllers=false"))
	require.NoError(t, server.Start(t.Context()))
	for name, test := range map[string]struct {
		audiences []string
		server    *controlplane.Component
		want      int
	}{
		"a token for this server":                   {[]string{"pizzeria"}, server, http.StatusOK},
		"a token for kube-apiserver":                {nil, server, http.StatusUnauthorized},
		"a server without audiences, a default one": {nil, cp.APIServer, http.StatusOK},
	} {
		issued, err := accounts.CreateToken(t.Context(), "cook",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: test.audiences}}, metav1.CreateOptions{})
		require.NoError(t, err)
		config := rest.AnonymousClientConfig(framework.AdminConfig(t, cp, test.server))
		config.BearerToken = issued.Status.Token
		code, body, err := framework.GetAs(t, config, "/apis")
		require.NoError(t, err)
		require.Equal(t, test.want, code, "%s: %s", name, body)
	}
}
