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
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// spiced is the mutation that puts basil on a pizza, in each version.
var spiced = map[string]map[string]admissionregistrationv1.Mutation{
	"JSON patch": {
		"v1alpha1": jsonPatch(`[JSONPatch{op: "add", path: "/spec/toppings/-", value: "basil"}]`),
		"v1beta1":  jsonPatch(`[JSONPatch{op: "add", path: "/spec/toppings/-", value: Object.spec.toppings{name: "basil"}}]`),
		"v1":       jsonPatch(`[JSONPatch{op: "add", path: "/spec/toppings/-", value: {"name": "basil"}}]`),
	},
	"apply": {
		"v1beta1": applyConfiguration(`Object{spec: Object.spec{toppings: [Object.spec.toppings{name: "basil"}]}}`),
		"v1":      applyConfiguration(`Object{spec: Object.spec{toppings: object.spec.toppings.map(t, Object.spec.toppings{name: t.name}) + [Object.spec.toppings{name: "basil", quantity: 1}]}}`),
	},
}

// TestMutatingPolicies shows that a policy for one version mutates objects of all
// versions, on every way. The defaults of its version are filled in.
func TestMutatingPolicies(t *testing.T) {
	for patchType, mutations := range spiced {
		for policyVersion, mutation := range mutations {
			t.Run(patchType+"/"+policyVersion, func(t *testing.T) {
				s := newScope(t)
				p := mutatingPolicy(s.forPolicies(of(rule(on("CREATE", "UPDATE"), "pizzas"), policyVersion)), mutation)
				p.mutating.MatchConditions = matchConditions("object.metadata.?labels['plain'].orValue('') != 'yes'")
				s.enforce(map[string]policy{"spiced": p})
				for _, version := range framework.Versions() {
					created := s.createPizzaWith(t, version, version, "mozzarella", "tomato")
					require.Equal(t, framework.Toppings(version, "mozzarella", "tomato", "basil"), created.Object["spec"].(map[string]any)["toppings"])
					s.requireStored(t, version, version, false, "mozzarella", "tomato", "basil")

					update := []byte(`{"spec":{"toppings":` + jsonList(t, framework.Toppings(version, "salami")) + `}}`)
					dry, err := s.pizzas(version).Patch(t.Context(), created.GetName(), types.MergePatchType, update, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
					require.NoError(t, err)
					require.Equal(t, []string{"salami", "basil"}, toppingNames(dry))
					s.requireStored(t, version, version, false, "mozzarella", "tomato", "basil")
					_, err = s.pizzas(version).Patch(t.Context(), created.GetName(), types.MergePatchType, update, metav1.PatchOptions{})
					require.NoError(t, err)
					s.requireStored(t, version, version, false, "salami", "basil")

					applied, err := s.pizzas(version).Apply(t.Context(), s.Name(version+"-applied"), s.pizzaWith(version, version+"-applied", "tomato"), metav1.ApplyOptions{FieldManager: "cook"})
					require.NoError(t, err)
					require.Equal(t, []string{"tomato", "basil"}, toppingNames(applied))

					plain := s.pizzaWith(version, version+"-plain", "tomato")
					labels := plain.GetLabels()
					labels["plain"] = "yes"
					plain.SetLabels(labels)
					plain, err = s.pizzas(version).Create(t.Context(), plain, metav1.CreateOptions{})
					require.NoError(t, err)
					require.Equal(t, []string{"tomato"}, toppingNames(plain))
				}
			})
		}
	}
}

// TestPolicyMutationsThatFail shows what is said of them: just what kube-apiserver
// says.
func TestPolicyMutationsThatFail(t *testing.T) {
	const (
		noKey = `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"a": object.spec.nothing}}]`
		ten   = "[1,2,3,4,5,6,7,8,9,10]"
	)
	tests := map[string]struct {
		mutation admissionregistrationv1.Mutation
		// wantReplicas are those of a pizza that has one, if it is created; want, the
		// end of the message.
		wantReplicas int64
		want         string
	}{
		"a test that fits": {jsonPatch(`[JSONPatch{op: "test", path: "/spec/replicas", value: 1}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]`), 3, ""},
		"a failed test":    {jsonPatch(`[JSONPatch{op: "test", path: "/spec/replicas", value: 99}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]`), 1, ""},
		"no such key":      {jsonPatch(noKey), 0, "expression '" + noKey + "' resulted in error: no such key: nothing"},
		"no such path":     {jsonPatch(`[JSONPatch{op: "replace", path: "/spec/nothing/more", value: 1}]`), 0, "JSON Patch: replace operation does not apply: doc is missing path: /spec/nothing/more: missing value"},
		"too expensive": {jsonPatch(ten + ".all(a, " + ten + ".all(b, " + ten + ".all(c, " + ten + ".all(d, " + ten + ".all(e, " + ten + `.all(f, object.metadata.name != 'a')))))) ? [JSONPatch{op: "remove", path: "/spec"}] : []`),
			0, "resulted in error: operation cancelled: actual cost limit exceeded"},
	}
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newScopeWithReferences(t)
			policies := map[string]policy{}
			for name, test := range tests {
				for suffix, failurePolicy := range map[string]*admissionregistrationv1.FailurePolicyType{"": nil, "-ignored": failOpen} {
					p := mutatingPolicy(s.selectedCase(name+suffix, s.forPolicies(rule(on("CREATE"), "pizzas"))), test.mutation)
					p.mutating.FailurePolicy = failurePolicy
					policies[name+suffix] = p
				}
			}
			s.enforceEverywhere(policies)
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					for _, suffix := range []string{"", "-ignored"} {
						slug := policySlug(name + suffix)
						created, err := s.createEverywhere(t, version, slug, func(object *unstructured.Unstructured) { forCase(object, slug) })
						if test.want == "" || suffix != "" {
							require.NoError(t, err)
							require.Equal(t, max(test.wantReplicas, 1), created.Object["spec"].(map[string]any)["replicas"])
							continue
						}
						status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonInvalid)
						require.True(t, strings.HasPrefix(status.Message, fmt.Sprintf("policy '%[1]s' with binding '%[1]s' denied request: ", s.Name(slug))), status.Message)
						require.True(t, strings.HasSuffix(status.Message, test.want), status.Message)
					}
				})
			}
		})
	}
}

