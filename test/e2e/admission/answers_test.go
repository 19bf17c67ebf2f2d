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
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// What plugins, webhooks and policies say reaches users of client-go and of kubectl.
func TestAnswers(t *testing.T) {
	s := newScope(t)
	tests := map[string]struct {
		// One of these says something, if it is not PizzaToppings.
		webhook *admissionv1.AdmissionResponse
		policy  func(*policy)
		// These are the refusal, if there is one. NAME is the pizza's.
		code     int32
		reason   metav1.StatusReason
		message  string
		causes   []metav1.StatusCause
		warnings []string
		// kubectl is what kubectl says of the refusal.
		kubectl string
	}{
		"webhook": {
			webhook: &admissionv1.AdmissionResponse{Warnings: []string{"not today"}, Result: &metav1.Status{
				Code: 451, Reason: "Closed", Message: "at noon",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Message: "too hot", Field: "spec.oven"}}},
			}},
			code: 451, reason: "Closed", message: `admission webhook "webhook.example.com" denied the request: at noon`,
			causes:   []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Message: "too hot", Field: "spec.oven"}},
			warnings: []string{"not today"},
			kubectl:  `Error from server (Closed): error when creating "FILE": admission webhook "webhook.example.com" denied the request: at noon`,
		},
		"silent": {
			webhook: &admissionv1.AdmissionResponse{},
			code:    400, message: `admission webhook "silent.example.com" denied the request without explanation`,
			kubectl: `Error from server: error when creating "FILE": admission webhook "silent.example.com" denied the request without explanation`,
		},
		"warning": {
			webhook:  &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"hot", `"quoted", and ünïcode`}},
			warnings: []string{"hot", `"quoted", and ünïcode`},
		},
		"policy": {
			policy: func(*policy) {},
			code:   422, reason: metav1.StatusReasonInvalid, message: `pizzas.restaurant.programming-kubernetes.info "NAME" is forbidden: ` + s.denial("policy", "failed expression: object.spec.replicas > 1"),
			causes:  []metav1.StatusCause{{Message: s.denial("policy", "failed expression: object.spec.replicas > 1")}},
			kubectl: `The pizzas "NAME" is invalid: : ` + s.denial("policy", "failed expression: object.spec.replicas > 1"),
		},
		"policy-reason": {
			policy: func(p *policy) {
				p.validating.Validations[0].Reason = ptr.To(metav1.StatusReasonForbidden)
				p.validating.Validations[0].MessageExpression = "string(object.spec.replicas) + ' is too few'"
			},
			code: 403, reason: metav1.StatusReasonForbidden, message: `pizzas.restaurant.programming-kubernetes.info "NAME" is forbidden: ` + s.denial("policy-reason", "1 is too few"),
			causes:  []metav1.StatusCause{{Message: s.denial("policy-reason", "1 is too few")}},
			kubectl: `Error from server (Forbidden): error when creating "FILE": pizzas.restaurant.programming-kubernetes.info "NAME" is forbidden: ` + s.denial("policy-reason", "1 is too few"),
		},
		"policy-warning": {
			policy:   func(p *policy) { p.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn} },
			warnings: []string{fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s': failed expression: object.spec.replicas > 1", s.Name("policy-warning"))},
		},
		"policy-ignored": {policy: func(p *policy) {
			p.validating.Validations[0].Expression, p.failurePolicy = "object.spec.nothing == 1", failOpen
		}},
		"plugin": {
			code: 422, reason: metav1.StatusReasonInvalid, message: `Pizza.restaurant.programming-kubernetes.info "NAME" is invalid: spec.toppings[tar]: Not found: "tar"`,
			causes:  []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueNotFound, Message: `Not found: "tar"`, Field: "spec.toppings[tar]"}},
			kubectl: `The Pizza "NAME" is invalid: spec.toppings[tar]: Not found: "tar"`,
		},
	}
	policies := map[string]policy{}
	var webhooks []webhook
	for name, test := range tests {
		if test.webhook != nil {
			w := s.webhook(name, s.serve(func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return test.webhook }).Server, rule("CREATE", "pizzas"))
			w.ObjectSelector = s.selected(name)
			webhooks = append(webhooks, w)
		}
		if test.policy != nil {
			p := validating(rule("CREATE", "pizzas"), "object.spec.replicas > 1")
			test.policy(&p)
			policies[name] = p
		}
	}
	s.register("Validating", webhooks...)
	s.enforce("marker", policies)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pizza := s.pizza("v1", name)
			if name == "plugin" {
				pizza = s.pizza("v1", name, "tar")
			}
			var got warnings
			config := s.user()
			config.WarningHandler = &got
			client := dynamic.NewForConfigOrDie(config).Resource(s.Objects("Pizza", "v1").GroupVersionResource()).Namespace(s.Namespace)
			_, err := client.Create(t.Context(), pizza, metav1.CreateOptions{DryRun: dryRun})
			content, marshalErr := json.Marshal(pizza)
			require.NoError(t, marshalErr)
			file := framework.File(t, string(content))
			cmd := cp.Kubectl(t.Context(), "create", "--dry-run=server", "--as="+s.ID, "--as-group=system:masters", "--filename="+file)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			_ = cmd.Run() // Its output says whether it has failed.

			resolve := strings.NewReplacer("NAME", pizza.GetName(), "FILE", file).Replace
			require.Equal(t, test.warnings, []string(got))
			var want string
			for _, text := range test.warnings {
				want += "Warning: " + text + "\n"
			}
			if test.code == 0 {
				require.NoError(t, err)
				require.Equal(t, want, stderr.String())
				return
			}
			require.Equal(t, want+resolve(test.kubectl)+"\n", stderr.String())
			status := framework.RequireStatus(t, err, test.code, test.reason)
			require.Equal(t, resolve(test.message), status.Message)
			require.Equal(t, test.causes, ptr.Deref(status.Details, metav1.StatusDetails{}).Causes)
		})
	}
}

