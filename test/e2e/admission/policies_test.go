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
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

var failOpen = ptr.To(admissionregistrationv1.Ignore)

// A policy validates, mutates, or both, for a rule in the test's namespace. It has one binding.
type policy struct {
	rule       admissionregistrationv1.RuleWithOperations
	validating *admissionregistrationv1.ValidatingAdmissionPolicySpec
	mutating   *admissionregistrationv1.MutatingAdmissionPolicySpec
	// actions are Deny if there are none.
	actions []admissionregistrationv1.ValidationAction
	// kind is the kind of the parameters, if there are some.
	kind      *admissionregistrationv1.ParamKind
	parameter *admissionregistrationv1.ParamRef
	// failurePolicy is Fail if it is nil.
	failurePolicy *admissionregistrationv1.FailurePolicyType
}

func validating(rule admissionregistrationv1.RuleWithOperations, expression string) policy {
	return policy{rule: rule, validating: &admissionregistrationv1.ValidatingAdmissionPolicySpec{Validations: []admissionregistrationv1.Validation{{Expression: expression}}}}
}

// mutating is a policy with a JSON patch, or an apply configuration.
func mutating(rule admissionregistrationv1.RuleWithOperations, expression string) policy {
	mutation := admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression}}
	if strings.HasPrefix(expression, "Object{") {
		mutation = admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression}}
	}
	return policy{rule: rule, mutating: &admissionregistrationv1.MutatingAdmissionPolicySpec{
		Mutations: []admissionregistrationv1.Mutation{mutation}, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
	}}
}

// createPolicy creates a policy and its binding until the test ends. Of whole objects, it is for
// the one with its name.
func (s *scope) createPolicy(name string, p policy) {
	s.t.Helper()
	constraints := &admissionregistrationv1.MatchResources{
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: p.rule}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}},
	}
	if !strings.Contains(p.rule.Resources[0], "/") {
		constraints.ObjectSelector = s.selected(name)
	}
	if p.validating != nil {
		p.validating.MatchConstraints, p.validating.ParamKind, p.validating.FailurePolicy = constraints, p.kind, p.failurePolicy
		if p.actions == nil {
			p.actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		}
		s.createRegistration("ValidatingAdmissionPolicy", name, &admissionregistrationv1.ValidatingAdmissionPolicy{Spec: *p.validating})
		s.createRegistration("ValidatingAdmissionPolicyBinding", name, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: s.Name(name), ParamRef: p.parameter, ValidationActions: p.actions},
		})
	}
	if p.mutating != nil {
		p.mutating.MatchConstraints, p.mutating.ParamKind, p.mutating.FailurePolicy = constraints, p.kind, p.failurePolicy
		s.createRegistration("MutatingAdmissionPolicy", name, &admissionregistrationv1.MutatingAdmissionPolicy{Spec: *p.mutating})
		s.createRegistration("MutatingAdmissionPolicyBinding", name, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: s.Name(name), ParamRef: p.parameter},
		})
	}
}

// enforce creates policies, and returns when they are in force. The server learns of policies, and
// of bindings, in the order of their creation: one more of each, the marker, tells.
func (s *scope) enforce(marker string, policies map[string]policy) {
	s.t.Helper()
	for name, p := range policies {
		s.createPolicy(name, p)
	}
	p := mutating(rule("CREATE", "toppings"), `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"in": "force"}}]`)
	const unmutated = "!has(object.metadata.annotations)"
	p.validating = validating(p.rule, unmutated).validating
	s.createPolicy(marker, p)
	s.awaitRefusal(marker, "failed expression: "+unmutated)
}

// named refers to one parameter, without which nothing passes.
func named(namespace, name string) *admissionregistrationv1.ParamRef {
	return &admissionregistrationv1.ParamRef{Namespace: namespace, Name: name, ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
}

// selecting refers to all parameters with some labels. Without any, the action is taken.
func selecting(labels map[string]string, action admissionregistrationv1.ParameterNotFoundActionType) *admissionregistrationv1.ParamRef {
	return &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: labels}, ParameterNotFoundAction: &action}
}

// denial is what a validating policy of the test says that denies.
func (s *scope) denial(name, message string) string {
	return fmt.Sprintf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %[2]s", s.Name(name), message)
}

