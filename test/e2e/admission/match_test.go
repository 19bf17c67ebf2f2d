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
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// of restricts a rule to versions.
func of(rule admissionregistrationv1.RuleWithOperations, versions ...string) admissionregistrationv1.RuleWithOperations {
	rule.APIVersions = versions
	return rule
}

// at is a path of a webhook's server.
func (w *webhook) at(path string) admissionregistrationv1.WebhookClientConfig {
	config := w.clientConfig()
	config.URL = new(w.server.URL + path)
	return config
}

// TestMatchPolicy shows that a webhook for one version sees requests for all of
// them, converted. With the policy Exact, it sees only those for its own. Webhooks
// of kube-apiserver's own kinds do the same.
func TestMatchPolicy(t *testing.T) {
	for _, kind := range []servedKind{pizzaKind, toppingKind} {
		t.Run(kind.kind, func(t *testing.T) {
			s := newScopeWithReferences(t)
			recorder := s.recorder()
			var mutating []admissionregistrationv1.MutatingWebhook
			var validating []admissionregistrationv1.ValidatingWebhook
			for _, policy := range []admissionregistrationv1.MatchPolicyType{admissionregistrationv1.Exact, admissionregistrationv1.Equivalent} {
				for _, version := range framework.Versions() {
					m, v := recorder.mutating(of(kind.recordingRule(), version)), recorder.validating(of(kind.recordingRule(), version))
					path := fmt.Sprintf("%s/%s", policy, version)
					m.Name, v.Name = fmt.Sprintf("%s.%s.example.com", version, strings.ToLower(string(policy))), fmt.Sprintf("%s.%s.example.com", version, strings.ToLower(string(policy)))
					m.ClientConfig, v.ClientConfig = recorder.at("/mutating/"+path), recorder.at("/validating/"+path)
					m.MatchPolicy, v.MatchPolicy = &policy, &policy
					m.ObjectSelector, v.ObjectSelector = nil, nil
					m.MatchConditions, v.MatchConditions = s.forCook(), s.forCook()
					mutating, validating = append(mutating, m), append(validating, v)
				}
			}
			s.registerEverywhere("policy", mutating, validating)

			for i, version := range framework.Versions() {
				for j, name := range []string{"create", "merge patch", "delete", "patch status", "patch scale", "bake"} {
					test := reviews[name]
					if test.of != nil && !slices.Contains(test.of, kind) {
						continue
					}
					t.Run(version+"/"+name, func(t *testing.T) {
						// byPath are the calls about a kind by the path at which they arrive.
						byPath := func(kind servedKind) map[string]call {
							r := s.newReviewedRequest(t, kind, version, fmt.Sprintf("%d-%d", i, j), test.existing)
							before := len(recorder.ofCook())
							require.NoError(t, test.send(r))
							calls := map[string]call{}
							for _, call := range recorder.ofCook()[before:] {
								calls[call.http.URL.Path] = call
							}
							return calls
						}
						got := byPath(kind)
						var want []string
						for _, sort := range []string{"mutating", "validating"} {
							want = append(want, fmt.Sprintf("/%s/Exact/%s", sort, version))
							for _, version := range framework.Versions() {
								want = append(want, fmt.Sprintf("/%s/Equivalent/%s", sort, version))
							}
						}
						require.ElementsMatch(t, want, slices.Collect(maps.Keys(got)))
						for path, call := range got {
							webhookVersion := path[strings.LastIndex(path, "/")+1:]
							gvr := func(version string) metav1.GroupVersionResource {
								return metav1.GroupVersionResource{Group: kind.group, Version: version, Resource: kind.resource}
							}
							request := call.request
							require.Equal(t, test.sees(kind, webhookVersion), request.Kind, path)
							require.Equal(t, gvr(webhookVersion), request.Resource, path)
							require.Equal(t, test.subresource, request.SubResource, path)
							require.Equal(t, new(test.sees(kind, version)), request.RequestKind, path)
							require.Equal(t, new(gvr(version)), request.RequestResource, path)
							require.Equal(t, test.subresource, request.RequestSubResource, path)
							for _, object := range []runtime.RawExtension{request.Object, request.OldObject} {
								if object.Raw == nil || test.subresource == "scale" {
									continue
								}
								var sent unstructured.Unstructured
								require.NoError(t, json.Unmarshal(object.Raw, &sent))
								require.Equal(t, kind.group+"/"+webhookVersion, sent.GetAPIVersion(), path)
								if test.subresource == "bake" {
									continue
								}
								require.Equal(t, kind.object(s, webhookVersion, "").Object["spec"].(map[string]any)["toppings"], sent.Object["spec"].(map[string]any)["toppings"], path)
							}
						}
						if test.alone {
							return
						}
						reference := byPath(kind.reference())
						for path, call := range got {
							require.Contains(t, reference, path)
							require.Empty(t, cmp.Diff(reference[path].withoutSpec(t), call.withoutSpec(t)), "kube-apiserver says something else (-) than this server (+) to %s.", path)
						}
					})
				}
			}
		})
	}
}

