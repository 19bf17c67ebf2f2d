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
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// denial is what a policy of the test says that denies.
func (s *scope) denial(name, message string) string {
	return fmt.Sprintf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %[2]s", s.Name(name), message)
}

// TestValidationActions shows where a failed validation is told: to the client as
// an error or a warning, and in the audit log.
func TestValidationActions(t *testing.T) {
	const (
		deny, warn, audit = admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit
		message           = "9 are too many"
	)
	type actions = []admissionregistrationv1.ValidationAction
	tests := map[string]struct {
		actions                             actions
		wantDenied, wantWarned, wantAudited bool
	}{
		"deny":           {actions{deny}, true, false, false},
		"warn":           {actions{warn}, false, true, false},
		"audit":          {actions{audit}, false, false, true},
		"warn-and-audit": {actions{warn, audit}, false, true, true},
		"deny-and-audit": {actions{deny, audit}, true, false, true},
	}
	for _, version := range []string{"v1alpha1", "v1"} {
		t.Run(version, func(t *testing.T) {
			s := newScope(t)
			policies := map[string]policy{}
			for name, test := range tests {
				policies[name] = validatingPolicy(s.selectedCase(name, s.forPolicies(rule(on("CREATE"), "pizzas"))), "object.spec.replicas <= 5").
					with(func(p *validatingSpec) {
						p.Validations[0].MessageExpression = "string(object.spec.replicas) + ' are too many'"
						p.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{
							{Key: "replicas", ValueExpression: "string(object.spec.replicas)"},
							{Key: "nothing", ValueExpression: "null"},
						}
					}).
					bound(func(b *validatingBinding) { b.ValidationActions = test.actions })
			}
			s.enforce(policies)
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					pizza := forCase(s.pizza(version, name), name)
					require.NoError(t, unstructured.SetNestedField(pizza.Object, int64(9), "spec", "replicas"))
					heard := &warnings{}
					client := framework.Config(cp)
					client.WarningHandler = heard
					_, err := pizzaKind.client(s, client, version).Create(t.Context(), pizza, metav1.CreateOptions{})
					if test.wantDenied {
						status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
						require.Equal(t, []metav1.StatusCause{{Message: s.denial(name, message)}}, status.Details.Causes)
					} else {
						require.NoError(t, err)
					}

					var wantWarnings []string
					if version == "v1alpha1" {
						wantWarnings = []string{"restaurant.programming-kubernetes.info/v1alpha1 Pizza is deprecated in v0.37+; use restaurant.programming-kubernetes.info/v1 Pizza"}
					}
					if test.wantWarned {
						wantWarnings = append(wantWarnings, fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s': %[2]s", s.Name(name), message))
					}
					require.ElementsMatch(t, wantWarnings, heard.texts)

					wantAnnotations := map[string]string{s.Name(name) + "/replicas": "9"}
					if test.wantAudited {
						list, err := json.Marshal(test.actions)
						require.NoError(t, err)
						wantAnnotations["validation.policy.admission.k8s.io/validation_failure"] = fmt.Sprintf(
							`[{"message":%[1]q,"policy":%[2]q,"binding":%[2]q,"expressionIndex":0,"validationActions":%[3]s}]`, message, s.Name(name), list)
					}
					annotations := webhookAnnotations(t, pizza.GetName())
					for _, about := range []string{"k8s.io/deprecated", "k8s.io/removed-release"} {
						delete(annotations, about)
					}
					require.Equal(t, wantAnnotations, annotations)
				})
			}
		})
	}
}

// TestAuditAnnotationThatFails shows that it follows the failure policy.
func TestAuditAnnotationThatFails(t *testing.T) {
	s := newScopeWithReferences(t)
	policies := map[string]policy{}
	for name, failurePolicy := range map[string]*admissionregistrationv1.FailurePolicyType{"fails": nil, "is ignored": failOpen} {
		p := validatingPolicy(s.selectedCase(name, s.forPolicies(rule(on("CREATE"), "pizzas"))))
		p.validating.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "nothing", ValueExpression: "string(object.spec.nothing)"}}
		p.validating.FailurePolicy = failurePolicy
		policies[name] = p
	}
	s.enforceEverywhere(policies)
	_, err := s.createEverywhere(t, "v1", "fails", func(object *unstructured.Unstructured) { forCase(object, "fails") })
	status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	require.Contains(t, status.Message, "no such key: nothing")
	_, err = s.createEverywhere(t, "v1", "ignored", func(object *unstructured.Unstructured) { forCase(object, "is-ignored") })
	require.NoError(t, err)
}

