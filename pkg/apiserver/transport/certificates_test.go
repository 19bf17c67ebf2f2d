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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// serveCertificates answers with the number of a client's certificates at the address of a listener.
func serveCertificates(t *testing.T, listener net.Listener) {
	t.Helper()
	connections := NewConnections(limits.DefaultBounds())
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(t, err)
	serving, err := dynamiccertificates.NewStaticCertKeyContent("serving", cert, key)
	require.NoError(t, err)
	clients, err := dynamiccertificates.NewStaticCAContent("clients", cert)
	require.NoError(t, err)
	server := &genericapiserver.SecureServingInfo{Listener: connections.Listener(listener), Cert: serving, ClientCA: clients}
	stop := make(chan struct{})
	stopped, _, err := server.Serve(connections.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Certificates", fmt.Sprint(len(req.TLS.PeerCertificates)))
	})), time.Minute, stop)
	require.NoError(t, err)
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

// issueCertificates returns a number of certificates that are a bit larger than some bytes, and their key.
func issueCertificates(t *testing.T, count, bytes int) *tls.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	issued := &tls.Certificate{PrivateKey: private}
	for i := range count {
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: fmt.Sprint(i)}, SubjectKeyId: make([]byte, bytes)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		require.NoError(t, err)
		issued.Certificate = append(issued.Certificate, der)
	}
	return issued
}

// present asks a server of serveCertificates for the number, over a connection of its own.
func present(t *testing.T, listener net.Listener, protocol string, certificates *tls.Certificate) (number string) {
	t.Helper()
	transport := &http.Transport{ForceAttemptHTTP2: protocol == "h2", TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{protocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificates, nil },
	}}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+listener.Addr().String(), nil)
	require.NoError(t, err)
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	if response.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
		return "refused"
	}
	return response.Header.Get("Certificates")
}

// Large certificates and long chains are refused; certificates of honest clients are not.
func TestCertificatesOfClients(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serveCertificates(t, listener)
	for name, test := range map[string]struct {
		count, bytes int
		want         string
	}{
		"none":                              {0, 0, "0"},
		"one of a user":                     {1, 20, "1"},
		"a chain of three":                  {3, 20, "3"},
		"large certificates":                {3, 10 << 10, "3"},
		"a chain of five":                   {5, 20, "refused"},
		"a huge one":                        {1, 32 << 10, "refused"},
		"several that are large altogether": {4, 9 << 10, "refused"},
	} {
		for _, protocol := range []string{"h2", "http/1.1"} {
			t.Run(name+" over "+protocol, func(t *testing.T) {
				require.Equal(t, test.want, present(t, listener, protocol, issueCertificates(t, test.count, test.bytes)))
			})
		}
	}
}