// withoutSpec is comparable without what a conversion changes.
func (c call) withoutSpec(t *testing.T) map[string]any {
	t.Helper()
	review := c.comparable(t)
	for _, field := range []string{"object", "oldObject"} {
		if object, ok := review["request"].(map[string]any)[field].(map[string]any); ok && object["kind"] != "Scale" {
			delete(object, "spec")
		}
	}
	return review
}

// TestMatchPolicyOfSeveralVersions shows which version a webhook sees that takes
// several.
func TestMatchPolicyOfSeveralVersions(t *testing.T) {
	type rules = []admissionregistrationv1.RuleWithOperations
	tests := map[string]struct {
		rules rules
		// want is what is seen of a request for v1alpha1.
		want string
	}{
		"its own":                             {rules{of(rule(on("CREATE"), "pizzas"), "v1", "v1alpha1")}, "v1alpha1"},
		"its own later":                       {rules{of(rule(on("CREATE"), "pizzas"), "v1"), of(rule(on("CREATE"), "pizzas"), "v1alpha1")}, "v1alpha1"},
		"the preferred":                       {rules{of(rule(on("CREATE"), "pizzas"), "v1beta1", "v1")}, "v1"},
		"of the first rule":                   {rules{of(rule(on("CREATE"), "pizzas"), "v1beta1"), of(rule(on("CREATE"), "pizzas"), "v1")}, "v1beta1"},
		"of the first rule for the operation": {rules{of(rule(on("UPDATE"), "pizzas"), "v1beta1"), of(rule(on("CREATE"), "pizzas"), "v1")}, "v1"},
	}
	s := newScope(t)
	recorders := map[string]*webhook{}
	var validating []admissionregistrationv1.ValidatingWebhook
	for i, name := range slices.Sorted(maps.Keys(tests)) {
		recorders[name] = s.webhook(allow)
		v := recorders[name].validating(tests[name].rules...)
		v.Name = fmt.Sprintf("v%d.example.com", i)
		validating = append(validating, v)
	}
	s.registerValidating("validating", validating...)
	s.createPizza("v1alpha1", "a")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			calls := recorders[name].received()
			require.Len(t, calls, 1)
			require.Equal(t, test.want, calls[0].request.Resource.Version)
			require.Equal(t, "v1alpha1", calls[0].request.RequestResource.Version)
		})
	}
}

// adding is a JSON patch that adds a topping in a version.
func adding(t *testing.T, version, topping string, quantity int) string {
	t.Helper()
	var operations []map[string]any
	for _, value := range framework.Toppings(version, fmt.Sprintf("%s×%d", topping, quantity)) {
		operations = append(operations, map[string]any{"op": "add", "path": "/spec/toppings/-", "value": value})
	}
	encoded, err := json.Marshal(operations)
	require.NoError(t, err)
	return string(encoded)
}

