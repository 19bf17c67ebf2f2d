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
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

// maxReason is how much is logged of why a certificate is ignored. The client has written a part of it.
const maxReason = 256

// WithKnownCertificates ignores certificates that no certificate authority of clients has issued. Certificates of
// strangers may take long to verify, and the handlers of the library and of this server would do so four times for each
// request. Here it is once for a connection, and again after a minute or when the authorities change.
//
// It authenticates nobody: those that are left are verified for each request.
func WithKnownCertificates(next http.Handler, authorities dynamiccertificates.CAContentProvider) http.Handler {
	if authorities == nil {
		return next // Then the server asks for no certificates.
	}
	var changes changes
	authorities.AddListener(&changes)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
			version := changes.Load() + time.Now().Unix()/60 // Neither decreases.
			req.TLS = transport.Verified(req, version, func() *tls.ConnectionState { return withKnown(req, authorities) })
		}
		next.ServeHTTP(w, req)
	})
}

// changes counts those of certificate authorities.
type changes struct{ atomic.Int64 }

// Enqueue is called after a change.
func (c *changes) Enqueue() { c.Add(1) }

// withKnown returns the state of a request's connection with those certificates that lead to an authority.
func withKnown(req *http.Request, authorities dynamiccertificates.CAContentProvider) *tls.ConnectionState {
	state := *req.TLS
	state.PeerCertificates = nil
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities.CurrentCABundleContent())
	intermediates := x509.NewCertPool()
	for _, intermediate := range req.TLS.PeerCertificates[1:] {
		intermediates.AddCert(intermediate)
	}
	chains, err := req.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		klog.InfoS("The certificate of a client is ignored", "client", req.RemoteAddr, "reason", fmt.Sprintf("%.*s", maxReason, err))
		return &state
	}
	known := slices.Concat(chains...)
	for _, certificate := range req.TLS.PeerCertificates {
		if slices.Contains(known, certificate) {
			state.PeerCertificates = append(state.PeerCertificates, certificate)
		}
	}
	return &state
}