// parametersOfMutations shows what mutations are made of: just as in kube-apiserver,
// where a parameter of a kind of its own has no kind.
func parametersOfMutations(t *testing.T) {
	s := newScopeWithReferences(t)
	s.configMap(t, "limit", "7", nil)
	p := mutatingPolicy(s.forPolicies(rule(on("CREATE", "UPDATE"), "pizzas")), jsonPatch(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {
		"variable": string(variables.replicas), "parameter": string(params.data.most) + (has(params.kind) ? " of a kind" : ""),
		"namespace": string(namespaceObject.metadata.name), "request": string(request.operation) + " " + string(request.requestResource.version),
		"old": oldObject == null ? "none" : string(oldObject.spec.replicas), "authorizer": string(authorizer.requestResource.check("eat").allowed()),
	}}]`)).parametrized(configMaps, named("", "limit"))
	p.mutating.Variables = []admissionregistrationv1.Variable{{Name: "replicas", Expression: "string(object.spec.replicas)"}}
	s.enforceEverywhere(map[string]policy{"sees": p})
	for _, kind := range []servedKind{pizzaKind, pizzaKind.reference()} {
		for _, version := range framework.Versions() {
			client := kind.client(s, framework.Config(cp), version)
			created, err := client.Create(t.Context(), kind.object(s, version, version), metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, map[string]string{
				"variable": "1", "parameter": "7", "namespace": s.Namespace, "request": "CREATE " + version, "old": "none", "authorizer": "true",
			}, created.GetAnnotations(), kind.kind)
			updated, err := client.Patch(t.Context(), created.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
			require.NoError(t, err)
			require.Equal(t, map[string]string{
				"variable": "2", "parameter": "7", "namespace": s.Namespace, "request": "UPDATE " + version, "old": "1", "authorizer": "true",
			}, updated.GetAnnotations(), kind.kind)
		}
	}
}

// TestPolicyAppliesNoAtomicList shows that a list that is one value, such as the
// toppings of v1alpha1, is not replaced by accident.
func TestPolicyAppliesNoAtomicList(t *testing.T) {
	s := newScope(t)
	s.enforce(map[string]policy{"atomic": mutatingPolicy(s.forPolicies(of(rule(on("CREATE"), "pizzas"), "v1alpha1")),
		applyConfiguration(`Object{spec: Object.spec{toppings: ["basil"]}}`))})
	for _, version := range framework.Versions() {
		_, err := s.pizzas(version).Create(t.Context(), s.pizza(version, version), metav1.CreateOptions{})
		status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonInvalid)
		require.Equal(t, fmt.Sprintf("policy '%[1]s' with binding '%[1]s' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.toppings",
			s.Name("atomic")), status.Message)
	}
}

// TestPolicyMutationsOfSubresources shows that subresources can be mutated, too.
func TestPolicyMutationsOfSubresources(t *testing.T) {
	s := newScope(t)
	inNamespace := func(operation admissionregistrationv1.OperationType, resource string) *admissionregistrationv1.MatchResources {
		constraints := s.forPolicies(rule(on(operation), resource))
		constraints.ObjectSelector = nil
		constraints.NamespaceSelector = s.Selector()
		return constraints
	}
	s.enforce(map[string]policy{
		"status": mutatingPolicy(inNamespace("UPDATE", "pizzas/status"), applyConfiguration(`Object{status: Object.status{replicas: object.status.replicas + 1}, spec: Object.spec{replicas: 99}}`)),
		"scale":  mutatingPolicy(inNamespace("UPDATE", "pizzas/scale"), jsonPatch(`[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas * 2}]`)),
		"bake":   mutatingPolicy(inNamespace("CREATE", "pizzas/bake"), applyConfiguration(`Object{spec: Object.spec{count: 1}}`)),
		"track":  mutatingPolicy(inNamespace("CONNECT", "pizzas/track"), jsonPatch(`[JSONPatch{op: "add", path: "/follow", value: false}]`)),
	})
	for _, version := range framework.Versions() {
		s.createPizza(version, version)
		pizzas := s.pizzas(version)
		patched, err := pizzas.Patch(t.Context(), s.Name(version), types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		require.Equal(t, int64(2), patched.Object["status"].(map[string]any)["replicas"])
		require.Equal(t, int64(1), patched.Object["spec"].(map[string]any)["replicas"], "A write of the status writes no spec.")
		scale, err := pizzas.Patch(t.Context(), s.Name(version), types.MergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{}, "scale")
		require.NoError(t, err)
		require.Equal(t, int64(8), scale.Object["spec"].(map[string]any)["replicas"])
		baked, err := pizzas.Create(t.Context(), s.bake(version, version, 3), metav1.CreateOptions{}, "bake")
		require.NoError(t, err)
		require.Equal(t, int64(1), baked.Object["spec"].(map[string]any)["count"])
		said, err := s.track(framework.Config(cp), version, version, "follow=true&timeoutSeconds=3600")
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(said, "\n"), said)
	}
}

// TestPolicyMutationsMeetPlugins shows that plugins of the tree run again after a policy has
// changed an object, and judge what it has made of it.
func TestPolicyMutationsMeetPlugins(t *testing.T) {
	s := newScope(t)
	policies := map[string]policy{}
	for name, expression := range map[string]string{
		"emptied": `[JSONPatch{op: "replace", path: "/spec/toppings", value: []}]`,
		"unknown": `[JSONPatch{op: "replace", path: "/spec/toppings", value: [Object.spec.toppings{name: "tar"}]}]`,
		"invalid": `[JSONPatch{op: "replace", path: "/spec/replicas", value: -1}]`,
	} {
		policies[name] = mutatingPolicy(s.selectedCase(name, s.forPolicies(of(rule(on("CREATE"), "pizzas"), "v1"))), jsonPatch(expression))
	}
	s.enforce(policies)
	for _, version := range framework.Versions() {
		create := func(name string) (*unstructured.Unstructured, error) {
			return s.pizzas(version).Create(t.Context(), forCase(s.pizzaWith(version, name+"-"+version, "basil"), name), metav1.CreateOptions{})
		}
		created, err := create("emptied")
		require.NoError(t, err)
		require.Equal(t, []string{"mozzarella", "tomato", "salami"}, toppingNames(created))
		_, err = create("unknown")
		require.EqualError(t, err, fmt.Sprintf(`Pizza.restaurant.programming-kubernetes.info %q is invalid: spec.toppings[tar]: Not found: "tar"`, s.Name("unknown-"+version)))
		_, err = create("invalid")
		require.EqualError(t, err, fmt.Sprintf(`Pizza.restaurant.programming-kubernetes.info %q is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0`, s.Name("invalid-"+version)))
		framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
}

// TestPolicyMutationsMeetWebhooks shows that webhooks see what policies have done. Policies
// see again what webhooks have done, if they want to, and so on, just as in kube-apiserver.
func TestPolicyMutationsMeetWebhooks(t *testing.T) {
	const count = `[has(object.metadata.annotations) ?
		JSONPatch{op: "replace", path: "/metadata/annotations/n", value: string(int(object.metadata.annotations.n) + 1)} :
		JSONPatch{op: "add", path: "/metadata/annotations", value: {"n": "1"}}]`
	const never, ifNeeded = admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy
	tests := map[string]struct {
		policy, webhook admissionregistrationv1.ReinvocationPolicyType
		// wantCount is how often the policy has been applied, and wantSeen what of it
		// the calls of the webhook have seen.
		wantCount string
		wantSeen  []string
	}{
		"never-never":       {never, never, "1", []string{"1"}},
		"never-ifneeded":    {never, ifNeeded, "1", []string{"1"}},
		"ifneeded-never":    {ifNeeded, never, "2", []string{"1"}},
		"ifneeded-ifneeded": {ifNeeded, ifNeeded, "2", []string{"1", "2"}},
	}
	s := newScopeWithReferences(t)
	policies := map[string]policy{}
	var webhooks []admissionregistrationv1.MutatingWebhook
	recorders := map[string]*webhook{}
	for name, test := range tests {
		p := mutatingPolicy(s.selectedCase(name, s.forPolicies(rule(on("CREATE"), "pizzas"))), jsonPatch(count))
		p.mutating.ReinvocationPolicy = test.policy
		policies[name] = p
		recorders[name] = s.webhook(patch(`[{"op":"add","path":"/metadata/labels/webhook","value":"yes"}]`))
		w := recorders[name].mutating(onPizzas("CREATE"))
		w.Name, w.ObjectSelector, w.ReinvocationPolicy = name+".example.com", &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID, caseLabel: name}}, &test.webhook
		webhooks = append(webhooks, w)
	}
	s.enforceEverywhere(policies)
	s.registerEverywhere("webhooks", webhooks, nil)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []servedKind{pizzaKind, pizzaKind.reference()} {
				before := len(recorders[name].received())
				created, err := kind.client(s, framework.Config(cp), "v1").Create(t.Context(), forCase(kind.object(s, "v1", name), name), metav1.CreateOptions{})
				require.NoError(t, err)
				require.Equal(t, map[string]string{"n": test.wantCount}, created.GetAnnotations(), kind.kind)
				require.Equal(t, "yes", created.GetLabels()["webhook"])
				var seen []string
				for _, call := range recorders[name].received()[before:] {
					object := &unstructured.Unstructured{}
					require.NoError(t, object.UnmarshalJSON(call.request.Object.Raw))
					seen = append(seen, object.GetAnnotations()["n"])
				}
				require.Equal(t, test.wantSeen, seen, kind.kind)
			}
		})
	}
}

// TestPolicyMutationsAddUp shows that policies for one version add to each other's
// work.
func TestPolicyMutationsAddUp(t *testing.T) {
	for _, policyVersion := range framework.Versions() {
		t.Run(policyVersion, func(t *testing.T) {
			s := newScopeWithReferences(t)
			policies := map[string]policy{}
			for _, label := range []string{"a", "b", "c"} {
				policies[label] = mutatingPolicy(s.forPolicies(of(rule(on("CREATE"), "pizzas"), policyVersion)),
					jsonPatch(`[JSONPatch{op: "add", path: "/metadata/labels/`+label+`", value: "yes"}]`), jsonPatch(`[JSONPatch{op: "add", path: "/metadata/labels/`+label+label+`", value: "yes"}]`))
			}
			s.enforceEverywhere(policies)
			for _, kind := range []servedKind{pizzaKind, pizzaKind.reference()} {
				for _, version := range framework.Versions() {
					created, err := kind.client(s, framework.Config(cp), version).Create(t.Context(), kind.object(s, version, version), metav1.CreateOptions{})
					require.NoError(t, err)
					require.Equal(t, map[string]string{framework.Label: s.ID, "a": "yes", "aa": "yes", "b": "yes", "bb": "yes", "c": "yes", "cc": "yes"}, created.GetLabels(), kind.kind)
				}
			}
		})
	}
}
