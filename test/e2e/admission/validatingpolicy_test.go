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
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

type (
	validatingSpec    = admissionregistrationv1.ValidatingAdmissionPolicySpec
	validatingBinding = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
)

// selectedCase restricts match constraints to the objects of a case of a table.
func (s *scope) selectedCase(name string, constraints *admissionregistrationv1.MatchResources) *admissionregistrationv1.MatchResources {
	constraints.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID, caseLabel: policySlug(name)}}
	return constraints
}

// TestValidatingPolicies shows what expressions see, and what is said when they
// fail, in every version: just what kube-apiserver says of its own.
func TestValidatingPolicies(t *testing.T) {
	const replicas = "object.spec.replicas <= 5"
	invalid, forbidden := metav1.StatusReasonInvalid, metav1.StatusReasonForbidden
	tooLarge := metav1.StatusReasonRequestEntityTooLarge
	tests := map[string]struct {
		change func(*validatingSpec)
		// want is the end of the message for nine replicas, after the policy's name.
		want   string
		code   int32
		reason metav1.StatusReason
	}{
		"by default": {nil, "failed expression: " + replicas, 422, invalid},
		"a message":  {func(p *validatingSpec) { p.Validations[0].Message = "too many" }, "too many", 422, invalid},
		"a reason":   {func(p *validatingSpec) { p.Validations[0].Reason = &forbidden }, "failed expression: " + replicas, 403, forbidden},
		"too large":  {func(p *validatingSpec) { p.Validations[0].Reason = &tooLarge }, "failed expression: " + replicas, 413, tooLarge},
		"a computed message": {func(p *validatingSpec) {
			p.Validations[0].MessageExpression = "string(object.spec.replicas) + ' are too many'"
		}, "9 are too many", 422, invalid},
		"a message that fails": {func(p *validatingSpec) { p.Validations[0].MessageExpression = "string(object.spec.nothing)" }, "failed expression: " + replicas, 422, invalid},
		"a message instead": {func(p *validatingSpec) {
			p.Validations[0].MessageExpression, p.Validations[0].Message = "string(object.spec.nothing)", "too many"
		}, "too many", 422, invalid},
		"variables": {func(p *validatingSpec) {
			p.Variables = []admissionregistrationv1.Variable{{Name: "limit", Expression: "5"}, {Name: "next", Expression: "variables.limit + 1"}}
			p.Validations[0].Expression = "object.spec.replicas <= variables.limit"
			p.Validations[0].MessageExpression = "'stay below ' + string(variables.next)"
		}, "stay below 6", 422, invalid},
		"the first that fails": {func(p *validatingSpec) {
			p.Validations = append([]admissionregistrationv1.Validation{{Expression: "true"}, {Expression: "object.spec.replicas < 9", Message: "first"}}, p.Validations...)
		}, "first", 422, invalid},
		"conditions":         {func(p *validatingSpec) { p.MatchConditions = matchConditions("object.spec.replicas == 9") }, "failed expression: " + replicas, 422, invalid},
		"conditions not met": {func(p *validatingSpec) { p.MatchConditions = matchConditions("object.spec.replicas == 9", "false") }, "", 0, ""},
		"a condition fails":  {func(p *validatingSpec) { p.MatchConditions = matchConditions("object.spec.nothing == 9") }, "expression 'object.spec.nothing == 9' resulted in error: no such key: nothing", 422, invalid},
		"a condition fails, ignored": {func(p *validatingSpec) {
			p.MatchConditions, p.FailurePolicy = matchConditions("object.spec.nothing == 9"), failOpen
		}, "", 0, ""},
		"an error": {func(p *validatingSpec) { p.Validations[0].Expression = "object.spec.nothing == 1" }, "expression 'object.spec.nothing == 1' resulted in error: no such key: nothing", 422, invalid},
		"an error, ignored": {func(p *validatingSpec) {
			p.Validations[0].Expression, p.FailurePolicy = "object.spec.nothing == 1", failOpen
		}, "", 0, ""},
		"a failure is not ignored": {func(p *validatingSpec) { p.FailurePolicy = failOpen }, "failed expression: " + replicas, 422, invalid},
		"no old object":            {func(p *validatingSpec) { p.Validations[0].Expression = "oldObject != null" }, "failed expression: oldObject != null", 422, invalid},
		"the request": {func(p *validatingSpec) {
			p.Validations[0].Expression = "false"
			p.Validations[0].MessageExpression = "request.operation + ' ' + request.resource.version + ' ' + request.kind.kind + ' ' + request.name + ' ' + string(request.dryRun) + ' ' + request.userInfo.username"
		}, "CREATE v1 Pizza NAME false admin", 422, invalid},
		"the namespace": {func(p *validatingSpec) {
			p.Validations[0].Expression = "namespaceObject.metadata.name != request.namespace"
		}, "failed expression: namespaceObject.metadata.name != request.namespace", 422, invalid},
		"the namespace's labels": {func(p *validatingSpec) {
			p.Validations[0].Expression = "!('" + framework.Label + "' in namespaceObject.metadata.labels)"
		}, "failed expression: !('" + framework.Label + "' in namespaceObject.metadata.labels)", 422, invalid},
		"the kind":           {func(p *validatingSpec) { p.Validations[0].Expression = "object.kind == 'Bread'" }, "failed expression: object.kind == 'Bread'", 422, invalid},
		"a cheap expression": {func(p *validatingSpec) { p.Validations[0].Expression = "object.metadata.name.matches('^e2e-')" }, "", 0, ""},
		"an expensive one": {func(p *validatingSpec) {
			p.Validations[0].Expression = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, object.metadata.name != 'a'))))))"
		},
			"operation cancelled: actual cost limit exceeded", 422, invalid},
	}
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newScopeWithReferences(t)
			policies := map[string]policy{}
			for name, test := range tests {
				constraints := s.selectedCase(name, s.forPolicies(rule(on("CREATE"), "pizzas")))
				policies[name] = validatingPolicy(constraints, replicas)
				if test.change != nil {
					test.change(policies[name].validating)
				}
			}
			s.enforceEverywhere(policies)
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					created, err := s.createEverywhere(t, version, policySlug(name), func(object *unstructured.Unstructured) {
						forCase(object, policySlug(name))
						require.NoError(t, unstructured.SetNestedField(object.Object, int64(9), "spec", "replicas"))
					})
					if test.want == "" {
						require.NoError(t, err)
						require.NotEmpty(t, created.GetUID())
						return
					}
					status := framework.RequireStatus(t, err, test.code, test.reason)
					want := strings.NewReplacer("NAME", s.Name(policySlug(name)), " v1 ", " "+version+" ").Replace(test.want)
					if strings.Contains(test.want, "operation cancelled") {
						require.Contains(t, status.Message, want)
						return
					}
					require.Equal(t, fmt.Sprintf("pizzas.restaurant.programming-kubernetes.info %[1]q is forbidden: ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %[2]s",
						s.Name(policySlug(name)), want), status.Message)
				})
			}
		})
	}
}