// TestConvertedMutations shows that a webhook's changes in its own version come
// back in the request's.
func TestConvertedMutations(t *testing.T) {
	for _, webhookVersion := range framework.Versions() {
		t.Run(webhookVersion, func(t *testing.T) {
			s := newScope(t)
			m := s.webhook(patch(adding(t, webhookVersion, "basil", 2))).mutating(of(rule(on("CREATE", "UPDATE"), "pizzas"), webhookVersion))
			status := s.webhook(patch(`[{"op":"replace","path":"/status/replicas","value":1}]`)).mutating(of(rule(on("UPDATE"), "pizzas/status"), webhookVersion))
			scale := s.webhook(patch(`[{"op":"replace","path":"/spec/replicas","value":7}]`)).mutating(of(rule(on("UPDATE"), "pizzas/scale"), webhookVersion))
			status.Name, scale.Name = "status.example.com", "scale.example.com"
			// A Scale has no labels.
			scale.ObjectSelector, scale.NamespaceSelector = nil, s.Selector()
			topping := s.webhook(patch(`[{"op":"replace","path":"/spec/cost","value":"5"}]`)).mutating(of(rule(on("CREATE"), "toppings"), webhookVersion))
			topping.Name = "topping.example.com"
			s.registerMutating("mutating", m, status, scale, topping)
			for _, version := range framework.Versions() {
				t.Run(version, func(t *testing.T) {
					pizza := s.pizza(version, version)
					pizza.Object["spec"].(map[string]any)["toppings"] = framework.Toppings(version, "mozzarella×2")
					created, err := s.pizzas(version).Create(t.Context(), pizza, metav1.CreateOptions{})
					require.NoError(t, err)
					require.Equal(t, framework.Toppings(version, "mozzarella×2", "basil×2"), created.Object["spec"].(map[string]any)["toppings"])
					stored, err := s.pizzas("v1").Get(t.Context(), pizza.GetName(), metav1.GetOptions{})
					require.NoError(t, err)
					require.Equal(t, framework.Toppings("v1", "mozzarella×2", "basil×2"), stored.Object["spec"].(map[string]any)["toppings"])

					body, err := json.Marshal(map[string]any{"spec": map[string]any{"toppings": framework.Toppings(version, "tomato")}})
					require.NoError(t, err)
					patched, err := s.pizzas(version).Patch(t.Context(), pizza.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
					require.NoError(t, err)
					require.Equal(t, framework.Toppings(version, "tomato", "basil×2"), patched.Object["spec"].(map[string]any)["toppings"])

					patched, err = s.pizzas(version).Patch(t.Context(), pizza.GetName(), types.MergePatchType, []byte(`{"status":{"replicas":0}}`), metav1.PatchOptions{}, "status")
					require.NoError(t, err)
					require.EqualValues(t, 1, patched.Object["status"].(map[string]any)["replicas"])
					require.Equal(t, framework.Toppings(version, "tomato", "basil×2"), patched.Object["spec"].(map[string]any)["toppings"])

					scaled, err := s.pizzas(version).Patch(t.Context(), pizza.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
					require.NoError(t, err)
					require.EqualValues(t, 7, scaled.Object["spec"].(map[string]any)["replicas"])
					stored, err = s.pizzas("v1").Get(t.Context(), pizza.GetName(), metav1.GetOptions{})
					require.NoError(t, err)
					require.EqualValues(t, 7, stored.Object["spec"].(map[string]any)["replicas"])

					require.Equal(t, "5", s.createTopping(version, version).Object["spec"].(map[string]any)["cost"])
				})
			}
		})
	}
}

// TestMutationsInSeveralVersions shows that webhooks of different versions change
// one object one after the other.
func TestMutationsInSeveralVersions(t *testing.T) {
	for name, order := range map[string][]string{
		"older and older":     {"v1", "v1beta1", "v1alpha1"},
		"younger and younger": {"v1alpha1", "v1beta1", "v1"},
		"back and forth":      {"v1", "v1alpha1", "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScope(t)
			added := []string{"basil", "salami", "tomato"}
			var mutating []admissionregistrationv1.MutatingWebhook
			for i, version := range order {
				m := s.webhook(patch(adding(t, version, added[i], i+1))).mutating(of(rule(on("CREATE"), "pizzas"), version))
				m.Name = fmt.Sprintf("m%d.example.com", i)
				mutating = append(mutating, m)
			}
			s.registerMutating("mutating", mutating...)
			last := s.webhook(allow)
			s.registerValidating("validating", last.validating(rule(on("CREATE"), "pizzas")))
			for _, version := range framework.Versions() {
				want := framework.Toppings(version, "mozzarella", "basil", "salami×2", "tomato×3")
				require.Equal(t, want, s.createPizza(version, version).Object["spec"].(map[string]any)["toppings"], version)
				calls := last.received()
				var seen unstructured.Unstructured
				require.NoError(t, json.Unmarshal(calls[len(calls)-1].request.Object.Raw, &seen))
				require.Equal(t, want, seen.Object["spec"].(map[string]any)["toppings"], version)
			}
		})
	}
}
