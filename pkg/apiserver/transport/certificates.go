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
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

const (
	// maxCertificateBytes bounds what the certificates of a client take while it is connected. Real chains have two to
	// four certificates of 1 to 2 KiB. The library allows 256 KiB.
	maxCertificateBytes = 64 << 10
	// maxCertificates is how many of them are looked at.
	maxCertificates = 10
	// maxReason bounds what is logged about an ignored certificate. It repeats text of the client.
	maxReason = 256
)

// boundHandshakes makes handshakes of clients with larger certificates fail, and tells their connections when they end.
func boundHandshakes(config *tls.Config) {
	forClient := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (made *tls.Config, err error) {
		if forClient != nil {
			made, err = forClient(hello)
		}
		if made == nil && err == nil {
			made = config.Clone()
		}
		if made != nil { // The library makes a copy for each client.
			made.VerifyConnection = func(state tls.ConnectionState) error {
				return endHandshake(boundOf(hello.Conn), state.PeerCertificates)
			}
		}
		return made, err
	}
}

// endHandshake is called once the client's certificates are known, if it has any, also for those that resume a session.
func endHandshake(conn *boundedConn, presented []*x509.Certificate) error {
	size := 0
	for _, certificate := range presented {
		size += len(certificate.Raw)
	}
	if size > maxCertificateBytes {
		return fmt.Errorf("the client presents certificates of more than %d bytes", maxCertificateBytes)
	}
	conn.expect(headerFactor)
	if !conn.hold(forCertificates, size*certificateFactor) {
		return fmt.Errorf("the client presents certificates of %d bytes, and its IP address has the server hold too much already", size)
	}
	return nil
}

// WithKnownCertificates ignores the certificates that no certificate authority of clients has issued. The library tries
// all of a client's certificates to verify one, up to a hundred signatures of several milliseconds for each request.
// Here, only keys of certificate authorities are used, once for a connection. After a minute, or when the certificate
// authorities change, they are used again.
//
// It authenticates nobody: certificates of users that are left are verified for each request.
func WithKnownCertificates(next http.Handler, authorities dynamiccertificates.CAContentProvider) http.Handler {
	if authorities == nil {
		return next // Then the server asks for no certificates.
	}
	var changes changes
	logs := limits.NewLogPace()
	authorities.AddListener(&changes)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
			version := [2]int64{changes.Load(), time.Now().Unix() / 60}
			req.TLS = verified(req, version, func() *tls.ConnectionState { return withKnown(req, authorities, logs) })
		}
		next.ServeHTTP(w, req)
	})
}

// verified returns what verify has returned for the connection of a request. It is called once for each connection and
// version.
func verified(req *http.Request, version [2]int64, verify func() *tls.ConnectionState) *tls.ConnectionState {
	conn, ok := req.Context().Value(connectionKey{}).(*drainedConn)
	if !ok {
		return verify()
	}
	conn.verifying.Lock()
	defer conn.verifying.Unlock()
	if conn.verified == nil || conn.version != version {
		conn.verified, conn.version = verify(), version
	}
	return conn.verified
}

// changes counts those of certificate authorities.
type changes struct{ atomic.Int64 }

// Enqueue is called after a change.
func (c *changes) Enqueue() { c.Add(1) }

// withKnown returns the state of a request's connection with the certificates that lead to a certificate authority.
func withKnown(req *http.Request, authorities dynamiccertificates.CAContentProvider, logs flowcontrol.RateLimiter) *tls.ConnectionState {
	state := *req.TLS
	presented := state.PeerCertificates[:min(len(state.PeerCertificates), maxCertificates)]
	state.PeerCertificates = nil
	trusted, err := certutil.ParseCertsPEM(authorities.CurrentCABundleContent())
	if err != nil {
		return &state // There are none.
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range trusted {
		roots.AddCert(root)
	}
	for _, issuer := range issuers(trusted, presented[1:]) {
		intermediates.AddCert(issuer)
	}
	chains, err := presented[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		if logs.TryAccept() {
			klog.InfoS("The certificate of a client is ignored", "client", req.RemoteAddr, "reason", fmt.Sprintf("%.*s", maxReason, err))
		}
		return &state
	}
	known := slices.Concat(chains...)
	for _, certificate := range presented {
		if slices.Contains(known, certificate) {
			state.PeerCertificates = append(state.PeerCertificates, certificate)
		}
	}
	return &state
}

// issuers returns the presented certificates that trusted ones have issued, and those that these have issued in turn.
func issuers(trusted, presented []*x509.Certificate) (found []*x509.Certificate) {
	for _, issuer := range trusted {
		var issued []*x509.Certificate
		presented = slices.DeleteFunc(slices.Clone(presented), func(certificate *x509.Certificate) bool {
			known := bytes.Equal(certificate.RawIssuer, issuer.RawSubject) && certificate.CheckSignatureFrom(issuer) == nil
			if known {
				issued = append(issued, certificate)
			}
			return known
		})
		found = slices.Concat(found, issued, issuers(issued, presented))
	}
	return found
}