// A policy judges requests in all versions in its own one. It knows the object, the request, the
// namespace, and what users may do.
func TestValidatingPolicies(t *testing.T) {
	s := newScope(t)
	create := rule("CREATE", "pizzas")
	tests := map[string]struct {
		version, expression string
		denied              bool
	}{
		"v1alpha1":          {"v1alpha1", "object.spec.toppings == ['tomato', 'tomato', 'basil']", false},
		"v1beta1":           {"v1beta1", "object.spec.toppings.map(t, t.quantity).sum() == 3 && oldObject == null", false},
		"v1":                {"v1", "object.spec.toppings.exists(t, t.name == 'tomato' && t.quantity == 2) && request.resource.version == 'v1'", false},
		"v1alpha1-denied":   {"v1alpha1", "'tomato' in object.spec.toppings && size(object.spec.toppings) < 3", true},
		"v1-denied":         {"v1", "object.spec.toppings.all(t, t.quantity < 2)", true},
		"namespace":         {"*", "namespaceObject.metadata.labels['" + framework.Label + "'] == request.userInfo.username", false},
		"user-may":          {"*", "authorizer.requestResource.check('eat').allowed()", false},
		"others-may-denied": {"*", "authorizer.serviceAccount('default', 'nobody').group('" + restaurant.GroupName + "').resource('pizzas').check('eat').allowed()", true},
	}
	policies := map[string]policy{}
	for name, test := range tests {
		policies[name] = validating(of(create, test.version), test.expression)
	}
	s.enforce("marker", policies)
	for name, test := range tests {
		for _, version := range framework.Versions() {
			t.Run(name+"/"+version, func(t *testing.T) {
				_, err := s.pizzas(version).Create(t.Context(), s.pizza(version, name, "tomato×2", "basil"), metav1.CreateOptions{DryRun: dryRun})
				if !test.denied {
					require.NoError(t, err)
					return
				}
				status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
				require.Contains(t, status.Message, s.denial(name, "failed expression: "+test.expression))
			})
		}
	}
}

// Policies see old objects, and requests that are none for whole objects or have no object.
func TestPoliciesOfSubresources(t *testing.T) {
	s := newScope(t)
	tests := map[string]struct {
		rule       admissionregistrationv1.RuleWithOperations
		expression string
		// send sends a request that is allowed for 6, and denied for 7.
		send func(pizzas framework.Objects, n int) error
	}{
		"status": {rule("UPDATE", "pizzas/status"), "object.status.replicas < 7 && object.spec.replicas == 1 && oldObject.status.replicas == 0", func(pizzas framework.Objects, n int) error {
			_, err := pizzas.Client().Patch(t.Context(), s.Name("a"), types.MergePatchType, fmt.Appendf(nil, `{"status":{"replicas":%d}}`, n), metav1.PatchOptions{DryRun: dryRun}, "status")
			return err
		}},
		"scale": {rule("UPDATE", "pizzas/scale"), "object.kind == 'Scale' && object.spec.replicas < 7 && oldObject.spec.replicas == 1", func(pizzas framework.Objects, n int) error {
			_, err := pizzas.Client().Patch(t.Context(), s.Name("a"), types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{DryRun: dryRun}, "scale")
			return err
		}},
		"bake": {rule("CREATE", "pizzas/bake"), "object.kind == 'Bake' && object.spec.count < 7", func(pizzas framework.Objects, n int) error {
			_, err := pizzas.Client().Create(t.Context(), s.bake(pizzas.Version, "a", int64(n)), metav1.CreateOptions{DryRun: dryRun}, "bake")
			return err
		}},
		"track": {rule("CONNECT", "pizzas/track"), "object.kind == 'PizzaTrackOptions' && object.timeoutSeconds < 7", func(pizzas framework.Objects, n int) error {
			_, err := s.track(pizzas.Version, "a", fmt.Sprint("timeoutSeconds=", n))
			return err
		}},
		"7": {rule("DELETE", "pizzas"), "object != null || oldObject.spec.replicas > 1", func(pizzas framework.Objects, n int) error {
			return pizzas.Client().DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{FieldSelector: "metadata.name=" + s.Name(fmt.Sprint(n))})
		}},
	}
	policies := map[string]policy{}
	for name, test := range tests {
		policies[name] = validating(test.rule, test.expression)
	}
	s.enforce("marker", policies)
	for _, name := range []string{"a", "6", "7"} {
		s.createPizza("v1", name)
	}
	for name, test := range tests {
		for _, version := range framework.Versions() {
			t.Run(name+"/"+version, func(t *testing.T) {
				pizzas := s.Objects("Pizza", version)
				require.NoError(t, test.send(pizzas, 6))
				status := framework.RequireStatus(t, test.send(pizzas, 7), http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
				require.Contains(t, status.Message, s.denial(name, "failed expression: "+test.expression))
			})
		}
	}
}

