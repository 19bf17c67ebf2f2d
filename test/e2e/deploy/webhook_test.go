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
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestWebhookComponent runs the pods of the component, and calls one as kube-apiserver does.
// The call trusts nothing but the caBundle of the configurations, and goes to the path that
// they name.
func TestWebhookComponent(t *testing.T) {
	framework.Long(t, "pods are run")
	install(t, kustomization(t, "overlays/standalone", []string{"components/webhook"}, ""))
	found := pods(t, systemNamespace, map[string]int{serverName: 1, "restaurant-webhook": 2, "restaurant-webhook-certificates": 1})
	machine := newMachine("webhook-")
	machine.run(t, found["restaurant-webhook-certificates"][0])
	definition := filepath.Join(root, "artifacts", "crd", "pizzas.yaml")
	kubectl(t, "create", "--filename="+definition)
	t.Cleanup(func() { kubectlCleanup(t, "delete", "--filename="+definition) })
	var bundle []byte
	var path string
	controlplane.Eventually(t, func() error {
		registration := framework.Kube(cp).AdmissionregistrationV1()
		mutating, err := registration.MutatingWebhookConfigurations().Get(t.Context(), "restaurant-webhook", metav1.GetOptions{})
		if err != nil {
			return err
		}
		validating, err := registration.ValidatingWebhookConfigurations().Get(t.Context(), "restaurant-webhook", metav1.GetOptions{})
		if err != nil {
			return err
		}
		bundle = mutating.Webhooks[0].ClientConfig.CABundle
		if len(bundle) == 0 || mutating.Webhooks[0].ClientConfig.Service.Path == nil {
			return errors.New("there is no caBundle or path yet")
		}
		path = strings.TrimSuffix(*mutating.Webhooks[0].ClientConfig.Service.Path, "/admit")
		for _, webhook := range validating.Webhooks {
			if config := webhook.ClientConfig; !bytes.Equal(config.CABundle, bundle) || config.Service.Path == nil || *config.Service.Path != path+"/validate" {
				return errors.New("the configurations trust different certificate authorities, or have different paths")
			}
		}
		converts := kubectl(t, "get", "--filename="+definition, "--output=jsonpath={.spec.conversion.webhook.clientConfig.caBundle} {.spec.conversion.webhook.clientConfig.service.path}")
		if converts != base64.StdEncoding.EncodeToString(bundle)+" "+path+"/convert" {
			return fmt.Errorf("the definition trusts or calls another webhook: %s", converts)
		}
		return nil
	})
	// They do not wait for the API server, which may need them to read toppings.
	pod := found["restaurant-webhook"][0]
	require.NotEmpty(t, awaitSecret(t, framework.Kube(cp), "webhook-server").Data["tls.crt"])
	webhook := machine.run(t, pod)
	require.NoError(t, webhook.WaitReady(t.Context()))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "webhook." + systemNamespace + ".svc"}}
	t.Cleanup(transport.CloseIdleConnections)
	for at, want := range map[string]int{path + "/convert": http.StatusBadRequest, "/convert": http.StatusNotFound, "/validate": http.StatusNotFound} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, webhook.URL()+at, strings.NewReader("{}"))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		response, err := (&http.Client{Transport: transport}).Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, at)
	}
}
