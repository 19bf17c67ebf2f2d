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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	testingclock "k8s.io/utils/clock/testing"
)

// TestIssuerForYears keeps the certificates of a server and of a client for fifteen years.
// Every five days, it checks that both are valid for a reader whose bundle is 300 days old.
func TestIssuerForYears(t *testing.T) {
	const step, restart = 5 * day, 300 * day
	clock := testingclock.NewFakePassiveClock(begin)
	issuer := &Issuer{config: IssuerConfig{
		Certificates: map[string][]string{"server": {"a.default.svc", "b.default.svc"}, "client": nil},
		Validity:     year,
		Clock:        clock,
	}}
	server := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "server"}}
	client := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "client"}}
	certificate := func(secret *corev1.Secret) *x509.Certificate {
		pair, err := parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		require.NoError(t, err)
		require.NotNil(t, pair.key)
		return pair.certificate
	}

	var a ca
	var bundles [][]byte
	issued := map[string]int{}
	for age := time.Duration(0); age < 15*year; age += step {
		now := begin.Add(age)
		clock.SetTime(now)
		for changed := true; changed; {
			var err error
			a, changed, err = a.advance("ca", now, 10*year)
			require.NoError(t, err)
		}
		for _, secret := range []*corev1.Secret{server, client} {
			before := string(secret.Data[corev1.TLSCertKey])
			_, err := issuer.renew(secret, a)
			require.NoError(t, err)
			if string(secret.Data[corev1.TLSCertKey]) != before {
				issued[secret.Name]++
			}
			changed, err := issuer.renew(secret, a)
			require.NoError(t, err)
			require.False(t, changed, "There is nothing left to do.")
		}
		bundles = append(bundles, server.Data[caCert])
		read := x509.NewCertPool()
		require.True(t, read.AppendCertsFromPEM(bundles[max(0, len(bundles)-1-int(restart/step))]))
		for _, host := range []string{"a.default.svc", "b.default.svc"} {
			_, err := certificate(server).Verify(x509.VerifyOptions{Roots: read, CurrentTime: now, DNSName: host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			require.NoError(t, err, "On day %d.", age/day)
		}
		for _, secret := range []*corev1.Secret{server, client} {
			_, err := certificate(secret).Verify(x509.VerifyOptions{Roots: read, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			require.NoError(t, err, "On day %d.", age/day)
		}
	}
	// Every 245 days, and early when a certificate authority has followed another.
	require.Equal(t, map[string]int{"server": 24, "client": 24}, issued)
	require.Equal(t, corev1.SecretTypeTLS, server.Type)
	require.Equal(t, "client", certificate(client).Subject.CommonName)
	_, err := certificate(client).Verify(x509.VerifyOptions{Roots: x509.NewCertPool(), CurrentTime: clock.Now()})
	require.Error(t, err)
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, certificate(client).ExtKeyUsage)
}

// TestIssuerReplaces shows the reasons to replace a certificate before its time.
func TestIssuerReplaces(t *testing.T) {
	issuer := &Issuer{config: IssuerConfig{
		Certificates: map[string][]string{"server": {"a.default.svc"}},
		Validity:     day,
		Clock:        testingclock.NewFakePassiveClock(begin),
	}}
	a, _, err := ca{}.advance("ca", begin, year)
	require.NoError(t, err)
	other, _, err := ca{}.advance("ca", begin, year)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		change   func(*corev1.Secret)
		by       ca
		replaced bool
	}{
		"nothing":                       {func(*corev1.Secret) {}, a, false},
		"another certificate authority": {func(*corev1.Secret) {}, other, true},
		"other hosts":                   {func(*corev1.Secret) { issuer.config.Certificates["server"] = []string{"b.default.svc"} }, a, true},
		"no key":                        {func(s *corev1.Secret) { delete(s.Data, corev1.TLSPrivateKeyKey) }, a, true},
		"no certificate":                {func(s *corev1.Secret) { s.Data[corev1.TLSCertKey] = []byte("x") }, a, true},
	} {
		t.Run(name, func(t *testing.T) {
			issuer.config.Certificates["server"] = []string{"a.default.svc"}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "server"}}
			_, err := issuer.renew(secret, a)
			require.NoError(t, err)
			before := string(secret.Data[corev1.TLSCertKey])
			test.change(secret)
			changed, err := issuer.renew(secret, test.by)
			require.NoError(t, err)
			require.Equal(t, test.replaced, changed)
			require.Equal(t, test.replaced, string(secret.Data[corev1.TLSCertKey]) != before)
			require.Equal(t, string(test.by.bundle()), string(secret.Data[caCert]))
		})
	}
}

