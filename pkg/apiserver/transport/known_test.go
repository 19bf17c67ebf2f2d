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

package transport

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// rotatedCA is a bundle that changes.
type rotatedCA struct {
	dynamiccertificates.CAContentProvider
	bundle   atomic.Value
	listener dynamiccertificates.Listener
}

func (r *rotatedCA) AddListener(listener dynamiccertificates.Listener) { r.listener = listener }

func (r *rotatedCA) CurrentCABundleContent() []byte { return r.bundle.Load().([]byte) }

func (r *rotatedCA) rotate(authorities ...*testCA) {
	var bundle bytes.Buffer
	for _, authority := range authorities {
		_ = pem.Encode(&bundle, &pem.Block{Type: "CERTIFICATE", Bytes: authority.certificate.Raw})
	}
	r.bundle.Store(bundle.Bytes())
	r.listener.Enqueue()
}

// testCA is a certificate authority with its key. As a client, it presents its certificate.
type testCA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newCA returns one that another has issued, or itself.
func newCA(t *testing.T, name string, issuer *testCA) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if issuer == nil {
		issuer = &testCA{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, key.Public(), issuer.key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &testCA{certificate, key}
}

// The certificates of a connection are ignored unless they lead to a certificate authority, as long as that is one.
func TestKnownCertificates(t *testing.T) {
	users, others := newCA(t, "users", nil), newCA(t, "others", nil)
	intermediate := newCA(t, "intermediate", users)
	second := newCA(t, "second", intermediate)
	forged := newCA(t, "users", nil)
	unrelated := newCA(t, "intermediate", nil)
	authorities := &rotatedCA{}
	connections := NewConnections(limits.DefaultBounds())
	server := httptest.NewUnstartedServer(connections.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var names []string
		for _, certificate := range req.TLS.PeerCertificates {
			names = append(names, certificate.Subject.CommonName)
		}
		w.Header().Set("Names", fmt.Sprint(names))
		w.Header().Set("Verified", fmt.Sprintf("%p", req.TLS))
	}), authorities))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.Listener = connections.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	authorities.rotate(users)
	for name, test := range map[string]struct {
		leaf  *testCA
		chain []*testCA
		// want is before, and rotated after there are other authorities.
		want, rotated string
	}{
		"nobody":                {nil, nil, "[]", "[]"},
		"a user":                {newCA(t, "user", users), nil, "[user]", "[]"},
		"with an intermediate":  {newCA(t, "user", intermediate), []*testCA{intermediate}, "[user intermediate]", "[]"},
		"without it":            {newCA(t, "user", intermediate), nil, "[]", "[]"},
		"with others":           {newCA(t, "user", intermediate), []*testCA{unrelated, forged, intermediate}, "[user intermediate]", "[]"},
		"of two, with the root": {newCA(t, "user", second), []*testCA{users, second, intermediate}, "[user users intermediate second]", "[]"},
		"after many others":     {newCA(t, "user", intermediate), append(slices.Repeat([]*testCA{forged}, 40), intermediate), "[user intermediate]", "[]"},
		"a stranger":            {newCA(t, "user", forged), []*testCA{forged}, "[]", "[]"},
		"of a later authority":  {newCA(t, "user", others), nil, "[]", "[user]"},
	} {
		t.Run(name, func(t *testing.T) {
			authorities.rotate(users)
			client := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
				InsecureSkipVerify: true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					presented := &tls.Certificate{}
					if test.leaf != nil {
						presented.PrivateKey = test.leaf.key
						for _, of := range append([]*testCA{test.leaf}, test.chain...) {
							presented.Certificate = append(presented.Certificate, of.certificate.Raw)
						}
					}
					return presented, nil
				},
			}}
			t.Cleanup(client.CloseIdleConnections)
			const requests = 10
			for _, want := range []string{test.want, test.rotated} {
				verified := sets.New[string]()
				for range requests {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
					require.NoError(t, err)
					response, err := client.RoundTrip(request)
					require.NoError(t, err)
					require.NoError(t, response.Body.Close())
					require.Equal(t, want, response.Header.Get("Names"))
					verified.Insert(response.Header.Get("Verified"))
				}
				require.Less(t, len(verified), requests, "Each request was verified.")
				authorities.rotate(others)
			}
		})
	}
}
