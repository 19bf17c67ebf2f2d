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
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
)

// maxCertificateBytes bounds what the certificates of a client take while it is connected, 16 times their size.
// Real chains have two to four certificates of 1 to 2 KiB. crypto/tls allows 256 KiB.
const maxCertificateBytes = 32 << 10

func checkCertificates(req *http.Request) error {
	size := 0
	if req.TLS != nil {
		for _, certificate := range req.TLS.PeerCertificates {
			size += len(certificate.Raw)
		}
	}
	if size > maxCertificateBytes {
		return fmt.Errorf("client certificates must not have more than %d bytes together", maxCertificateBytes)
	}
	return nil
}

// knownCertificates are those of a connection's client that a certificate authority has issued. crypto/x509 tries all of
// a client's certificates to verify one, up to a hundred signatures of several milliseconds for each request. Here, only
// keys of certificate authorities are used, once for a connection. After a minute, or when the certificate authorities
// change, they are used again.
//
// Nobody is authenticated by them: certificates of users that are left are verified for each request.
type knownCertificates struct {
	mu sync.Mutex
	// state is nil before the first request. It is as of a minute and a rotation of the certificate authorities.
	state             *tls.ConnectionState
	minute, rotations int64
}

func (k *knownCertificates) of(req *http.Request, authorities dynamiccertificates.CAContentProvider, rotations int64, logs flowcontrol.RateLimiter) *tls.ConnectionState {
	k.mu.Lock()
	defer k.mu.Unlock()
	minute := time.Now().Unix() / 60
	if k.state != nil && k.minute == minute && k.rotations == rotations {
		return k.state
	}
	state := *req.TLS
	var err error
	if state.PeerCertificates, err = known(state.PeerCertificates, authorities.CurrentCABundleContent()); err != nil && logs.TryAccept() {
		klog.InfoS("The certificate of a client is ignored", "client", req.RemoteAddr, "reason", fmt.Sprintf("%.256s", err))
	}
	k.state, k.minute, k.rotations = &state, minute, rotations
	return k.state
}

// known returns the presented certificates that lead to a certificate authority of the bundle.
func known(presented []*x509.Certificate, bundle []byte) ([]*x509.Certificate, error) {
	trusted, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return nil, nil //nolint:nilerr // There are none.
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, root := range trusted {
		roots.AddCert(root)
	}
	issuers := issuers(trusted, presented[1:])
	for _, issuer := range issuers {
		intermediates.AddCert(issuer)
	}
	if _, err := presented[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return nil, err
	}
	return append(presented[:1:1], issuers...), nil
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
