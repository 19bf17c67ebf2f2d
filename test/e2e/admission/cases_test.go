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
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// caseLabel names the case of a table whose webhook an object is for. The webhooks of all
// cases are in one configuration, so that only one has to arrive.
const caseLabel = "admission-test-case"

// slug makes of the name of a case what can be a part of other names.
func slug(name string) string { return strings.ReplaceAll(name, " ", "-") }

// A variant is a sort of webhook with a failure policy.
type variant struct {
	sort          string
	failurePolicy admissionregistrationv1.FailurePolicyType
}

var (
	mutatingFail     = variant{"mutating", admissionregistrationv1.Fail}
	mutatingIgnore   = variant{"mutating", admissionregistrationv1.Ignore}
	validatingFail   = variant{"validating", admissionregistrationv1.Fail}
	validatingIgnore = variant{"validating", admissionregistrationv1.Ignore}

	variants = []variant{mutatingFail, mutatingIgnore, validatingFail, validatingIgnore}
)

// of is the name of the webhook for a case.
func (v variant) of(name string) string {
	return slug(name) + "." + v.sort + "." + strings.ToLower(string(v.failurePolicy))
}

// onPizzas is the rule for operations on pizzas and their references, in all versions.
func onPizzas(operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	pizzas := rule(operations, pizzaKind.resource, pizzaKind.reference().resource)
	pizzas.APIGroups = []string{restaurant.GroupName, referenceGroup}
	return pizzas
}

// registerCases registers all variants of a webhook for each case. They are called
// for an operation on pizzas and their references, in all versions, if caseLabel is
// the name of the webhook. It returns when kube-apiserver knows them, too.
func (s *scope) registerCases(operation admissionregistrationv1.OperationType, cases map[string]admissionregistrationv1.WebhookClientConfig) {
	s.t.Helper()
	rules := []admissionregistrationv1.RuleWithOperations{onPizzas(operation)}
	var mutating []admissionregistrationv1.MutatingWebhook
	var validating []admissionregistrationv1.ValidatingWebhook
	for name, client := range cases {
		for _, v := range variants {
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID, caseLabel: v.of(name)}}
			if v.sort == "mutating" {
				mutating = append(mutating, admissionregistrationv1.MutatingWebhook{
					Name: v.of(name), ClientConfig: client, Rules: rules, ObjectSelector: selector,
					FailurePolicy: &v.failurePolicy, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				})
			} else {
				validating = append(validating, admissionregistrationv1.ValidatingWebhook{
					Name: v.of(name), ClientConfig: client, Rules: rules, ObjectSelector: selector,
					FailurePolicy: &v.failurePolicy, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				})
			}
		}
	}
	s.registerEverywhere("cases", mutating, validating)
}

// forCase makes an object one for the webhook of a case.
func forCase(object *unstructured.Unstructured, webhook string) *unstructured.Unstructured {
	labels := object.GetLabels()
	labels[caseLabel] = webhook
	object.SetLabels(labels)
	return object
}

// createForCase creates a pizza for the webhook of a case. The answer has to be
// kube-apiserver's for the reference. It returns the error.
func (s *scope) createForCase(t *testing.T, webhook string) error {
	t.Helper()
	create := func(kind servedKind) error {
		_, err := kind.client(s, framework.Config(cp), "v1").Create(t.Context(), forCase(kind.object(s, "v1", webhook), webhook), metav1.CreateOptions{})
		return err
	}
	err := create(pizzaKind)
	require.Equal(t, comparableError(t, create(pizzaKind.reference())), comparableError(t, err))
	return err
}

// comparableError is an error in the restaurant's words.
func comparableError(t *testing.T, err error) string {
	t.Helper()
	content, marshalErr := json.Marshal(err)
	require.NoError(t, marshalErr)
	return asRestaurant.Replace(withoutAccidents(string(content)))
}

// respond starts a webhook that answers requests to /NAME with the text of this
// name. UID in the text stands for the request's.
func (s *scope) respond(text func(name string, request *admissionv1.AdmissionRequest) string) *httptest.Server {
	s.t.Helper()
	w := &webhook{scope: s}
	return s.serve(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		review, err := w.receive(in)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		answer := text(strings.TrimPrefix(in.URL.Path, "/"), review.Request)
		_, _ = out.Write([]byte(strings.ReplaceAll(answer, "UID", string(review.Request.UID))))
	}))
}

// at is the client configuration for a path of a server.
func at(server *httptest.Server, path string) admissionregistrationv1.WebhookClientConfig {
	client := clientConfig(server)
	client.URL = ptr.To(server.URL + "/" + path)
	return client
}

// review is the text of an answer with these fields.
func review(fields string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID",` + fields + `}}`
}

// patched is the text of an answer with a JSON patch.
func patched(operations string) string {
	encoded, _ := json.Marshal([]byte(operations))
	return review(`"allowed":true,"patchType":"JSONPatch","patch":` + string(encoded))
}
