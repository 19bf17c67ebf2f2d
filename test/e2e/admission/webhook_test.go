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

package admission

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// An answer is what a webhook says to a request.
type answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func deny(code int32, message string) answer {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: message}}
	}
}

// patch answers with a JSON patch.
func patch(operations string) answer {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
	}
}

// A call is what a webhook has received.
type call struct {
	// apiVersion is that of the AdmissionReview.
	apiVersion string
	request    *admissionv1.AdmissionRequest
	// body is the whole AdmissionReview as it was sent.
	body []byte
	http *http.Request
}

// A webhook is an endpoint of a server of the test, by HTTPS on loopback.
type webhook struct {
	scope  *scope
	server *httptest.Server

	mu    sync.Mutex
	calls []call
}

// webhook starts a webhook that answers every request alike, in the version of the
// request, until the test ends.
func (s *scope) webhook(answer answer) *webhook {
	s.t.Helper()
	w := &webhook{scope: s}
	w.server = s.serve(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		review, err := w.receive(in)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = answer(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(review)
	}))
	return w
}

// serve starts a server on loopback with a certificate of the control plane for
// 127.0.0.1, localhost, and the hosts.
func (s *scope) serve(handler http.Handler, hosts ...string) *httptest.Server {
	s.t.Helper()
	pair, err := cp.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: append([]string{"127.0.0.1", "localhost"}, hosts...)})
	require.NoError(s.t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(s.t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	return server
}

func (w *webhook) receive(in *http.Request) (*admissionv1.AdmissionReview, error) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	// v1beta1 has the same fields.
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, err
	}
	if review.Request == nil {
		return nil, fmt.Errorf("the AdmissionReview has no request: %s", body)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call{apiVersion: review.APIVersion, request: review.Request, body: body, http: in})
	return review, nil
}

// received returns all calls so far, in their order.
func (w *webhook) received() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// clientConfig tells where the webhook is.
func (w *webhook) clientConfig() admissionregistrationv1.WebhookClientConfig {
	return clientConfig(w.server)
}

func clientConfig(server *httptest.Server) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(server.URL + "/webhook"), CABundle: cp.PKI.ServingCA.CertPEM()}
}

// rule is for all versions of the restaurant's resources.
func rule(operations []admissionregistrationv1.OperationType, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{restaurant.GroupName}, APIVersions: []string{"*"}, Resources: resources},
	}
}

// on lists operations.
func on(operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.OperationType {
	return operations
}

// validating returns a validating webhook for the test's objects, which has to get
// rules. It may be changed before it is registered.
func (w *webhook) validating(rules ...admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    "validating.example.com",
		ClientConfig:            w.clientConfig(),
		Rules:                   rules,
		ObjectSelector:          w.scope.Selector(),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// mutating returns a mutating webhook for the test's objects, like validating.
func (w *webhook) mutating(rules ...admissionregistrationv1.RuleWithOperations) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name:                    "mutating.example.com",
		ClientConfig:            w.clientConfig(),
		Rules:                   rules,
		ObjectSelector:          w.scope.Selector(),
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// inEffect is the refusal that tells a test that its configuration has arrived: a
// server takes a configuration as a whole.
const inEffect = "the configuration is in effect"

// markerLabel selects the object that is refused when the configuration named by
// it is in effect.
const markerLabel = "admission-test-marker"

// registerValidating registers webhooks in one configuration until the test ends,
// and returns when they are in effect.
func (s *scope) registerValidating(name string, webhooks ...admissionregistrationv1.ValidatingWebhook) {
	s.t.Helper()
	marker := s.webhook(deny(http.StatusForbidden, inEffect)).validating(rule(on("CREATE"), "toppings"))
	marker.Name = "marker.example.com"
	marker.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{markerLabel: s.Name(name)}}
	client := framework.Kube(cp).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := client.Create(s.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name(name)},
		Webhooks:   append(slices.Clone(webhooks), marker),
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.Cleanup(func(ctx context.Context) error { return client.Delete(ctx, s.Name(name), metav1.DeleteOptions{}) })
	s.awaitMarker(name)
}

// registerMutating is registerValidating for mutating webhooks.
func (s *scope) registerMutating(name string, webhooks ...admissionregistrationv1.MutatingWebhook) {
	s.t.Helper()
	marker := s.webhook(deny(http.StatusForbidden, inEffect)).mutating(rule(on("CREATE"), "toppings"))
	marker.Name = "marker.example.com"
	marker.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{markerLabel: s.Name(name)}}
	client := framework.Kube(cp).AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := client.Create(s.t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name(name)},
		Webhooks:   append(slices.Clone(webhooks), marker),
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.Cleanup(func(ctx context.Context) error { return client.Delete(ctx, s.Name(name), metav1.DeleteOptions{}) })
	s.awaitMarker(name)
}

func (s *scope) awaitMarker(name string) {
	s.t.Helper()
	topping := s.topping("v1", name)
	topping.SetLabels(map[string]string{markerLabel: s.Name(name)})
	controlplane.Eventually(s.t, func() error {
		_, err := s.toppings("v1").Create(s.t.Context(), topping, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), inEffect) {
			return nil
		}
		return fmt.Errorf("the configuration %s is not in effect: %w", s.Name(name), err)
	})
}
