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

package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// clockSkew is how far a verifier's clock may lag.
const clockSkew = 5 * time.Minute

// keyPair is a certificate with its key. A certificate that is only trusted has no key.
type keyPair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// subject is the subject of a certificate. That of a certificate authority has a name only.
type subject struct {
	name   string
	hosts  []string
	usages []x509.ExtKeyUsage
}

// issue makes a certificate that is valid from now on. Without an issuer it is that
// of a new certificate authority; else it ends with the issuer's at the latest.
func issue(issuer *keyPair, subject subject, now time.Time, validity time.Duration) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: subject.name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	if issuer == nil {
		issuer = &keyPair{certificate: template, key: key}
		// It issues no certificate of another certificate authority.
		template.IsCA, template.MaxPathLenZero = true, true
		template.KeyUsage |= x509.KeyUsageCertSign
	} else {
		template.DNSNames = subject.hosts
		template.ExtKeyUsage = subject.usages
		if issuer.certificate.NotAfter.Before(template.NotAfter) {
			template.NotAfter = issuer.certificate.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, key.Public(), issuer.key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &keyPair{certificate, key}, nil
}

// since returns the time when the certificate was issued.
func (p *keyPair) since() time.Time { return p.certificate.NotBefore.Add(clockSkew) }

// part is a point in the life of the certificate: 0 is its beginning, 1 its end.
func (p *keyPair) part(numerator, denominator int64) time.Time {
	life := p.certificate.NotAfter.Sub(p.since())
	return p.since().Add(life / time.Duration(denominator) * time.Duration(numerator))
}

func (p *keyPair) issued(other *keyPair) bool {
	return other.certificate.CheckSignatureFrom(p.certificate) == nil
}

func (p *keyPair) certPEM() []byte {
	// It fails only if the writer does.
	encoded, _ := cert.EncodeCertificates(p.certificate)
	return encoded
}

func (p *keyPair) keyPEM() ([]byte, error) { return keyutil.MarshalPrivateKeyToPEM(p.key) }

// parse reads a certificate, and its key unless that is empty.
func parse(certPEM, keyPEM []byte) (*keyPair, error) {
	certificates, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, err
	}
	pair := &keyPair{certificate: certificates[0]}
	if len(keyPEM) == 0 {
		return pair, nil
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T", key)
	}
	if !signer.PublicKey.Equal(pair.certificate.PublicKey) {
		return nil, errors.New("the key is not that of the certificate")
	}
	pair.key = signer
	return pair, nil
}
