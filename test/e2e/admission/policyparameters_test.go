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
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// letServerRead does what an operator does to let policies have parameters of a kind,
// and returns when the server may read them. It is over when the test ends.
func (s *scope) letServerRead(resource string) {
	s.t.Helper()
	client := framework.Kube(cp)
	name := s.Name("read-" + resource)
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

// configMap creates a ConfigMap in the test's namespace, or one with the most replicas
// of a pizza.
func (s *scope) configMap(t *testing.T, name, most string, labels map[string]string) {
	t.Helper()
	_, err := framework.Kube(cp).CoreV1().ConfigMaps(s.Namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"most": most},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func kindOf(apiVersion, kind string) *admissionregistrationv1.ParamKind {
	return &admissionregistrationv1.ParamKind{APIVersion: apiVersion, Kind: kind}
}

var configMaps = kindOf("v1", "ConfigMap")

// named refers to one parameter, without which nothing passes.
func named(namespace, name string) *admissionregistrationv1.ParamRef {
	return &admissionregistrationv1.ParamRef{Namespace: namespace, Name: name, ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
}

// parametrized gives a policy parameters.
func (p policy) parametrized(kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) policy {
	if p.validating != nil {
		p.validating.ParamKind, p.validatingBindings[0].ParamRef = kind, ref
	}
	if p.mutating != nil {
		p.mutating.ParamKind, p.mutatingBindings[0].ParamRef = kind, ref
	}
	return p
}

// TestPolicyParameters has policies with ConfigMaps as parameters at any time. kube-apiserver
// ceases to watch a kind when no policy uses it, as between two tests, and does not begin again.
func TestPolicyParameters(t *testing.T) {
	s := newScope(t)
	s.letServerRead("configmaps")
	for name, p := range map[string]policy{
		"validating": validatingPolicy(s.forPolicies(rule(on("CREATE"), "toppings")), "true"),
		"mutating":   mutatingPolicy(s.forPolicies(rule(on("CREATE"), "toppings")), jsonPatch(`[JSONPatch{op: "test", path: "", value: object}]`)),
	} {
		s.createPolicy(name, p.parametrized(configMaps, named("default", "none")))
	}
	t.Run("are found", parametersAreFound)
	t.Run("change", parametersChange)
	t.Run("of mutations", parametersOfMutations)
}

// parametersAreFound shows how policies find their parameters, and what is said if
// they don't: just what kube-apiserver says.
func parametersAreFound(t *testing.T) {
	const most = "object.spec.replicas <= int(params.data.most)"
	const group = restaurant.GroupName
	s := newScopeWithReferences(t)
	beside := newScopeBeside(t, s, "beside")
	s.configMap(t, "limit", "5", nil)
	s.configMap(t, "small", "5", map[string]string{"menu": s.ID})
	s.configMap(t, "large", "7", map[string]string{"menu": s.ID})
	beside.configMap(t, "limit", "7", nil)
	s.createPizza("v1", "limit")
	s.createTopping("v1", "limit")
	selected := func(labels map[string]string, action admissionregistrationv1.ParameterNotFoundActionType) *admissionregistrationv1.ParamRef {
		return &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: labels}, ParameterNotFoundAction: &action}
	}
	missing := func(action admissionregistrationv1.ParameterNotFoundActionType) *admissionregistrationv1.ParamRef {
		return &admissionregistrationv1.ParamRef{Name: "missing", ParameterNotFoundAction: &action}
	}
	const (
		allowAction, denyAction = admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction
		notFound                = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
	)
	tests := map[string]struct {
		kind       *admissionregistrationv1.ParamKind
		ref        *admissionregistrationv1.ParamRef
		expression string
		// wantSix and wantEight are the refusals of pizzas with that many replicas.
		wantSix, wantEight string
	}{
		"in the namespace of the request": {configMaps, named("", "limit"), most, "failed expression: " + most, "failed expression: " + most},
		"in another namespace":            {configMaps, named(beside.Namespace, "limit"), most, "", "failed expression: " + most},
		"selected":                        {configMaps, selected(map[string]string{"menu": s.ID}, denyAction), most, "failed expression: " + most, "failed expression: " + most},
		"all of a namespace":              {configMaps, selected(nil, denyAction), "!has(params.data.most) || " + most, "failed expression: !has(params.data.most) || " + most, "failed expression: !has(params.data.most) || " + most},
		"none selected":                   {configMaps, selected(map[string]string{"menu": "none"}, denyAction), most, notFound, notFound},
		"none selected, but allowed":      {configMaps, selected(map[string]string{"menu": "none"}, allowAction), most, "", ""},
		"missing":                         {configMaps, missing(denyAction), most, notFound, notFound},
		"missing, but allowed":            {configMaps, missing(allowAction), most, "", ""},
		"no reference":                    {configMaps, nil, "params == null", "", ""},
		"no kind":                         {nil, nil, "object.spec.replicas <= 7", "", "failed expression: object.spec.replicas <= 7"},
		"its kind and name": {
			configMaps, named("", "limit"), "params.kind + params.apiVersion + params.metadata.namespace + params.metadata.name != 'ConfigMapv1" + s.Namespace + "limit'",
			"failed expression: params.kind + params.apiVersion + params.metadata.namespace + params.metadata.name != 'ConfigMapv1" + s.Namespace + "limit'",
			"failed expression: params.kind + params.apiVersion + params.metadata.namespace + params.metadata.name != 'ConfigMapv1" + s.Namespace + "limit'",
		},
		"a pizza":                {kindOf(group+"/v1", "Pizza"), named("", s.Name("limit")), "object.spec.replicas < params.spec.replicas + 6", "", "failed expression: object.spec.replicas < params.spec.replicas + 6"},
		"a pizza of old":         {kindOf(group+"/v1alpha1", "Pizza"), named("", s.Name("limit")), "params.spec.toppings[0] + params.apiVersion == 'mozzarella" + group + "/v1alpha1' && object.spec.replicas < 7", "", "failed expression: params.spec.toppings[0] + params.apiVersion == 'mozzarella" + group + "/v1alpha1' && object.spec.replicas < 7"},
		"a topping":              {kindOf(group+"/v1", "Topping"), named("", s.Name("limit")), "object.spec.replicas < 6 + int(params.spec.cost)", "", "failed expression: object.spec.replicas < 6 + int(params.spec.cost)"},
		"a topping of namespace": {kindOf(group+"/v1", "Topping"), named(s.Namespace, s.Name("limit")), "true", "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`", "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"},
		"of another kind":        {kindOf("example.com/v1", "Menu"), named("", "limit"), most, "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Menu'", "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Menu'"},
	}
	policies := map[string]policy{}
	for name, test := range tests {
		policies[name] = validatingPolicy(s.selectedCase(name, s.forPolicies(rule(on("CREATE"), "pizzas"))), test.expression).parametrized(test.kind, test.ref)
		ignored := validatingPolicy(s.selectedCase(name+" ignored", s.forPolicies(rule(on("CREATE"), "pizzas"))), test.expression).parametrized(test.kind, test.ref)
		ignored.validating.FailurePolicy = failOpen
		policies[name+" ignored"] = ignored
	}
	// A cluster-scoped object has no namespace in which there could be a parameter.
	policies["scoped"] = validatingPolicy(s.selectedCase("scoped", s.forPolicies(rule(on("CREATE"), "toppings"))), "true").parametrized(configMaps, named("", "limit"))
	s.enforceEverywhere(policies)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for replicas, want := range map[int64]string{6: test.wantSix, 8: test.wantEight} {
				for _, suffix := range []string{"", " ignored"} {
					slug := policySlug(name + suffix)
					version, name := framework.Versions()[replicas%3], fmt.Sprint(slug, "-", replicas)
					change := func(object *unstructured.Unstructured) {
						forCase(object, slug)
						require.NoError(t, unstructured.SetNestedField(object.Object, replicas, "spec", "replicas"))
					}
					_, err := s.createEverywhere(t, version, name, change)
					// Only what could not be evaluated is ignored.
					if want == "" || suffix != "" && strings.HasPrefix(want, "failed to ") {
						require.NoError(t, err)
						continue
					}
					status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
					denial := s.denial(slug, want)
					if test.kind != nil && test.kind.Kind == "Menu" {
						denial = fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", s.Name(slug), want)
					}
					require.Equal(t, fmt.Sprintf("pizzas.restaurant.programming-kubernetes.info %q is forbidden: %s", s.Name(name), denial), status.Message)
				}
			}
		})
	}
	_, err := s.toppings("v1").Create(t.Context(), forCase(s.topping("v1", "scoped"), "scoped"), metav1.CreateOptions{})
	status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	require.Contains(t, status.Message, s.denial("scoped", "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"))
}

