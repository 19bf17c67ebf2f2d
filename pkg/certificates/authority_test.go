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
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const (
	year = 365 * 24 * time.Hour
	day  = 24 * time.Hour
)

var begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// TestAuthorityForYears takes every step on its day for ten years, by way of the Secret. Each
// day, it checks that a client with yesterday's bundle trusts today's certificate.
func TestAuthorityForYears(t *testing.T) {
	var a ca
	var leaf *keyPair
	var steps []time.Duration
	yesterday := x509.NewCertPool()
	for age := time.Duration(0); age < 10*year; age += day {
		now := begin.Add(age)
		for {
			next, changed, err := a.advance("ca", now, year)
			require.NoError(t, err)
			if !changed {
				break
			}
			steps = append(steps, age)
			secret := &corev1.Secret{}
			next.encode(secret)
			a, err = decode(secret)
			require.NoError(t, err)
		}
		if leaf == nil || !a.current.issued(leaf) || !now.Before(leaf.part(2, 3)) {
			var err error
			leaf, err = issue(a.current, subject{"server", []string{"server.default.svc"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, now, 30*day)
			require.NoError(t, err)
		}
		if age > 0 {
			_, err := leaf.certificate.Verify(x509.VerifyOptions{Roots: yesterday, CurrentTime: now, DNSName: "server.default.svc"})
			require.NoError(t, err, "On day %d.", age/day)
		}
		yesterday = x509.NewCertPool()
		require.True(t, yesterday.AppendCertsFromPEM(a.bundle()))
	}
	// The certificate authority is made, its successor is 244 days later and takes over after
	// 31 more, the first one ends after its year.
	require.Equal(t, []time.Duration{0, 244 * day, 275 * day, 365 * day}, steps[:4])
	// That goes on every 244 days, with three steps for each of 14 successors.
	require.Len(t, steps, 1+14*3)
}

func TestExpiredAuthority(t *testing.T) {
	first, changed, err := ca{}.advance("ca", begin, year)
	require.NoError(t, err)
	require.True(t, changed)
	// Nobody was there for two years.
	second, changed, err := first.advance("ca", begin.Add(2*year), year)
	require.NoError(t, err)
	require.True(t, changed)
	require.False(t, first.current.certificate.Equal(second.current.certificate))
	require.Nil(t, second.next)
	require.Nil(t, second.previous)
	require.Equal(t, second.current.certPEM, second.bundle())

	// Nobody was there when the next one should have taken over.
	staged, changed, err := first.advance("ca", begin.Add(300*day), year)
	require.NoError(t, err)
	require.True(t, changed)
	late, changed, err := staged.advance("ca", begin.Add(400*day), year)
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, staged.next.certificate.Equal(late.current.certificate))
}

// A certificate authority can't make another one.
func TestPathLength(t *testing.T) {
	a, _, err := ca{}.advance("ca", begin, year)
	require.NoError(t, err)
	authority := a.current.certificate
	require.True(t, authority.IsCA && authority.MaxPathLen == 0 && authority.MaxPathLenZero)
	leaf, err := issue(a.current, subject{name: "a"}, begin, day)
	require.NoError(t, err)
	require.False(t, leaf.certificate.IsCA)
}

func TestDecodeErrors(t *testing.T) {
	whole, _, err := ca{}.advance("ca", begin, year)
	require.NoError(t, err)
	secret := &corev1.Secret{}
	whole.encode(secret)
	other, err := issue(nil, subject{name: "other"}, begin, year)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"no key":          {map[string][]byte{caCert: secret.Data[caCert]}, "ca.key is missing"},
		"another's key":   {map[string][]byte{caCert: secret.Data[caCert], caKey: other.keyPEM}, "ca.crt: tls: private key does not match public key"},
		"not a key":       {map[string][]byte{caCert: secret.Data[caCert], caKey: []byte("key")}, "ca.crt: tls: failed to find any PEM data in key input"},
		"not PEM":         {map[string][]byte{caCert: []byte("certificate"), caKey: other.keyPEM}, "ca.crt: data does not contain any valid RSA or ECDSA certificates"},
		"a broken second": {map[string][]byte{caCert: secret.Data[caCert], caKey: secret.Data[caKey], nextCert: []byte("x")}, "next-ca.crt: data does not contain any valid RSA or ECDSA certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(&corev1.Secret{Data: test.data})
			require.EqualError(t, err, test.want)
		})
	}
	empty, err := decode(&corev1.Secret{})
	require.NoError(t, err)
	require.Nil(t, empty.current)
}
