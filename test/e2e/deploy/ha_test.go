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

package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// certificateValidity makes the certificates of etcd and its clients be renewed every
// few seconds.
const certificateValidity = 12 * time.Second

// highAvailability is the overlay "ha" with monitoring, with all its pods running but
// the last replica of the server.
type highAvailability struct {
	*machine
	t          *testing.T
	restaurant typed.RestaurantV1Interface
	members    []*controlplane.Component
	servers    []*controlplane.Component
	spare      corev1.Pod
}

// TestHighAvailability installs the overlay "ha" with monitoring once, for tests of what
// the manifests say.
func TestHighAvailability(t *testing.T) {
	framework.Long(t, "pods are run")
	monitoringKinds(t)
	install(t, kustomization(t, "overlays/ha", []string{"components/monitoring"}, ""))

	ha := &highAvailability{machine: newMachine("ha-"), t: t}
	ha.flags["certificates"] = []string{"--certificate-validity=" + certificateValidity.String()}
	all := pods(t, systemNamespace, overlays()["ha"])
	ha.runAll(t, all[certificatesName])
	// Those that read them wait for the Secrets.
	ha.members = ha.runAll(t, all[etcdName])
	ha.spare = all[serverName][2]
	// Informers list where kube-apiserver can't begin a watch with what there is.
	ha.variables[all[serverName][1].Name] = []string{"KUBE_FEATURE_WatchListClient=false"}
	ha.servers = ha.runAll(t, all[serverName][:2])
	ha.restaurant = serve(t, ha.servers[0])
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato", "basil"))

	t.Run("renewed certificates", ha.testRenewedCertificates)
	t.Run("metrics", ha.testMetrics)
	t.Run("requests of every kind", ha.testRequests)
	t.Run("permissions", testPermissions)
}

// testRenewedCertificates starts a member and a replica when all certificates that the
// others have started with are over.
func (ha *highAvailability) testRenewedCertificates(t *testing.T) {
	client := framework.Kube(cp)
	first := map[string]time.Time{}
	for _, name := range []string{"etcd-server", "etcd-client"} {
		first[name] = expires(t, awaitSecret(t, client, name))
	}
	for name, end := range first {
		controlplane.Eventually(t, func() error {
			secret := awaitSecret(t, client, name)
			if now := time.Now(); now.Before(end) {
				return fmt.Errorf("%s is good for %s", name, end.Sub(now))
			}
			if !expires(t, secret).After(end) {
				return fmt.Errorf("%s has not been renewed", name)
			}
			return nil
		})
	}
	ha.members[1].Kill()
	require.NoError(t, ha.members[1].Start(t.Context()))
	// The parent's end stops it.
	replica := ha.runAll(ha.t, []corev1.Pod{ha.spare})[0]
	ha.servers = append(ha.servers, replica)
	serve(t, replica)
	_, err := ha.restaurant.Toppings().Get(t.Context(), "tomato", metav1.GetOptions{})
	require.NoError(t, err)
	serve(t, ha.servers[0])

	// A client without a certificate of this certificate authority does not get in.
	stranger, err := controlplane.NewCA("stranger")
	require.NoError(t, err)
	issued, err := stranger.Issue(controlplane.Certificate{User: "etcd-client"})
	require.NoError(t, err)
	endpoint := fmt.Sprintf("localhost:%d", ha.port(t, "etcd-0", "2379"))
	require.NoError(t, handshake(t, endpoint, awaitSecret(t, client, "etcd-client").Data))
	require.ErrorContains(t, handshake(t, endpoint, map[string][]byte{"tls.crt": issued.Cert, "tls.key": issued.Key}), "unknown certificate authority")
	require.ErrorContains(t, handshake(t, endpoint, nil), "certificate required")
	// A client is not a member.
	peer := fmt.Sprintf("localhost:%d", ha.port(t, "etcd-0", "2380"))
	require.NoError(t, handshake(t, peer, awaitSecret(t, client, "etcd-server").Data))
	require.Error(t, handshake(t, peer, awaitSecret(t, client, "etcd-client").Data))
}

func expires(t *testing.T, secret *corev1.Secret) time.Time {
	t.Helper()
	block, _ := pem.Decode(secret.Data["tls.crt"])
	require.NotNil(t, block)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return certificate.NotAfter
}

// handshake makes a TLS connection with a certificate, or without, and returns how the
// server refuses it.
func handshake(t *testing.T, address string, pair map[string][]byte) error {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if pair != nil {
		certificate, err := tls.X509KeyPair(pair["tls.crt"], pair["tls.key"])
		require.NoError(t, err)
		// Also if it is of no certificate authority that the server asks for.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	}
	connection, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer connection.Close()
	// In TLS 1.3 the client is done before the server has made up its mind, and an
	// HTTP/2 server speaks first.
	require.NoError(t, connection.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = connection.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