// The audit log says once which webhooks have changed an object, which have failed without
// consequence, what they say themselves, and which policies are not met. Patches are recorded only
// where the bodies of requests are.
func TestAuditAnnotations(t *testing.T) {
	s := newScope(t)
	// Annotations have the index of a webhook among all in the cluster. These are the first ones.
	s.ID = "0-" + s.ID
	closed := s.serveHTTP(nil)
	closed.Close()
	broken := s.webhook("broken", closed, rule("CREATE", "pizzas", "toppings"))
	broken.FailurePolicy = failOpen
	const operations = `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`
	changing := s.webhook("changing", s.serve(func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		response := patch(operations)(nil)
		response.AuditAnnotations = map[string]string{"why": `"quoted"`}
		return response
	}).Server, rule("CREATE", "pizzas", "toppings"))
	s.register("Mutating", changing)
	s.register("Validating", broken)
	p := validating(rule("CREATE", "pizzas"), "object.spec.replicas > 1")
	p.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	p.validating.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "replicas", ValueExpression: "string(object.spec.replicas)"}}
	s.enforce("marker", map[string]policy{"audited": p})
	s.createPizza("v1", "audited")
	_, err := s.toppings("v1").Create(t.Context(), s.object("Topping", "v1", "unaudited"), metav1.CreateOptions{DryRun: dryRun})
	require.NoError(t, err)

	configuration := s.Name("mutating")
	topping := map[string]string{
		"changing.example.com/why":                                        `"quoted"`,
		"mutation.webhook.admission.k8s.io/round_0_index_0":               `{"configuration":"` + configuration + `","webhook":"changing.example.com","mutated":true}`,
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "broken.example.com",
	}
	pizza := map[string]string{
		"patch.webhook.admission.k8s.io/round_0_index_0": `{"configuration":"` + configuration + `","webhook":"changing.example.com","patch":` + operations + `,"patchType":"JSONPatch"}`,
		s.Name("audited") + "/replicas":                  "1",
		"validation.policy.admission.k8s.io/validation_failure": fmt.Sprintf(
			`[{"message":"failed expression: object.spec.replicas \u003e 1","policy":%[1]q,"binding":%[1]q,"expressionIndex":0,"validationActions":["Audit"]}]`, s.Name("audited")),
	}
	for key, value := range topping {
		pizza[key] = value
	}
	for name, want := range map[string]map[string]string{"audited": pizza, "unaudited": topping} {
		var got []auditv1.Event
		controlplane.Eventually(t, func() error {
			got = framework.AuditEvents(t, filepath.Join(cp.APIServer.Dir(), auditLog), `"name":"`+s.Name(name)+`"`)
			if len(got) == 0 || got[len(got)-1].Stage != auditv1.StageResponseComplete {
				return fmt.Errorf("the audit log does not mention %s", s.Name(name))
			}
			return nil
		})
		require.Len(t, got, 1)
		for key := range got[0].Annotations {
			if strings.HasPrefix(key, "authorization.k8s.io/") || strings.HasPrefix(key, "apiserver.latency.k8s.io/") {
				delete(got[0].Annotations, key)
			}
		}
		require.Equal(t, want, got[0].Annotations)
	}
}