func TestSetWebhooks(t *testing.T) {
	config := func(namespace string, path, bundle any) map[string]any {
		config := map[string]any{"service": map[string]any{"namespace": namespace, "name": "webhook", "port": int64(8443)}}
		if path != nil {
			config["service"].(map[string]any)["path"] = path
		}
		if bundle != nil {
			config["caBundle"] = bundle
		}
		return config
	}
	const before, bundle = "b2xk", "bmV3"
	for name, test := range map[string]struct {
		path         string
		config, want map[string]any
	}{
		"that trusts nobody":       {"", config("here", nil, nil), config("here", nil, bundle)},
		"that trusts another":      {"", config("here", "/x", before), config("here", "/x", bundle)},
		"that has no path":         {"secret", config("here", nil, bundle), config("here", "/secret/e", bundle)},
		"that has another path":    {"secret", config("here", "/e", before), config("here", "/secret/e", bundle)},
		"of another instance":      {"secret", config("elsewhere", "/e", before), config("elsewhere", "/e", before)},
		"that is not in a cluster": {"secret", map[string]any{"url": "https://example.com"}, map[string]any{"url": "https://example.com"}},
		"without a webhook":        {"secret", nil, nil},
	} {
		other := config("elsewhere", "/e", before)
		for kind, of := range map[string]func(config map[string]any) map[string]any{
			"a configuration": func(config map[string]any) map[string]any {
				return map[string]any{"webhooks": []any{map[string]any{"clientConfig": other}, map[string]any{"clientConfig": config}}}
			},
			"a definition": func(config map[string]any) map[string]any {
				return map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": config}}}}
			},
			"a definition of one version": func(map[string]any) map[string]any { return map[string]any{"spec": map[string]any{}} },
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				object, want := &unstructured.Unstructured{Object: of(test.config)}, &unstructured.Unstructured{Object: of(test.want)}
				for _, object := range []*unstructured.Unstructured{object, want} {
					object.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Webhook"})
					object.SetName("hooks")
				}
				client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), object)
				webhooks := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "webhooks"})
				for range 2 { // The second time, there is nothing left to do.
					client.ClearActions()
					require.NoError(t, caller{"here", []byte("new"), test.path}.setWebhooks(t.Context(), webhooks, "hooks", "/e"))
				}
				require.Len(t, client.Actions(), 1)
				got, err := webhooks.Get(t.Context(), "hooks", metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.NoError(t, caller{"here", []byte("new"), ""}.setWebhooks(t.Context(), webhooks, "missing", "/e"))
			})
		}
	}
}

func TestSetAPIServices(t *testing.T) {
	resource := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	const mark = "example.com/registered"
	for name, test := range map[string]struct {
		label string
		spec  map[string]any
		want  any
	}{
		"of the server":             {mark, map[string]any{"service": map[string]any{"namespace": "here", "name": "server"}, "caBundle": "b2xk"}, "bmV3"},
		"that trusts it already":    {mark, map[string]any{"service": map[string]any{"namespace": "here", "name": "server"}, "caBundle": "bmV3"}, "bmV3"},
		"that trusts nobody":        {mark, map[string]any{"service": map[string]any{"namespace": "here", "name": "server"}}, "bmV3"},
		"that verifies nothing":     {mark, map[string]any{"service": map[string]any{"namespace": "here", "name": "server"}, "insecureSkipTLSVerify": true}, nil},
		"that nobody registered":    {"example.com/other", map[string]any{"service": map[string]any{"namespace": "here", "name": "server"}, "caBundle": "b2xk"}, "b2xk"},
		"of another server":         {mark, map[string]any{"service": map[string]any{"namespace": "here", "name": "other"}, "caBundle": "b2xk"}, "b2xk"},
		"of another instance":       {mark, map[string]any{"service": map[string]any{"namespace": "elsewhere", "name": "server"}, "caBundle": "b2xk"}, "b2xk"},
		"that kube-apiserver keeps": {mark, map[string]any{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			apiService := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
				"metadata": map[string]any{"name": "v1.example.com", "resourceVersion": "1", "labels": map[string]any{test.label: "true"}}, "spec": test.spec,
			}}
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "APIServiceList"}, apiService)
			require.NoError(t, caller{"here", []byte("new"), ""}.setAPIServices(t.Context(), client, "server", mark))
			stored, err := client.Resource(resource).Get(t.Context(), "v1.example.com", metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, test.want, stored.Object["spec"].(map[string]any)["caBundle"])
		})
	}
}

// One Secret keeps a path, which survives new certificates.
func TestPathOfWebhooks(t *testing.T) {
	issuer := &Issuer{config: IssuerConfig{
		Certificates: map[string][]string{"server": {"a.default.svc"}, "other": nil},
		PathSecret:   "server",
		Validity:     day,
		Clock:        testingclock.NewFakePassiveClock(begin),
	}}
	a, _, err := ca{}.advance("ca", begin, year)
	require.NoError(t, err)
	server, other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "server"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	for _, secret := range []*corev1.Secret{server, other} {
		_, err := issuer.renew(secret, a)
		require.NoError(t, err)
	}
	path := string(server.Data[pathKey])
	require.Regexp(t, `^[a-z2-7]{26}$`, path)
	require.NotContains(t, other.Data, pathKey)

	delete(server.Data, corev1.TLSCertKey)
	changed, err := issuer.renew(server, a)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, path, string(server.Data[pathKey]))

	delete(server.Data, pathKey) // An operator wants another one.
	changed, err = issuer.renew(server, a)
	require.NoError(t, err)
	require.True(t, changed)
	require.NotEqual(t, path, string(server.Data[pathKey]))
	require.Len(t, server.Data[pathKey], 26)
}
