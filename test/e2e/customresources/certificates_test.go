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

package customresources

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	testingclock "k8s.io/utils/clock/testing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A new certificate authority of the server reaches the APIServices before it takes over.
func TestCertificateAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	const (
		group = "rotated.example.com"
		year  = 365 * 24 * time.Hour
	)
	name := framework.CRDServer()
	host := name.Name + "." + name.Namespace + ".svc"
	clock := testingclock.NewFakePassiveClock(time.Now().Add(-7 * year))
	issuer, err := certificates.NewIssuer(certificates.IssuerConfig{
		Namespace: name.Namespace, CASecret: "rotated-ca", Certificates: map[string][]string{"rotated-serving": {host}},
		Service:     name.Name, // The APIServices of other tests lead to the same Service.
		APIServices: cluster.RegisteredLabel + ",rotated",
		CAValidity:  9 * year, Validity: 8 * year, Clock: clock,
	}, framework.Config(cp))
	require.NoError(t, err)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	// sync does what is due at a time, and gives the server its certificate as a volume would.
	sync := func(at time.Time) (bundle []byte) {
		clock.SetTime(at)
		require.NoError(t, issuer.Sync(t.Context()))
		secret, err := framework.Kube(cp).CoreV1().Secrets(name.Namespace).Get(t.Context(), "rotated-serving", metav1.GetOptions{})
		require.NoError(t, err)
		framework.ReplaceFile(t, key, secret.Data["tls.key"])
		framework.ReplaceFile(t, cert, secret.Data["tls.crt"])
		return secret.Data["ca.crt"]
	}
	now := time.Now()
	first := sync(now.Add(-7 * year))

	server, err := framework.NewCRDServer(cp, "rotated", []string{group}, "--tls-cert-file="+cert, "--tls-private-key-file="+key)
	require.NoError(t, err)
	require.NoError(t, server.Launch())
	content, err := json.Marshal(widgets(group, true))
	require.NoError(t, err)
	apply(t, content)
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	port := int32(server.Port())
	require.NoError(t, crdserver.Register(ctx, framework.Config(cp), crdserver.Target{
		Service: apiregistrationv1.ServiceReference{Namespace: name.Namespace, Name: name.Name, Port: &port}, CABundle: first,
	}, func(string) {}, group))
	apiServices := aggregator.NewForConfigOrDie(framework.Config(cp)).ApiregistrationV1().APIServices()
	for _, version := range []string{"v1", "v2"} {
		_, err := apiServices.Patch(ctx, version+"."+group, types.MergePatchType, []byte(`{"metadata":{"labels":{"rotated":""}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	// verified checks that a new connection to the server is verified with the bundles of the APIServices.
	verified := func(authorities int) {
		t.Helper()
		content, err := os.ReadFile(cert)
		require.NoError(t, err)
		chain, err := certutil.ParseCertsPEM(content)
		require.NoError(t, err)
		for _, version := range []string{"v1", "v2"} {
			apiService, err := apiServices.Get(t.Context(), version+"."+group, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, authorities, strings.Count(string(apiService.Spec.CABundle), "BEGIN CERTIFICATE"))
			config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: apiService.Spec.CABundle, ServerName: host}})
			require.NoError(t, err)
			controlplane.Eventually(t, func() error {
				connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL(), "https://"))
				if err != nil {
					return err
				}
				defer connection.Close()
				if !connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Equal(chain[0]) {
					return errors.New("the server has not read its new certificate")
				}
				return nil
			})
			awaitServed(t, group, version)
		}
	}
	verified(1)
	sync(now.Add(-year)) // There is a next one, which issues nothing yet.
	verified(2)
	require.NotEqual(t, string(first), string(sync(now)))
	verified(2)
}