// A policy for one version mutates objects in requests in all versions, and the objects of
// subresources.
func TestMutatingPolicies(t *testing.T) {
	s := newScope(t)
	create := rule("CREATE", "pizzas")
	toppings := map[string]policy{
		"v1alpha1":      mutating(of(create, "v1alpha1"), `[JSONPatch{op: "add", path: "/spec/toppings/-", value: "basil"}]`),
		"v1":            mutating(of(create, "v1"), `[JSONPatch{op: "add", path: "/spec/toppings/-", value: Object.spec.toppings{name: "basil"}}]`),
		"v1beta1-apply": mutating(of(create, "v1beta1"), `Object{spec: Object.spec{toppings: [Object.spec.toppings{name: "basil"}]}}`),
	}
	s.enforce("marker", toppings)
	s.enforce("another", map[string]policy{
		"status": mutating(rule("UPDATE", "pizzas/status"), `Object{status: Object.status{replicas: object.status.replicas + 1}, spec: Object.spec{replicas: 99}}`),
		"scale":  mutating(rule("UPDATE", "pizzas/scale"), `[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas * 2}]`),
		"bake":   mutating(rule("CREATE", "pizzas/bake"), `Object{spec: Object.spec{count: 1}}`),
		"track":  mutating(rule("CONNECT", "pizzas/track"), `[JSONPatch{op: "add", path: "/follow", value: false}]`),
	})
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			pizzas := s.pizzas(version)
			for name := range toppings {
				created, err := pizzas.Create(t.Context(), s.pizza(version, name, "mozzarella"), metav1.CreateOptions{DryRun: dryRun})
				require.NoError(t, err, name)
				require.Equal(t, framework.Toppings(version, "mozzarella", "basil"), get(created, "spec", "toppings"), name)
			}

			name := s.createPizza(version, "of-"+version).GetName()
			patched, err := pizzas.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status")
			require.NoError(t, err)
			require.Equal(t, int64(2), get(patched, "status", "replicas"))
			require.Equal(t, int64(1), get(patched, "spec", "replicas"), "A write of the status writes no spec.")
			scale, err := pizzas.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{}, "scale")
			require.NoError(t, err)
			require.Equal(t, int64(8), get(scale, "spec", "replicas"))
			baked, err := pizzas.Create(t.Context(), s.bake(version, "of-"+version, 3), metav1.CreateOptions{}, "bake")
			require.NoError(t, err)
			require.Equal(t, int64(1), get(baked, "spec", "count"))
			said, err := s.track(version, "of-"+version, "follow=true&timeoutSeconds=3600")
			require.NoError(t, err)
			require.Equal(t, "3 of 8 baked\n", said)
		})
	}
}

// letServerRead does what an operator does to let policies have parameters of a kind,
// and returns when the server may read them.
func (s *scope) letServerRead(resource string) {
	s.t.Helper()
	client, name := framework.Kube(cp), s.Name("read-"+resource)
	_, err := client.RbacV1().ClusterRoles().Create(s.t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"restaurant.programming-kubernetes.info/aggregate-to-policy-parameters": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.Cleanup(func(ctx context.Context) error {
		return client.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
	})
	controlplane.Eventually(s.t, func() error {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(s.t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:restaurant-system:apiserver", ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: resource, Verb: "watch"},
		}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("the server may not read %s yet", resource)
		}
		return err
	})
}

// Policies find their parameters, of kinds of the cluster and of the restaurant.
func TestPolicyParameters(t *testing.T) {
	s := newScope(t)
	s.letServerRead("configmaps")
	configMaps := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	own := func(version, kind string) *admissionregistrationv1.ParamKind {
		return &admissionregistrationv1.ParamKind{APIVersion: restaurant.GroupName + "/" + version, Kind: kind}
	}
	const (
		most        = "object.spec.replicas <= int(params.data.most)"
		notFound    = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
		asAPizza    = "params.spec.toppings == ['tomato'] && object.spec.replicas < params.spec.replicas"
		asATopping  = "object.spec.replicas == int(params.spec.cost)"
		deny, allow = admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction
	)
	tests := map[string]struct {
		kind       *admissionregistrationv1.ParamKind
		ref        *admissionregistrationv1.ParamRef
		expression string
		// want is the refusal of a pizza with two replicas.
		want string
	}{
		"named":           {configMaps, named("", "five"), most, ""},
		"named-denied":    {configMaps, named(s.Namespace, "one"), most, "failed expression: " + most},
		"selected-denied": {configMaps, selecting(s.Labels(), deny), most, "failed expression: " + most},
		"missing":         {configMaps, named("", "missing"), most, notFound},
		"missing-allowed": {configMaps, selecting(map[string]string{"none": "such"}, allow), most, ""},
		"no-kind":         {&admissionregistrationv1.ParamKind{APIVersion: "example.com/v1", Kind: "Menu"}, named("", "five"), most, "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Menu'"},
		"pizza":           {own("v1alpha1", "Pizza"), named("", s.Name("limit")), asAPizza, "failed expression: " + asAPizza},
		"topping":         {own("v1", "Topping"), named("", s.Name("limit")), asATopping, "failed expression: " + asATopping},
	}
	policies := map[string]policy{}
	for name, test := range tests {
		p := validating(rule("CREATE", "pizzas"), test.expression)
		p.kind, p.parameter = test.kind, test.ref
		policies[name] = p
	}
	p := mutating(rule("CREATE", "pizzas"), `[JSONPatch{op: "replace", path: "/spec/replicas", value: int(params.data.most)}]`)
	p.kind, p.parameter = configMaps, named("", "five")
	policies["mutated"] = p
	configMap := func(name, most string, labels map[string]string) {
		_, err := framework.Kube(cp).CoreV1().ConfigMaps(s.Namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"most": most},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	configMap("one", "1", s.Labels())
	s.enforce("marker", policies)
	// Those with a name count as soon as they exist.
	configMap("five", "5", nil)
	s.createPizza("v1", "limit")
	s.createTopping("v1", "limit")
	create := func(name string) (*unstructured.Unstructured, error) {
		pizza := s.pizza("v1beta1", name)
		set(pizza, int64(2), "spec", "replicas")
		return s.pizzas("v1beta1").Create(t.Context(), pizza, metav1.CreateOptions{DryRun: dryRun})
	}
	mutated, err := create("mutated")
	require.NoError(t, err)
	require.Equal(t, int64(5), get(mutated, "spec", "replicas"))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := create(name)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
			require.Contains(t, status.Message, test.want)
		})
	}
}

