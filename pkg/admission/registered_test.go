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
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestListWebhooksAndPolicies(t *testing.T) {
	t.Parallel()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	rules := []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, Resources: []string{"things"}}}}
	matches := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rules[0]}}}
	ignore := admissionregistrationv1.Ignore
	parameters := &admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Limit"}
	client := fake.NewClientset(
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("first"), Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "mutating.example.com", Rules: rules}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("second"), Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "validating.example.com", FailurePolicy: &ignore}}},
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named("same"), Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{MatchConstraints: matches, FailurePolicy: &ignore}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("same"), Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{ParamKind: parameters}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named("binding"), Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "same"}},
	)
	webhooks, err := ListWebhooks(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Webhook{
		{Name: "validating.example.com", Configuration: "ValidatingWebhookConfiguration second", FailurePolicy: &ignore},
		{Name: "mutating.example.com", Configuration: "MutatingWebhookConfiguration first", Rules: rules},
	}, webhooks); diff != "" {
		t.Errorf("the webhooks differ (-want +got):\n%s", diff)
	}
	policies, err := ListPolicies(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Policy{
		{Kind: "ValidatingAdmissionPolicy", Name: "same", Parameters: parameters, Bound: true},
		{Kind: "MutatingAdmissionPolicy", Name: "same", Rules: rules, FailurePolicy: &ignore},
	}, policies); diff != "" {
		t.Errorf("the policies differ (-want +got):\n%s", diff)
	}
}

func TestConcern(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		group, resource string
		want            bool
	}{
		{"example.com", "things", true}, {"example.com", "things/status", true}, {"example.com", "things/*", true}, {"example.com", "*/scale", true}, {"*", "*/*", true},
		{"example.com", "others", false}, {"example.org", "*", false}, {"*", "others", false},
	} {
		rule := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: []string{test.group}, Resources: []string{test.resource}}}
		if got := Concern([]admissionregistrationv1.RuleWithOperations{rule}, "example.com", func(resource string) bool { return resource == "things" }); got != test.want {
			t.Errorf("%s of %q: got %v", test.resource, test.group, got)
		}
	}
}
