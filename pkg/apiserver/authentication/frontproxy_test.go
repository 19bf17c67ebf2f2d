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

package authentication

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

// rotatedCA is a bundle that changes.
type rotatedCA struct {
	dynamiccertificates.CAContentProvider
	bundle    []byte
	pool      *x509.CertPool
	listeners []dynamiccertificates.Listener
}

func (r *rotatedCA) CurrentCABundleContent() []byte { return r.bundle }

func (r *rotatedCA) VerifyOptions() (x509.VerifyOptions, bool) {
	return x509.VerifyOptions{Roots: r.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, r.pool != nil
}

func (r *rotatedCA) Name() string { return "rotated" }

func (r *rotatedCA) AddListener(listener dynamiccertificates.Listener) {
	r.listeners = append(r.listeners, listener)
}

func (r *rotatedCA) rotate(bundles ...[]byte) {
	r.bundle = slices.Concat(bundles...)
	r.pool = x509.NewCertPool()
	r.pool.AppendCertsFromPEM(r.bundle)
	for _, listener := range r.listeners {
		listener.Enqueue()
	}
}

// TestRotatedFrontProxy believes the headers of a front proxy until a rotation makes
// its certificate authority one of users, too.
func TestRotatedFrontProxy(t *testing.T) {
	authority := func(name string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: newCA(t, name, nil).certificate.Raw})
	}
	first, second, users := authority("first"), authority("second"), authority("users")
	proxies, clients := &rotatedCA{bundle: first}, &rotatedCA{bundle: users}
	var allowed []string
	names := headerrequest.StringSliceProviderFunc(func() []string { return allowed })
	none := headerrequest.StaticStringSlice{}
	proxy := NewFrontProxy(
		authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: req.Header.Get("X-Remote-User")}}, true, nil
		}),
		&authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: none, GroupHeaders: none, ExtraHeaderPrefixes: none,
			CAContentProvider: proxies, AllowedClientNames: names,
		},
		dynamiccertificates.NewUnionCAContentProvider(clients, proxies))

	for _, step := range []struct {
		name     string
		change   func()
		believed bool
	}{
		{"at the start", func() {}, true},
		{"two of the proxies", func() { proxies.rotate(first, second) }, true},
		{"another of the users", func() { clients.rotate(users, authority("more users")) }, true},
		{"the users get the second", func() { clients.rotate(users, second) }, false},
		{"unless names are allowed", func() { allowed = []string{"front-proxy-client"} }, true},
		{"which can be taken back", func() { allowed = nil }, false},
		{"the proxies have the first only", func() { proxies.rotate(first) }, true},
		{"the users have nothing else", func() { clients.rotate(first) }, false},
		{"the proxies leave it", func() { proxies.rotate(second) }, true},
		{"an empty bundle", func() { clients.rotate() }, true},
	} {
		step.change()
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("X-Remote-User", "anna")
		response, ok, err := proxy.AuthenticateRequest(req)
		require.NoError(t, err, step.name)
		require.True(t, ok, step.name)
		if step.believed {
			require.Equal(t, "anna", response.User.GetName(), step.name)
			require.NoError(t, proxy.Check(), step.name)
		} else {
			require.Empty(t, response.User.GetName(), step.name)
			require.ErrorContains(t, proxy.Check(), "overlap", step.name)
		}
		require.Equal(t, "anna", req.Header.Get("X-Remote-User"), "The request is somebody else's.")
	}
}