// Policies whose parameters the server may not read follow their failure policy, and bother nobody
// else, until the server may.
func TestParametersThatMayNotBeRead(t *testing.T) {
	framework.Long(t, "informers that do not sync are waited for")
	s := newScope(t)
	_, err := framework.Kube(cp).CoreV1().Secrets(s.Namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "recipe"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	bySecret := func(p policy, failurePolicy *admissionregistrationv1.FailurePolicyType) policy {
		p.kind, p.parameter, p.failurePolicy = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Secret"}, named("", "recipe"), failurePolicy
		return p
	}
	validates := validating(rule("CREATE", "pizzas"), "object.spec.replicas < 9 && params.metadata.name == 'recipe'")
	mutates := mutating(rule("CREATE", "pizzas"), `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"secret": params.metadata.name}}]`)
	s.enforce("marker", map[string]policy{
		"validating-closed": bySecret(validates, nil), "mutating-closed": bySecret(mutates, nil),
		"validating-open": bySecret(validates, failOpen), "mutating-open": bySecret(mutates, failOpen),
	})
	create := func(name string, replicas int64) (*unstructured.Unstructured, error) {
		pizza := s.pizza("v1", name)
		set(pizza, replicas, "spec", "replicas")
		return s.pizzas("v1").Create(t.Context(), pizza, metav1.CreateOptions{DryRun: dryRun})
	}
	serverIsReady := func() {
		t.Helper()
		code, body := framework.Get(t, cp, cp.APIServer, "/readyz")
		require.Equal(t, "200 ok", fmt.Sprint(code, " ", body))
	}

	// The verb is list or watch.
	const denied = "failed to configure binding: allow the user of this server to get, list and watch secrets, which are parameters: " +
		`secrets is forbidden: User "system:serviceaccount:restaurant-system:apiserver" cannot `
	refused := map[string]struct {
		code   int32
		reason metav1.StatusReason
	}{"validating-closed": {422, metav1.StatusReasonInvalid}, "mutating-closed": {403, metav1.StatusReasonForbidden}}
	for name, want := range refused {
		controlplane.Eventually(t, func() error {
			_, err := create(name, 1)
			if status := framework.RequireStatus(t, err, want.code, want.reason); !strings.Contains(status.Message, fmt.Sprintf("binding '%s' denied request: %s", s.Name(name), denied)) {
				return err
			}
			return nil
		})
	}
	for _, name := range []string{"validating-open", "mutating-open", "nobodys"} {
		_, err := create(name, 1)
		require.NoError(t, err)
	}
	serverIsReady()

	s.letServerRead("secrets")
	for _, name := range []string{"validating-closed", "validating-open", "mutating-closed", "mutating-open"} {
		controlplane.Eventually(t, func() error {
			mutated, err := create(name, 1)
			if err == nil && strings.HasPrefix(name, "mutating") && mutated.GetAnnotations()["secret"] != "recipe" {
				err = fmt.Errorf("it is not mutated: %v", mutated)
			}
			return err
		})
	}
	_, err = create("validating-open", 9)
	require.ErrorContains(t, err, "failed expression")
	serverIsReady()
}
