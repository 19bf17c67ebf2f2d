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
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOverlap(t *testing.T) {
	front, users := newCA(t, "front-proxy", nil), newCA(t, "users", nil)
	for name, test := range map[string]struct {
		requestHeader, client []*testCA
		want                  string
	}{
		"two authorities":                          {[]*testCA{front}, []*testCA{users}, ""},
		"no client CA":                             {[]*testCA{front}, nil, ""},
		"the same authority":                       {[]*testCA{front}, []*testCA{front}, "CN=front-proxy"},
		"the same in bundles":                      {[]*testCA{front, users}, []*testCA{newCA(t, "other", nil), users}, "CN=users"},
		"the same key in another certificate":      {[]*testCA{front}, []*testCA{front.reissued(t, "renamed")}, "CN=renamed"},
		"users certified by the front proxy's":     {[]*testCA{front}, []*testCA{newCA(t, "intermediate", front)}, "CN=intermediate"},
		"a front proxy certified by the users' CA": {[]*testCA{newCA(t, "intermediate", users)}, []*testCA{users}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			subject, ok := Overlap(certificates(test.requestHeader), certificates(test.client))
			require.Equal(t, test.want, subject)
			require.Equal(t, test.want != "", ok)
		})
	}
}

type testCA struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newCA(t *testing.T, name string, issuer *testCA) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &testCA{key: key}
	if issuer == nil {
		return ca.reissued(t, name)
	}
	ca.certificate = sign(t, name, key.Public(), issuer.certificate, issuer.key)
	return ca
}

// reissued is a root certificate for the same key.
func (ca *testCA) reissued(t *testing.T, name string) *testCA {
	t.Helper()
	return &testCA{sign(t, name, ca.key.Public(), nil, ca.key), ca.key}
}

func sign(t *testing.T, name string, public crypto.PublicKey, issuer *x509.Certificate, key crypto.Signer) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if issuer == nil {
		issuer = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, public, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return certificate
}

func certificates(cas []*testCA) []*x509.Certificate {
	var all []*x509.Certificate
	for _, ca := range cas {
		all = append(all, ca.certificate)
	}
	return all
}