// TestVerifiedFrontProxy believes the certificate of a front proxy for as long as it is valid, and
// no other.
func TestVerifiedFrontProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bundle := func(ca *testCA) []byte {
			return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.certificate.Raw})
		}
		first, second, users := newCA(t, "first", nil), newCA(t, "second", nil), newCA(t, "users", nil)
		client := newCA(t, "front-proxy-client", first).certificate
		stranger := newCA(t, "front-proxy-client", users).certificate
		proxies := &rotatedCA{}
		proxies.rotate(bundle(first))
		allowed := []string{"front-proxy-client"}
		empty := headerrequest.StaticStringSlice{}
		config := &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: empty, ExtraHeaderPrefixes: empty,
			GroupHeaders:      headerrequest.StaticStringSlice{"X-Remote-Group"},
			CAContentProvider: proxies, AllowedClientNames: headerrequest.StringSliceProviderFunc(func() []string { return allowed }),
		}
		library, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{RequestHeaderConfig: config}.New()
		require.NoError(t, err)
		proxy := NewFrontProxy(library, config, &rotatedCA{bundle: bundle(users)})
		var none *FrontProxy
		require.False(t, none.Sends(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{client}}}))

		for _, step := range []struct {
			name        string
			change      func()
			certificate *x509.Certificate
			believed    bool
		}{
			{"the first request", func() {}, client, true},
			{"another", func() {}, client, true},
			{"somebody else", func() {}, stranger, false},
			{"without a certificate", func() {}, nil, false},
			{"another name is allowed", func() { allowed = []string{"other"} }, client, false},
			{"any name is allowed", func() { allowed = nil }, client, true},
			{"other authorities", func() { proxies.rotate(bundle(second)) }, client, false},
			{"both authorities", func() { proxies.rotate(bundle(first), bundle(second)) }, client, true},
			{"before it expires", func() { time.Sleep(time.Until(client.NotAfter) - time.Second) }, client, true},
			{"when it has expired", func() { time.Sleep(2 * time.Second) }, client, false},
		} {
			step.change()
			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.TLS = &tls.ConnectionState{}
			if step.certificate != nil {
				req.TLS.PeerCertificates = []*x509.Certificate{step.certificate}
			}
			req.Header.Set("X-Remote-User", "anna")
			req.Header.Set("X-Remote-Group", "cooks")
			require.Equal(t, step.believed, proxy.Sends(req), step.name)
			response, ok, _ := proxy.AuthenticateRequest(req)
			require.Equal(t, step.believed, ok, step.name)
			if step.believed {
				require.Equal(t, "anna", response.User.GetName(), step.name)
				require.Equal(t, []string{"cooks", user.AllAuthenticated}, response.User.GetGroups(), step.name)
				require.True(t, ByFrontProxy(response.User), step.name)
				require.NotContains(t, req.Header, "X-Remote-User", step.name)
			}
		}
	})
}

// The certificate of a front proxy is verified once for its connection.
func TestFrontProxyOfConnection(t *testing.T) {
	bundle := func(ca *testCA) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.certificate.Raw})
	}
	first, second := newCA(t, "first", nil), newCA(t, "second", nil)
	client := newCA(t, "front-proxy-client", first)
	proxies := &rotatedCA{}
	none := headerrequest.StaticStringSlice{}
	config := &authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders: headerrequest.StaticStringSlice{"X-Remote-User"}, UIDHeaders: none, GroupHeaders: none, ExtraHeaderPrefixes: none,
		CAContentProvider: proxies, AllowedClientNames: none,
	}
	library, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{RequestHeaderConfig: config}.New()
	require.NoError(t, err)
	clientCAs := dynamiccertificates.NewUnionCAContentProvider(&rotatedCA{}, proxies)
	proxy := NewFrontProxy(library, config, clientCAs)
	connections := transport.NewConnections(limits.DefaultBounds())
	server := httptest.NewUnstartedServer(connections.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		trusted := transport.Trusted(req)
		response, ok, _ := proxy.AuthenticateRequest(req)
		_, _ = io.WriteString(w, answer{trusted, ok && response.User.GetName() == "anna"}.String())
	})))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.Listener = connections.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	connection := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{Certificate: [][]byte{client.certificate.Raw}, PrivateKey: client.key}, nil
		},
	}}
	t.Cleanup(connection.CloseIdleConnections)

	ask := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		req.Header.Set("X-Remote-User", "anna")
		response, err := connection.RoundTrip(req)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return string(body)
	}
	proxies.rotate(bundle(first))
	require.Equal(t, answer{false, true}.String(), ask())
	require.Equal(t, answer{true, true}.String(), ask())
	proxies.rotate(bundle(second))
	connection.CloseIdleConnections()
	require.Equal(t, answer{false, false}.String(), ask())
}

// answer reports whether the connection had been verified, and whether its headers were believed.
type answer struct{ trusted, believed bool }

func (a answer) String() string { return fmt.Sprintf("trusted %t, believed %t", a.trusted, a.believed) }
