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

package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// certificate returns the file of a component's certificate, or of another one.
func (c *campaign) certificate(name string) string {
	return filepath.Join(filepath.Dir(c.cp.PKI.ServingCA.File), name+".crt")
}

func (c *campaign) key(name string) string {
	return strings.TrimSuffix(c.certificate(name), ".crt") + ".key"
}

func (c *campaign) readCertificate(name string) *x509.Certificate {
	content, err := os.ReadFile(c.certificate(name))
	require.NoError(c, err)
	block, _ := pem.Decode(content)
	require.NotNil(c, block)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(c, err)
	return certificate
}

// replaceCertificate issues one for the same user or server again.
func (c *campaign) replaceCertificate(name string, ca *controlplane.CA) {
	old := c.readCertificate(name)
	hosts := slices.Clone(old.DNSNames)
	for _, address := range old.IPAddresses {
		hosts = append(hosts, address.String())
	}
	pair, err := ca.Issue(controlplane.Certificate{User: old.Subject.CommonName, Groups: old.Subject.Organization, Hosts: hosts})
	require.NoError(c, err)
	framework.ReplaceFile(c.T, c.key(name), pair.Key)
	framework.ReplaceFile(c.T, c.certificate(name), pair.Cert)
}

// servingFault replaces the certificate that a component presents.
func (c *campaign) servingFault(component *controlplane.Component) fault {
	return fault{"replace the certificate of " + component.Name(), func() {
		c.replaceCertificate(component.Name(), c.cp.PKI.ServingCA)
		want := c.readCertificate(component.Name())
		controlplane.Eventually(c, func() error {
			var presented *x509.Certificate
			conn, err := tls.Dial("tcp", strings.TrimPrefix(component.URL(), "https://"), &tls.Config{
				InsecureSkipVerify: true,
				VerifyConnection: func(state tls.ConnectionState) error {
					presented = state.PeerCertificates[0]
					return nil
				},
			})
			if err == nil {
				err = conn.Close()
			}
			if presented == nil || !presented.Equal(want) {
				err = errors.Join(fmt.Errorf("%s does not present its new certificate", component.Name()), err)
			} else {
				err = nil // Etcd wants one of the client, too.
			}
			return err
		})
		c.reconnect()
	}}
}

// reconnect ends the connections between servers and etcd, so that the next ones begin with
// the certificates of now.
func (c *campaign) reconnect() {
	c.setLinks(cut)
	c.setLinks(healthy)
}

func (c *campaign) setLinks(condition condition) {
	for _, link := range c.links {
		link.set(condition)
	}
}

// clientFault replaces the client certificate that servers show to etcd.
func (c *campaign) clientFault() fault {
	return fault{"replace the certificate for etcd", func() {
		c.replaceCertificate("etcd-client", c.cp.PKI.EtcdCA)
		c.reconnect()
	}}
}

// frontProxyFault replaces the certificate authority of the front proxy, as
// docs/operations/certificates.md says.
func (c *campaign) frontProxyFault() fault {
	const key = "requestheader-client-ca-file"
	return fault{"replace the authority of the front proxy", func() {
		old := c.cp.PKI.FrontProxyCA
		next, err := controlplane.NewCA(fmt.Sprintf("front-proxy-ca %d", time.Now().UnixNano()))
		require.NoError(c, err)
		next.File = old.File
		framework.ReplaceFile(c.T, old.File, slices.Concat(old.CertPEM(), next.CertPEM()))
		for _, server := range c.servers {
			c.frontProxyGets(server, next, http.StatusOK)
		}
		c.replaceCertificate("front-proxy-client", next)
		c.cp.PKI.FrontProxyCA = next
		framework.ReplaceFile(c.T, old.File, next.CertPEM())
		// When kube-apiserver does not take the old one any more, it has read both files.
		c.frontProxyGets(c.cp.KubeAPIServer, old, http.StatusUnauthorized)
		c.frontProxyGets(c.cp.KubeAPIServer, next, http.StatusOK)
		patch, err := json.Marshal(map[string]any{"data": map[string]string{key: string(next.CertPEM())}})
		require.NoError(c, err)
		_, err = kubernetes.NewForConfigOrDie(c.cp.RESTConfig()).CoreV1().ConfigMaps(metav1.NamespaceSystem).
			Patch(c.Context(), "extension-apiserver-authentication", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(c, err)
		for _, server := range c.servers {
			c.frontProxyGets(server, old, http.StatusUnauthorized)
		}
	}}
}

// frontProxyGets waits until a front proxy of a certificate authority gets a code.
func (c *campaign) frontProxyGets(at *controlplane.Component, ca *controlplane.CA, want int) {
	client := framework.HTTPClient(c.T, framework.FrontProxy(c.T, c.cp, at, ca, "admin", "system:masters"))
	controlplane.Eventually(c, func() error {
		response, err := client.Get(at.URL() + framework.GroupPath)
		if err != nil {
			return err
		}
		if err := response.Body.Close(); err != nil {
			return err
		}
		if response.StatusCode != want {
			return fmt.Errorf("a front proxy gets %s from %s, not %d", response.Status, at.Name(), want)
		}
		return nil
	})
}

// newWebhook makes servers ask a webhook about every write, and returns the network to it.
func (c *campaign) newWebhook() *link {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err == nil && review.Request == nil {
			err = errors.New("no request")
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review) // The client may have gone.
	}))
	pair, err := c.cp.PKI.ServingCA.Issue(controlplane.Certificate{User: "webhook", Hosts: []string{"127.0.0.1"}})
	require.NoError(c, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(c, err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // It would name each connection that is cut.
	server.StartTLS()
	c.Cleanup(server.Close)
	network := newLink(c.T, server.Listener.Addr().String())
	configurations := kubernetes.NewForConfigOrDie(c.cp.RESTConfig()).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = configurations.Create(c.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "faults.example.com"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "faults.example.com",
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"restaurant.programming-kubernetes.info"}, APIVersions: []string{"*"}, Resources: []string{"toppings"}},
			}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To("https://" + network.address()), CABundle: c.cp.PKI.ServingCA.CertPEM(),
			},
			TimeoutSeconds:          ptr.To[int32](2),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(c, err)
	return network
}

// webhookFaults cut the network to the webhook, which the servers need for each write.
func (c *campaign) webhookFaults() []fault {
	network := c.newWebhook()
	faults := c.networkFaults("the network to the webhook", network)
	for i := range faults {
		cause := faults[i].cause
		faults[i].cause = func() {
			cause()
			// Connections that said nothing for so long are of no use to anybody.
			network.set(cut)
			network.set(healthy)
		}
	}
	return append(faults, fault{"take the webhook away", func() {
		network.set(cut)
		defer network.set(healthy)
		controlplane.Eventually(c, func() error {
			ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
			defer cancel()
			err := c.write(ctx, c.toppings[0])
			if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
				return fmt.Errorf("a write without its webhook gets: %w", err)
			}
			return nil
		})
		c.sleep(longestFault)
	}})
}
