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
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Keys in the Secret.
const (
	caCert       = "ca.crt"
	caKey        = "ca.key"
	nextCert     = "next-ca.crt"
	nextKey      = "next-ca.key"
	previousCert = "previous-ca.crt"
)

// ca is the content of the Secret.
type ca struct {
	// current issues certificates.
	current *keyPair
	// next will; it is nil most of the time.
	next *keyPair
	// previous did, and is trusted until it expires. It may be nil.
	previous *keyPair
}

// advance takes the step that is due, if any. A certificate authority that has expired can be
// replaced without steps: nobody trusts it any more.
func (a ca) advance(name string, now time.Time, validity time.Duration) (_ ca, changed bool, err error) {
	create := func() (*keyPair, error) {
		return issue(nil, subject{name: name + "@" + now.UTC().Format(time.RFC3339)}, now, validity)
	}
	switch {
	case a.current == nil || !now.Before(a.current.certificate.NotAfter) && a.next == nil:
		a = ca{}
		a.current, err = create()
	case a.previous != nil && !now.Before(a.previous.certificate.NotAfter):
		a.previous = nil
	case a.next == nil && !now.Before(a.current.part(2, 3)):
		a.next, err = create()
	case a.next != nil && !now.Before(a.next.part(1, 12)):
		a = ca{current: a.next, previous: a.current}
		a.previous.key, a.previous.keyPEM = nil, nil // It has issued its last certificate.
	default:
		return a, false, nil
	}
	return a, true, err
}

// part is a certificate in the Secret.
type part struct {
	pair      **keyPair
	cert, key string
}

func (a *ca) parts() []part {
	return []part{{&a.current, caCert, caKey}, {&a.next, nextCert, nextKey}, {&a.previous, previousCert, ""}}
}

// bundle returns all certificates that are to be trusted.
func (a ca) bundle() (bundle []byte) {
	for _, part := range a.parts() {
		if pair := *part.pair; pair != nil {
			bundle = append(bundle, pair.certPEM...)
		}
	}
	return bundle
}

// decode reads the Secret. A Secret without a certificate authority is a valid one, so that an
// operator can create it empty.
func decode(secret *corev1.Secret) (a ca, err error) {
	for _, part := range a.parts() {
		if len(secret.Data[part.cert]) == 0 {
			continue
		}
		if *part.pair, err = parse(secret.Data[part.cert], secret.Data[part.key]); err != nil {
			return ca{}, fmt.Errorf("%s: %w", part.cert, err)
		}
		if part.key != "" && (*part.pair).key == nil {
			return ca{}, fmt.Errorf("%s is missing", part.key)
		}
	}
	return a, nil
}

// encode writes the Secret.
func (a ca) encode(secret *corev1.Secret) {
	secret.Data = map[string][]byte{}
	for _, part := range a.parts() {
		if pair := *part.pair; pair != nil {
			secret.Data[part.cert] = pair.certPEM
			if part.key != "" {
				secret.Data[part.key] = pair.keyPEM
			}
		}
	}
}

// clockSkew is how far a verifier's clock may lag.
const clockSkew = 5 * time.Minute

// keyPair is a certificate with its key, as PEM and parsed. A certificate that is only trusted has no
// key.
type keyPair struct {
	certPEM, keyPEM []byte
	certificate     *x509.Certificate
	key             crypto.Signer
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
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	return parse(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), keyPEM)
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

// parse reads a certificate, and its key unless that is empty.
func parse(certPEM, keyPEM []byte) (*keyPair, error) {
	certificates, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, err
	}
	pair := &keyPair{certPEM: certPEM, keyPEM: keyPEM, certificate: certificates[0]}
	if len(keyPEM) == 0 {
		return pair, nil
	}
	loaded, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	pair.key, _ = loaded.PrivateKey.(crypto.Signer) // All keys of crypto/tls are.
	return pair, nil
}
