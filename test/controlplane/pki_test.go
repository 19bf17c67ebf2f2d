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
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// client is the certificate that the tests ask for again and again.
var client = Certificate{User: "reader", Groups: []string{"users"}}

// pkiAt opens the PKI at a time and returns the certificate of client from it.
func pkiAt(t *testing.T, dir string, now time.Time) (*PKI, *x509.Certificate) {
	t.Helper()
	p, err := openPKI(dir, func() time.Time { return now })
	require.NoError(t, err)
	files, err := p.ensure("reader", p.ClientCA, client)
	require.NoError(t, err)
	cert, _, err := files.read()
	require.NoError(t, err)
	_, err = cert.Verify(x509.VerifyOptions{
		Roots:       p.ClientCA.Pool(),
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	require.NoError(t, err)
	return p, cert
}

func TestPKIIsKept(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	first, cert := pkiAt(t, dir, now)
	key, err := os.ReadFile(first.serviceAccountKey)
	require.NoError(t, err)

	second, same := pkiAt(t, dir, now.Add(time.Hour))
	require.Equal(t, cert.Raw, same.Raw)
	for _, ca := range [][2]*CA{
		{first.ClientCA, second.ClientCA},
		{first.FrontProxyCA, second.FrontProxyCA},
		{first.ServingCA, second.ServingCA},
		{first.EtcdCA, second.EtcdCA},
	} {
		require.Equal(t, ca[0].CertPEM(), ca[1].CertPEM())
	}
	keyAgain, err := os.ReadFile(second.serviceAccountKey)
	require.NoError(t, err)
	require.Equal(t, key, keyAgain)
}

func TestCertificatesAreRenewed(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	first, cert := pkiAt(t, dir, now)

	almost := cert.NotAfter.Add(-renewBefore)
	_, same := pkiAt(t, dir, almost.Add(-time.Minute))
	require.Equal(t, cert.Raw, same.Raw, "it was replaced before its time")
	second, renewed := pkiAt(t, dir, almost.Add(time.Minute))
	require.NotEqual(t, cert.Raw, renewed.Raw, "it was kept too long")
	require.Equal(t, first.ClientCA.CertPEM(), second.ClientCA.CertPEM())

	third, _ := pkiAt(t, dir, now.Add(authorityValidity-renewBefore+time.Minute))
	require.NotEqual(t, first.ClientCA.CertPEM(), third.ClientCA.CertPEM(), "the certificate authority was kept too long")

	_, reissued := pkiAt(t, dir, now.Add(-time.Hour))
	require.True(t, reissued.NotBefore.Before(now.Add(-time.Hour)), "a clock that was set back needs certificates of its time")
}

func TestChangedCertificateIsIssuedAgain(t *testing.T) {
	p, _ := pkiAt(t, t.TempDir(), time.Now())
	names := Certificate{User: "server", Hosts: []string{"localhost", "127.0.0.1"}}
	for name, changed := range map[string]Certificate{
		"other user":   {User: "other", Hosts: names.Hosts},
		"other groups": {User: "server", Groups: []string{"g"}, Hosts: names.Hosts},
		"other name":   {User: "server", Hosts: []string{"example.com", "127.0.0.1"}},
		"other IP":     {User: "server", Hosts: []string{"localhost", "127.0.0.2"}},
		"a client's":   {User: "server"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := p.ensure("server", p.ServingCA, names)
			require.NoError(t, err)
			before, _, err := files.read()
			require.NoError(t, err)
			_, err = p.ensure("server", p.ServingCA, changed)
			require.NoError(t, err)
			after, _, err := files.read()
			require.NoError(t, err)
			require.NotEqual(t, before.Raw, after.Raw)
			require.True(t, changed.fits(after, p.ServingCA))
		})
	}
}

func TestDamagedPKIIsRepaired(t *testing.T) {
	files := []string{
		"client-ca.crt", "client-ca.key", "front-proxy-ca.crt", "serving-ca.key", "etcd-ca.crt",
		"reader.crt", "reader.key", "service-account.key",
	}
	damages := map[string]func(t *testing.T, path string){
		"missing": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		"empty":   func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
		"half": func(t *testing.T, path string) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(path, info.Size()/2))
		},
		"another's": func(t *testing.T, path string) {
			other := t.TempDir()
			pkiAt(t, other, time.Now())
			require.NoError(t, os.Rename(filepath.Join(other, filepath.Base(path)), path))
		},
	}
	for damage, apply := range damages {
		for _, file := range files {
			t.Run(damage+" "+file, func(t *testing.T) {
				dir := t.TempDir()
				pkiAt(t, dir, time.Now())
				apply(t, filepath.Join(dir, file))
				p, _ := pkiAt(t, dir, time.Now())
				for _, ca := range []*CA{p.ClientCA, p.FrontProxyCA, p.ServingCA, p.EtcdCA} {
					data, err := os.ReadFile(ca.File)
					require.NoError(t, err)
					require.Equal(t, string(ca.CertPEM()), string(data))
				}
			})
		}
	}
}

// A test must be able to use an identity that nothing should accept.
func TestForgedCertificates(t *testing.T) {
	p, _ := pkiAt(t, t.TempDir(), time.Now())
	stranger, err := NewCA("client-ca")
	require.NoError(t, err)
	verify := func(ca *CA, c Certificate, usage x509.ExtKeyUsage) error {
		issued, err := ca.Issue(c)
		require.NoError(t, err)
		files := p.pair("forged")
		require.NoError(t, files.write(issued))
		cert, _, err := files.read()
		require.NoError(t, err)
		_, err = cert.Verify(x509.VerifyOptions{Roots: p.ClientCA.Pool(), KeyUsages: []x509.ExtKeyUsage{usage}})
		return err
	}
	require.NoError(t, verify(p.ClientCA, client, x509.ExtKeyUsageClientAuth))
	require.ErrorContains(t, verify(stranger, client, x509.ExtKeyUsageClientAuth), "unknown authority")
	require.ErrorContains(t, verify(p.FrontProxyCA, client, x509.ExtKeyUsageClientAuth), "unknown authority")
	require.ErrorContains(t, verify(p.ClientCA, client, x509.ExtKeyUsageServerAuth), "incompatible key usage")
	expired := Certificate{User: "reader", NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)}
	require.ErrorContains(t, verify(p.ClientCA, expired, x509.ExtKeyUsageClientAuth), "expired")
}
