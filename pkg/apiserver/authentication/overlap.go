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
	"bytes"
	"crypto/x509"
	"fmt"
)

// OverlapError explains the risk of an overlap in the certificate authority of this subject,
// and the fix.
func OverlapError(subject string) error {
	return fmt.Errorf("the request-header CA and the client CA overlap in %q and no --requestheader-allowed-names are set, so that every user with a client certificate could act as any other: give kube-apiserver a front-proxy CA of its own, or both servers the allowed names", subject)
}

// Overlap reports whether a user's certificate could pass for one of a front proxy. That is so
// if the client CA has the key of a request-header CA, or is issued by one.
// Upstream fault 29.
func Overlap(requestHeader, client []*x509.Certificate) (subject string, ok bool) {
	roots := x509.NewCertPool()
	for _, ca := range requestHeader {
		roots.AddCert(ca)
	}
	for _, ca := range client {
		for _, front := range requestHeader {
			if bytes.Equal(ca.RawSubjectPublicKeyInfo, front.RawSubjectPublicKeyInfo) {
				return ca.Subject.String(), true
			}
		}
		if _, err := ca.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
			return ca.Subject.String(), true
		}
	}
	return "", false
}
