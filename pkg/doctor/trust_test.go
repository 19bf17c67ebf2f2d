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

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each Secret has to lead to the bundle by itself: the server has the chain of the one that it serves.
func TestCheckSecrets(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	issue := func(name string, issuer *x509.Certificate) *x509.Certificate {
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: name}, SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
			IsCA: name != "leaf", BasicConstraintsValid: true, DNSNames: []string{"api.bakery.svc"},
		}
		if issuer == nil {
			issuer = template
		}
		der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), key)
		require.NoError(t, err)
		certificate, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		return certificate
	}
	root := issue("root", nil)
	intermediate := issue("intermediate", root)
	leaf := issue("leaf", intermediate)
	secret := func(name string, chain ...*x509.Certificate) servedSecret {
		return servedSecret{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "bakery", Name: name}}, chain}
	}
	for name, test := range map[string]struct {
		secrets  []servedSecret
		findings int
	}{
		"a whole chain":                      {[]servedSecret{secret("a", leaf, intermediate)}, 0},
		"a chain without its intermediate":   {[]servedSecret{secret("b", leaf)}, 1},
		"the intermediate in another Secret": {[]servedSecret{secret("a", leaf, intermediate), secret("b", leaf)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			found := (&examination{}).checkSecrets(t.Context(), newBackend("bakery", "api", nil), &trust{}, []*x509.Certificate{root}, test.secrets)
			require.Len(t, found, test.findings)
			for _, finding := range found {
				require.Contains(t, finding.Cause, "the Secret bakery/b is not of caBundle")
			}
		})
	}
}
