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

package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validity is how long all certificates are valid, much longer than any test.
const validity = 24 * time.Hour

// CA is a certificate authority.
type CA struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// NewCA returns a certificate authority of this name.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	key := newKey(t)
	certificate, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{certificate, key}
}

// PEM returns the certificate of the certificate authority.
func (c *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: c.certificate.Raw})
}

// ClientCertificate returns a certificate for a user in groups, and its key.
func (c *CA) ClientCertificate(t testing.TB, user string, groups ...string) (cert, key []byte) {
	t.Helper()
	return c.issue(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// ServingCertificate returns a certificate for a server at 127.0.0.1, and its key.
func (c *CA) ServingCertificate(t testing.TB) (cert, key []byte) {
	t.Helper()
	return c.issue(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (c *CA) issue(t testing.TB, template *x509.Certificate) (cert, key []byte) {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = c.certificate.NotBefore, time.Now().Add(validity)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	signer := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, signer.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(signer); err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), key
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