// TestPoliciesSeeTheirVersion shows that a policy for one version judges the requests
// in all of them, in its own.
func TestPoliciesSeeTheirVersion(t *testing.T) {
	s := newScope(t)
	policies := map[string]policy{}
	for version, expression := range map[string]string{
		"v1alpha1": "size(object.spec.toppings) == 3 && object.spec.toppings.all(t, t in ['tomato', 'basil'])",
		"v1beta1":  "object.spec.toppings.map(t, t.quantity).sum() == 3",
		"v1":       "object.spec.toppings.exists(t, t.name == 'tomato' && t.quantity == 2) && object.apiVersion == '" + restaurant.GroupName + "/v1'",
	} {
		p := validatingPolicy(s.forPolicies(of(rule(on("CREATE", "UPDATE"), "pizzas"), version)), "!("+expression+")")
		p.validating.Validations[0].MessageExpression = "request.resource.version + ' for ' + request.requestResource.version + ', ' + request.kind.version + ' for ' + request.requestKind.version"
		policies[version] = p
	}
	s.enforce(policies)
	for _, version := range framework.Versions() {
		pizza := s.pizza(version, version)
		pizza.Object["spec"].(map[string]any)["toppings"] = framework.Toppings(version, "tomato×2", "basil")
		_, err := s.pizzas(version).Create(t.Context(), pizza, metav1.CreateOptions{})
		status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		// One is told as the reason: any of the three.
		require.Regexp(t, "(v1|v1beta1|v1alpha1) for "+version+", (v1|v1beta1|v1alpha1) for "+version+"$", status.Message)
		for _, policy := range framework.Versions() {
			if strings.Contains(status.Message, "'"+s.Name(policy)+"'") {
				require.Contains(t, status.Message, "denied request: "+policy+" for "+version+", "+policy+" for "+version)
			}
		}

		// With one tomato nobody minds.
		s.createPizzaWith(t, version, version, "tomato")
		patch := `{"spec":{"toppings":` + jsonList(t, framework.Toppings(version, "tomato×2", "basil")) + `}}`
		_, err = s.pizzas(version).Patch(t.Context(), s.Name(version), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
}

func jsonList(t *testing.T, list []any) string {
	t.Helper()
	content, err := json.Marshal(list)
	require.NoError(t, err)
	return string(content)
}

// TestPoliciesOfSubresources shows what policies see of requests that are none for
// whole objects, and of those that have no object.
func TestPoliciesOfSubresources(t *testing.T) {
	s := newScope(t)
	inNamespace := func(operation admissionregistrationv1.OperationType, resource string) *admissionregistrationv1.MatchResources {
		// A Scale, a Bake and the options of a connection have no labels.
		constraints := s.forPolicies(rule(on(operation), resource))
		constraints.ObjectSelector = nil
		constraints.NamespaceSelector = s.Selector()
		return constraints
	}
	policies := map[string]policy{
		"status": validatingPolicy(inNamespace("UPDATE", "pizzas/status"), "object.status.replicas < 7 && object.spec.replicas == 1 && oldObject.status.replicas == 0"),
		"scale":  validatingPolicy(inNamespace("UPDATE", "pizzas/scale"), "object.kind == 'Scale' && object.spec.replicas < 7 && oldObject.spec.replicas == 1"),
		"bake":   validatingPolicy(inNamespace("CREATE", "pizzas/bake"), "object.kind == 'Bake' && object.spec.count < 7"),
		"track":  validatingPolicy(inNamespace("CONNECT", "pizzas/track"), "object.kind == 'PizzaTrackOptions' && object.timeoutSeconds < 7"),
		"delete": validatingPolicy(inNamespace("DELETE", "pizzas"), "object == null && oldObject.metadata.name.endsWith('-a') && (!has(request.options.preconditions) || request.options.preconditions.uid != 'wrong')"),
	}
	s.enforce(policies)
	for _, version := range framework.Versions() {
		s.createPizza(version, version+"-a")
		s.createPizza(version, version+"-b")
		pizzas, name := s.pizzas(version), version+"-a"
		patch := func(subresource, patch string) error {
			_, err := pizzas.Patch(t.Context(), s.Name(name), types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresource)
			return err
		}
		bake := func(count int64) error {
			_, err := pizzas.Create(t.Context(), s.bake(version, name, count), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, "bake")
			return err
		}
		track := func(seconds int) error {
			_, err := s.track(framework.Config(cp), version, name, fmt.Sprint("timeoutSeconds=", seconds))
			return err
		}
		for policy, test := range map[string]struct{ allowed, denied func() error }{
			"status": {func() error { return patch("status", `{"status":{"replicas":6}}`) }, func() error { return patch("status", `{"status":{"replicas":7}}`) }},
			"scale":  {func() error { return patch("scale", `{"spec":{"replicas":6}}`) }, func() error { return patch("scale", `{"spec":{"replicas":7}}`) }},
			"bake":   {func() error { return bake(1) }, func() error { return bake(7) }},
			"track":  {func() error { return track(6) }, func() error { return track(7) }},
			"delete": {
				func() error {
					return pizzas.Delete(t.Context(), s.Name(version+"-a"), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
				},
				func() error {
					return pizzas.Delete(t.Context(), s.Name(version+"-b"), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
				},
			},
		} {
			require.NoError(t, test.allowed(), "%s in %s", policy, version)
			status := framework.RequireStatus(t, test.denied(), http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			require.Contains(t, status.Message, s.denial(policy, "failed expression: "+policies[policy].validating.Validations[0].Expression))
		}
		err := pizzas.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + s.Name(version+"-b")})
		framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
}

// TestPoliciesOfClusterScopedObjects shows that those are in no namespace.
func TestPoliciesOfClusterScopedObjects(t *testing.T) {
	s := newScopeWithReferences(t)
	constraints := s.forPolicies(rule(on("CREATE", "DELETE"), "toppings"))
	// It does not exclude what is in no namespace.
	constraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "namespace"}}
	p := validatingPolicy(constraints, "namespaceObject != null || !has(request.namespace) && quantity(has(object.spec) ? string(object.spec.cost) : '0').isLessThan(quantity('5'))")
	p.validating.Validations[0].MessageExpression = "'too dear: ' + string(object.spec.cost)"
	p.validating.MatchConditions = matchConditions("request.operation == 'CREATE'")
	s.enforceEverywhere(map[string]policy{"costs": p})
	s.createTopping("v1", "cheap")
	for _, kind := range []servedKind{toppingKind, toppingKind.reference()} {
		for _, version := range framework.Versions() {
			dear := kind.object(s, version, "dear")
			require.NoError(t, unstructured.SetNestedField(dear.Object, "1e1", "spec", "cost"))
			_, err := kind.client(s, framework.Config(cp), version).Create(t.Context(), dear, metav1.CreateOptions{})
			status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			require.Contains(t, status.Message, s.denial("costs", "too dear: 1"))
		}
	}
}

// TestPoliciesAskTheAuthorizer shows that a policy can ask what the user may do, of the
// cluster that this server extends.
func TestPoliciesAskTheAuthorizer(t *testing.T) {
	s := newScope(t)
	creator, editor := s.Name("creator"), s.Name("editor")
	create := rbacv1.PolicyRule{APIGroups: []string{restaurant.GroupName}, Resources: []string{"pizzas"}, Verbs: []string{"create"}}
	s.grant(creator, create)
	create.Verbs = []string{"create", "delete", "serve"}
	s.grant(editor, create)
	clients := map[string]*rest.Config{}
	for _, user := range []string{creator, editor} {
		client, err := cp.RESTConfigFor(user)
		require.NoError(t, err)
		client.WarningHandler = rest.NoWarnings{}
		clients[user] = client
	}
	tests := map[string]string{
		"a resource":     "authorizer.group('" + restaurant.GroupName + "').resource('pizzas').namespace(request.namespace).check('delete').allowed()",
		"the request's":  "authorizer.requestResource.check('serve').allowed()",
		"another verb":   "!authorizer.requestResource.check('eat').allowed()",
		"the reason":     "authorizer.requestResource.check('serve').reason().contains('RBAC: allowed by RoleBinding')",
		"another's user": "authorizer.serviceAccount('" + s.Namespace + "', 'nobody').path('/api').check('get').allowed() || authorizer.requestResource.check('serve').allowed()",
	}
	policies := map[string]policy{}
	for name, expression := range tests {
		policies[name] = validatingPolicy(s.selectedCase(name, s.forPolicies(rule(on("CREATE"), "pizzas"))), expression)
	}
	s.enforce(policies)
	for name, expression := range tests {
		t.Run(name, func(t *testing.T) {
			for user, client := range clients {
				pizza := forCase(s.pizza("v1", policySlug(name)+strings.TrimPrefix(user, s.ID)), policySlug(name))
				_, err := pizzaKind.client(s, client, "v1").Create(t.Context(), pizza, metav1.CreateOptions{})
				if user == creator && name != "another verb" {
					status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
					require.Contains(t, status.Message, s.denial(policySlug(name), "failed expression: "+expression))
				} else {
					require.NoError(t, err, user)
				}
			}
		})
	}
}
