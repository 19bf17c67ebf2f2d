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
	"crypto/tls"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
)

// A client may present so many certificates, of so many bytes together. Real chains have two to four of 1 to 2 KiB.
//
// So many may have the subject of another one, as a renewed or cross-signed authority has. To verify a chain, the library
// tries each certificate of the issuer's subject, and then those of its issuer: up to a hundred signatures, each of which takes
// more than a millisecond with P-521. With these bounds, they are less than twenty.
const (
	maxCertificates     = 10
	maxCertificateBytes = 64 << 10
	maxSameSubject      = 1
)

// boundCertificates makes the handshakes of clients with more or larger certificates fail.
func boundCertificates(config *tls.Config) {
	forClient := config.GetConfigForClient
	if forClient == nil {
		config.VerifyConnection = checkCertificates
		return
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		config, err := forClient(hello)
		if config != nil {
			config.VerifyConnection = checkCertificates // The library makes a copy for each client.
		}
		return config, err
	}
}

// checkCertificates is called in each handshake, also when a session goes on.
func checkCertificates(state tls.ConnectionState) error {
	if len(state.PeerCertificates) > maxCertificates {
		return fmt.Errorf("the client presents more than %d certificates", maxCertificates)
	}
	size, certificates, subjects := 0, sets.New[string](), sets.New[string]()
	for _, certificate := range state.PeerCertificates {
		size += len(certificate.Raw)
		certificates.Insert(string(certificate.Raw))
		subjects.Insert(string(certificate.RawSubject))
	}
	if certificates.Len()-subjects.Len() > maxSameSubject {
		return fmt.Errorf("the client presents more than %d certificates with the subject of another", maxSameSubject)
	}
	if size > maxCertificateBytes {
		return fmt.Errorf("the client presents certificates of more than %d bytes", maxCertificateBytes)
	}
	return nil
}

// Verified returns what verify has returned for the connection of a request. It is called once for each connection and
// version.
func Verified(req *http.Request, version int64, verify func() *tls.ConnectionState) *tls.ConnectionState {
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