// parametersChange shows that a parameter counts as soon as it exists, and
// later as it was changed.
func parametersChange(t *testing.T) {
	s := newScope(t)
	// The label of the object names the parameter.
	policies := map[string]policy{}
	const parameters = 20
	for i := range parameters {
		name := fmt.Sprintf("fresh-%d", i)
		policies[name] = validatingPolicy(s.selectedCase(name, s.forPolicies(rule(on("CREATE"), "pizzas"))), "object.spec.replicas <= int(params.data.most)").parametrized(configMaps, named("", name))
	}
	s.enforce(policies)
	create := func(name string, replicas int64) error {
		pizza := forCase(s.pizza("v1", fmt.Sprint(name, "-", replicas)), name)
		require.NoError(t, unstructured.SetNestedField(pizza.Object, replicas, "spec", "replicas"))
		_, err := s.pizzas("v1").Create(t.Context(), pizza, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for i := range parameters {
		name := fmt.Sprintf("fresh-%d", i)
		require.ErrorContains(t, create(name, 3), "no params found")
		s.configMap(t, name, "5", nil)
		require.NoError(t, create(name, 3))
		require.ErrorContains(t, create(name, 6), "failed expression")
	}
	_, err := framework.Kube(cp).CoreV1().ConfigMaps(s.Namespace).Patch(t.Context(), "fresh-0", types.MergePatchType, []byte(`{"data":{"most":"7"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error { return create("fresh-0", 6) })
	require.NoError(t, framework.Kube(cp).CoreV1().ConfigMaps(s.Namespace).Delete(t.Context(), "fresh-0", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		if err := create("fresh-0", 3); err == nil {
			return fmt.Errorf("the parameter still counts")
		}
		return nil
	})
	require.ErrorContains(t, create("fresh-0", 3), "no params found")
}

// TestParametersThatMayNotBeRead shows that policies whose parameters the server may
// not read follow their failure policy, and bother nobody else, until the server may.
// Later policies with such parameters work, too.
func TestParametersThatMayNotBeRead(t *testing.T) {
	framework.Long(t, "informers that do not sync are waited for")
	s := newScope(t)
	secrets := kindOf("v1", "Secret")
	// Others have no use for the secrets in the namespace.
	_, err := framework.Kube(cp).CoreV1().Secrets(s.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "recipe"}, Data: map[string][]byte{"most": []byte("5")},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	policies := map[string]policy{}
	for name, failurePolicy := range map[string]*admissionregistrationv1.FailurePolicyType{"closed": nil, "open": failOpen} {
		validating := validatingPolicy(s.selectedCase("validating "+name, s.forPolicies(rule(on("CREATE"), "pizzas"))), "object.spec.replicas < 9 && params.metadata.name == 'recipe'")
		validating.validating.FailurePolicy = failurePolicy
		mutating := mutatingPolicy(s.selectedCase("mutating "+name, s.forPolicies(rule(on("CREATE"), "pizzas"))),
			jsonPatch(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"secret": params.metadata.name}}]`))
		mutating.mutating.FailurePolicy = failurePolicy
		policies["validating "+name] = validating.parametrized(secrets, named("", "recipe"))
		policies["mutating "+name] = mutating.parametrized(secrets, named("", "recipe"))
	}
	s.enforce(policies)
	serverIsReady := func() {
		t.Helper()
		direct := framework.Config(cp)
		direct.Host = cp.APIServer.URL()
		body, err := kubernetes.NewForConfigOrDie(direct).Discovery().RESTClient().Get().RequestURI("/readyz").DoRaw(t.Context())
		require.NoError(t, err)
		require.Equal(t, "ok", string(body))
	}
	create := func(name string, replicas int64) (*unstructured.Unstructured, error) {
		pizza := forCase(s.pizza("v1", policySlug(name)), policySlug(name))
		require.NoError(t, unstructured.SetNestedField(pizza.Object, replicas, "spec", "replicas"))
		return s.pizzas("v1").Create(t.Context(), pizza, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}

	// The verb is list or watch.
	const denied = "failed to configure binding: allow the user of this server to get, list and watch secrets, which are parameters: " +
		`secrets is forbidden: User "system:serviceaccount:restaurant-system:apiserver" cannot `
	controlplane.Eventually(t, func() error {
		_, err := create("validating closed", 1)
		status := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		if !strings.HasPrefix(status.Message, fmt.Sprintf("pizzas.restaurant.programming-kubernetes.info %q is forbidden: %s", s.Name("validating-closed"), s.denial("validating-closed", denied))) {
			return err
		}
		_, err = create("mutating closed", 1)
		status = framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
		if !strings.HasPrefix(status.Message, fmt.Sprintf("policy '%[1]s' with binding '%[1]s' denied request: %[2]s", s.Name("mutating-closed"), denied)) {
			return err
		}
		return nil
	})
	// The library waits a second for parameters, and so would each request of each round.
	const requests = 20
	fastest := time.Hour
	for range requests {
		began := time.Now()
		for _, name := range []string{"validating closed", "mutating closed"} {
			_, err := create(name, 1)
			require.ErrorContains(t, err, denied)
		}
		for _, name := range []string{"validating open", "mutating open", "nobody's"} {
			_, err := create(name, 1)
			require.NoError(t, err)
		}
		fastest = min(fastest, time.Since(began))
		serverIsReady()
	}
	require.Less(t, fastest, 4*time.Second, "Requests wait for parameters that they will never get.")

	s.letServerRead("secrets")
	controlplane.Eventually(t, func() error {
		_, err := create("validating closed", 1)
		return err
	})
	for _, name := range []string{"validating closed", "validating open"} {
		_, err = create(name, 9)
		require.ErrorContains(t, err, "failed expression")
	}
	for _, name := range []string{"mutating closed", "mutating open"} {
		controlplane.Eventually(t, func() error {
			mutated, err := create(name, 1)
			if err == nil && mutated.GetAnnotations()["secret"] != "recipe" {
				err = fmt.Errorf("it is not mutated: %v", mutated)
			}
			return err
		})
	}
	serverIsReady()

	// When no policy uses the kind any more, it is no longer watched; one that comes
	// later makes it be watched again.
	client := framework.Kube(cp).AdmissionregistrationV1()
	for name := range policies {
		if policies[name].validating != nil {
			require.NoError(t, client.ValidatingAdmissionPolicies().Delete(t.Context(), s.Name(policySlug(name)), metav1.DeleteOptions{}))
		} else {
			require.NoError(t, mutatingPolicies("mutatingadmissionpolicies").Delete(t.Context(), s.Name(policySlug(name)), metav1.DeleteOptions{}))
		}
	}
	s.awaitPolicies("without", toppingKind)
	_, err = create("validating closed", 9)
	require.NoError(t, err)
	s.createPolicy("later-validating", validatingPolicy(s.selectedCase("later", s.forPolicies(rule(on("CREATE"), "pizzas"))), "params.metadata.name == 'recipe' && object.metadata.annotations['secret'] == 'recipe'").parametrized(secrets, named("", "recipe")))
	s.createPolicy("later-mutating", mutatingPolicy(s.selectedCase("later", s.forPolicies(rule(on("CREATE"), "pizzas"))),
		jsonPatch(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"secret": params.metadata.name}}]`)).parametrized(secrets, named("", "recipe")))
	s.awaitPolicies("later", toppingKind)
	mutated, err := create("later", 1)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"secret": "recipe"}, mutated.GetAnnotations())
	serverIsReady()
}
