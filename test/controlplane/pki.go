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

package controlplane

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
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	authorityValidity   = 10 * 365 * 24 * time.Hour
	certificateValidity = 365 * 24 * time.Hour

	// renewBefore is how long before its end a certificate is replaced at the next start.
	renewBefore = 30 * 24 * time.Hour

	// clockSkew is the tolerated difference between this process's clock and a reader's.
	clockSkew = time.Minute
)

// PKI holds the certificate authorities of a control plane with their keys. With them, a test
// can issue certificates for any identity.
type PKI struct {
	// ClientCA signs the certificates that identify users and components to kube-apiserver.
	ClientCA *CA
	// FrontProxyCA signs the certificate that lets kube-apiserver name the user in request
	// headers. It is not the ClientCA: otherwise every user could.
	FrontProxyCA *CA
	// ServingCA signs the certificates of servers.
	ServingCA *CA
	// EtcdCA signs the client certificates for etcd.
	EtcdCA *CA

	dir               string
	now               func() time.Time
	serviceAccountKey string
}

// openPKI reads the certificate authorities from the directory. It replaces files that are
// missing, damaged or about to expire.
func openPKI(dir string, now func() time.Time) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &PKI{dir: dir, now: now}
	for name, ca := range map[string]**CA{
		"client-ca":      &p.ClientCA,
		"front-proxy-ca": &p.FrontProxyCA,
		"serving-ca":     &p.ServingCA,
		"etcd-ca":        &p.EtcdCA,
	} {
		var err error
		if *ca, err = p.openCA(name); err != nil {
			return nil, err
		}
	}
	p.serviceAccountKey = filepath.Join(dir, "service-account.key")
	return p, ensureKey(p.serviceAccountKey)
}

// CA is a certificate authority.
type CA struct {
	// File has the certificate authority's certificate, if it belongs to a PKI.
	File string

	cert *x509.Certificate
	key  crypto.Signer
	now  func() time.Time
}

// NewCA makes a certificate authority that nothing trusts yet.
func NewCA(name string) (*CA, error) {
	return newCA(name, time.Now)
}

func newCA(name string, now func() time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now().Add(-clockSkew),
		NotAfter:              now().Add(authorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err := sign(template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &CA{cert: cert, key: key, now: now}, nil
}

// CertPEM returns the certificate authority's certificate.
func (ca *CA) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Pool returns a pool that trusts this certificate authority only.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Certificate describes a certificate to issue.
type Certificate struct {
	// User is the common name: the user, for a client.
	User string
	// Groups are the organizations: the user's groups, for a client.
	Groups []string
	// Hosts are the DNS names and IP addresses of a server. A certificate with hosts is valid
	// for servers only, one without for clients only.
	Hosts []string
	// NotBefore and NotAfter limit its validity; the zero values mean a year from now.
	NotBefore, NotAfter time.Time
}

// KeyPair is a certificate with its key, both in PEM form.
type KeyPair struct {
	Cert, Key []byte
}

// Issue issues a certificate with a new key.
func (ca *CA) Issue(c Certificate) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: c.User, Organization: c.Groups},
		NotBefore:             c.NotBefore,
		NotAfter:              c.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{c.usage()},
		BasicConstraintsValid: true,
	}
	template.DNSNames, template.IPAddresses = c.names()
	if c.NotBefore.IsZero() {
		template.NotBefore = ca.now().Add(-clockSkew)
	}
	if c.NotAfter.IsZero() {
		template.NotAfter = ca.now().Add(certificateValidity)
	}
	cert, err := sign(template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return KeyPair{}, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return KeyPair{}, err
	}
	return KeyPair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), Key: keyPEM}, nil
}

func (c Certificate) usage() x509.ExtKeyUsage {
	if len(c.Hosts) > 0 {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

func (c Certificate) names() (dns []string, ips []net.IP) {
	for _, host := range c.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, host)
		}
	}
	return dns, ips
}

// fits reports whether an issued certificate matches c, is signed by ca, and stays valid for some
// time.
func (c Certificate) fits(cert *x509.Certificate, ca *CA) bool {
	dns, ips := c.names()
	return cert.CheckSignatureFrom(ca.cert) == nil &&
		current(cert, ca.now()) &&
		cert.Subject.CommonName == c.User &&
		slices.Equal(cert.Subject.Organization, c.Groups) &&
		slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{c.usage()}) &&
		slices.Equal(cert.DNSNames, dns) &&
		slices.EqualFunc(cert.IPAddresses, ips, net.IP.Equal)
}

func current(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(cert.NotBefore) && now.Add(renewBefore).Before(cert.NotAfter)
}

// pair has the paths of a certificate and its key.
type pair struct {
	cert, key string
}

func (p *PKI) pair(name string) pair {
	return pair{cert: filepath.Join(p.dir, name+".crt"), key: filepath.Join(p.dir, name+".key")}
}

// ensure returns the files of the named certificate. It issues the certificate if they have
// none that fits.
func (p *PKI) ensure(name string, ca *CA, want Certificate) (pair, error) {
	files := p.pair(name)
	if cert, _, err := files.read(); err == nil && want.fits(cert, ca) {
		return files, nil
	}
	issued, err := ca.Issue(want)
	if err != nil {
		return pair{}, fmt.Errorf("issuing the certificate %s: %w", name, err)
	}
	return files, files.write(issued)
}

func (p *PKI) openCA(name string) (*CA, error) {
	files := p.pair(name)
	cert, key, err := files.read()
	if err == nil && cert.IsCA && current(cert, p.now()) {
		return &CA{File: files.cert, cert: cert, key: key, now: p.now}, nil
	}
	// The number distinguishes this certificate authority from the one it replaces. With the
	// same name, verifiers would try, and report, the wrong one.
	ca, err := newCA(fmt.Sprintf("%s %d", name, p.now().UnixNano()), p.now)
	if err != nil {
		return nil, fmt.Errorf("making the certificate authority %s: %w", name, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(ca.key)
	if err != nil {
		return nil, err
	}
	ca.File = files.cert
	return ca, files.write(KeyPair{Cert: ca.CertPEM(), Key: keyPEM})
}

// read returns an error if a file is missing or damaged, or if the key does not fit the
// certificate. The latter happens after a crash between the two writes.
func (f pair) read() (*x509.Certificate, crypto.Signer, error) {
	loaded, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := loaded.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("the key in %s cannot sign", f.key)
	}
	return loaded.Leaf, signer, nil
}

func (f pair) write(content KeyPair) error {
	if err := writeFile(f.key, content.Key, 0o600); err != nil {
		return err
	}
	return writeFile(f.cert, content.Cert, 0o644)
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// ensureKey makes a private key unless the file has one.
func ensureKey(path string) error {
	if _, err := keyutil.PrivateKeyFromFile(path); err == nil {
		return nil
	}
	data, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	return writeFile(path, data, 0o600)
}