func matchConditions(expressions ...string) []admissionregistrationv1.MatchCondition {
	var conditions []admissionregistrationv1.MatchCondition
	for i, expression := range expressions {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: expression})
	}
	return conditions
}

// TestPolicyMatches shows which requests the constraints of a policy are for.
func TestPolicyMatches(t *testing.T) {
	s := newScope(t)
	exactly := func(rules ...admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.MatchResources {
		constraints := s.forPolicies(rules...)
		constraints.MatchPolicy = ptr.To(admissionregistrationv1.Exact)
		constraints.ObjectSelector = nil
		return constraints
	}
	equivalently := func(rules ...admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.MatchResources {
		constraints := s.forPolicies(rules...)
		constraints.ObjectSelector = nil
		return constraints
	}
	inScope := func(scope admissionregistrationv1.ScopeType) admissionregistrationv1.RuleWithOperations {
		r := rule(on("CREATE"), "*")
		r.Scope = &scope
		return r
	}
	named := func(name string) *admissionregistrationv1.MatchResources {
		constraints := exactly(rule(on("*"), "pizzas"))
		constraints.ResourceRules[0].ResourceNames = []string{s.Name(name)}
		return constraints
	}
	excluding := func(r admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.MatchResources {
		constraints := exactly(rule(on("CREATE"), "*"))
		constraints.ExcludeResourceRules = []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: r}}
		return constraints
	}
	var everything []string
	for _, request := range rulesRequests {
		everything = append(everything, request.name)
	}
	tests := map[string]struct {
		constraints *admissionregistrationv1.MatchResources
		want        []string
	}{
		"everything": {exactly(rule(on("*"), "*/*")), everything},
		"CREATE":     {exactly(rule(on("CREATE"), "*")), []string{"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "CREATE v1 toppings"}},
		"UPDATE":     {exactly(rule(on("UPDATE"), "*/*")), []string{"UPDATE v1beta1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale", "UPDATE v1beta1 toppings"}},
		"DELETE":     {exactly(rule(on("DELETE"), "*/*")), []string{"DELETE v1 pizzas", "DELETE v1alpha1 pizzas", "DELETE v1 toppings"}},
		"CONNECT":    {exactly(rule(on("CONNECT"), "*/*")), []string{"CONNECT v1 pizzas/track"}},
		"status":     {exactly(rule(on("*"), "pizzas/status")), []string{"UPDATE v1 pizzas/status"}},
		"scale":      {exactly(rule(on("*"), "pizzas/scale")), []string{"UPDATE v1 pizzas/scale"}},
		"bake":       {exactly(rule(on("*"), "pizzas/bake")), []string{"CREATE v1beta1 pizzas/bake"}},
		"Cluster":    {exactly(inScope(admissionregistrationv1.ClusterScope)), []string{"CREATE v1 toppings"}},
		"Namespaced": {exactly(inScope(admissionregistrationv1.NamespacedScope)), []string{"CREATE v1 pizzas", "CREATE v1alpha1 pizzas"}},
		"Exact":      {exactly(of(rule(on("*"), "pizzas"), "v1alpha1")), []string{"CREATE v1alpha1 pizzas", "DELETE v1alpha1 pizzas"}},
		"Equivalent": {equivalently(of(rule(on("*"), "pizzas"), "v1alpha1")), []string{
			"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "UPDATE v1beta1 pizzas", "DELETE v1 pizzas", "DELETE v1alpha1 pizzas",
		}},
		"Equivalent subresources": {equivalently(of(rule(on("*"), "pizzas/*"), "v1beta1")), []string{
			"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "UPDATE v1beta1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale",
			"CREATE v1beta1 pizzas/bake", "CONNECT v1 pizzas/track", "DELETE v1 pizzas", "DELETE v1alpha1 pizzas",
		}},
		"by name":   {named("a"), []string{"CREATE v1 pizzas", "UPDATE v1beta1 pizzas", "DELETE v1 pizzas"}},
		"excluding": {excluding(of(rule(on("*"), "*"), "v1alpha1")), []string{"CREATE v1 pizzas", "CREATE v1 toppings"}},
	}
	policies := map[string]policy{}
	for name, test := range tests {
		policies[name] = validatingPolicy(test.constraints, "false").
			with(func(p *validatingSpec) { p.MatchConditions = s.forCook() }).
			bound(func(b *validatingBinding) {
				b.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
			})
	}
	s.enforce(policies)
	for _, request := range rulesRequests {
		require.NoError(t, request.send(t, s), request.name)
	}

	var events []auditv1.Event
	controlplane.Eventually(t, func() error {
		events = slices.DeleteFunc(framework.AuditEvents(t, filepath.Join(cp.APIServer.Dir(), auditLog), s.ID), func(event auditv1.Event) bool {
			return event.User.Username != s.ID || event.Stage != auditv1.StageResponseComplete
		})
		if len(events) != len(rulesRequests) {
			return fmt.Errorf("there are %d events", len(events))
		}
		return nil
	})
	got := map[string][]string{}
	for i, event := range events {
		var failures []struct{ Policy, Binding, Message string }
		require.NoError(t, json.Unmarshal([]byte(event.Annotations["validation.policy.admission.k8s.io/validation_failure"]), &failures), "%v", event)
		for _, failure := range failures {
			require.Equal(t, failure.Policy, failure.Binding)
			require.Equal(t, "failed expression: false", failure.Message)
			got[failure.Policy] = append(got[failure.Policy], rulesRequests[i].name)
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, got[s.Name(policySlug(name))])
		})
	}
}
