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
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// track connects to the progress of a pizza, and returns all of what is said.
func (s *scope) track(config *rest.Config, version, suffix, query string) (string, error) {
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/pizzas/%s/track?%s", restaurant.GroupName, version, s.Namespace, s.Name(suffix), query)
	answer := kubernetes.NewForConfigOrDie(config).Discovery().RESTClient().Get().RequestURI(path).Do(s.t.Context())
	if err := answer.Error(); err != nil {
		return "", err
	}
	said, err := answer.Raw()
	return string(said), err
}

// TestReviewsOfBake compares what webhooks are told about a subresource that is
// created with what kube-apiserver says of one of its own.
func TestReviewsOfBake(t *testing.T) {
	s := newScopeWithReferences(t)
	accounts := rule(on("*"), "serviceaccounts/token")
	accounts.APIGroups = []string{""}
	mutating, validating := s.recorder(), s.recorder()
	m, v := mutating.mutating(rule(on("*"), "pizzas/bake"), accounts), validating.validating(rule(on("*"), "pizzas/bake"), accounts)
	m.ObjectSelector, v.ObjectSelector = nil, nil
	m.MatchConditions, v.MatchConditions = s.forCook(), s.forCook()
	s.registerEverywhere("bake", []admissionregistrationv1.MutatingWebhook{m}, []admissionregistrationv1.ValidatingWebhook{v})

	_, err := framework.Kube(cp).CoreV1().ServiceAccounts(s.Namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: s.Name("a")}}, metav1.CreateOptions{})
	require.NoError(t, err)
	pizza := s.pizza("v1", "a")
	require.NoError(t, unstructured.SetNestedField(pizza.Object, int64(9), "spec", "replicas"))
	_, err = s.pizzas("v1").Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)
	tokenRequest := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": s.Name("a"), "namespace": s.Namespace, "labels": map[string]any{framework.Label: s.ID}},
	}}
	tokens := dynamic.NewForConfigOrDie(s.cook()).Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(s.Namespace)

	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			bakes := pizzaKind.client(s, s.cook(), version)
			// told is what webhooks are told about an order, without what it is about.
			told := func(client dynamic.ResourceInterface, order *unstructured.Unstructured, subresource string, options metav1.CreateOptions) []map[string]any {
				before := []int{len(mutating.ofCook()), len(validating.ofCook())}
				_, err := client.Create(t.Context(), order, options, subresource)
				require.NoError(t, err)
				calls := slices.Concat(mutating.ofCook()[before[0]:], validating.ofCook()[before[1]:])
				require.Len(t, calls, 2)
				var reviews []map[string]any
				for _, call := range calls {
					review := call.comparable(t)
					request := review["request"].(map[string]any)
					for _, field := range []string{"kind", "requestKind", "resource", "requestResource", "subResource", "requestSubResource"} {
						require.NotEmpty(t, request[field])
						request[field] = "is set"
					}
					object := request["object"].(map[string]any)
					require.NotEmpty(t, object["spec"])
					object["apiVersion"], object["kind"] = "is set", "is set"
					delete(object, "spec")
					delete(object, "status")
					// A TokenRequest gets some of its own.
					for _, field := range []string{"uid", "creationTimestamp", "managedFields"} {
						delete(object["metadata"].(map[string]any), field)
					}
					reviews = append(reviews, review)
				}
				return reviews
			}
			for _, options := range []metav1.CreateOptions{{}, {DryRun: []string{metav1.DryRunAll}, FieldManager: kitchen, FieldValidation: "Strict"}} {
				want := told(tokens, tokenRequest, "token", options)
				got := told(bakes, s.bake(version, "a", 2), "bake", options)
				require.Empty(t, cmp.Diff(want, got), "kube-apiserver says something else (-) than this server (+).")
			}
		})
	}
}

// TestMutationsOfBake shows that a webhook changes an order, in every version, and
// can refuse it.
func TestMutationsOfBake(t *testing.T) {
	for _, webhookVersion := range framework.Versions() {
		t.Run(webhookVersion, func(t *testing.T) {
			s := newScope(t)
			halved := s.webhook(patch(`[{"op":"replace","path":"/spec/count","value":2}]`))
			refused := s.webhook(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				var order unstructured.Unstructured
				require.NoError(t, json.Unmarshal(request.Object.Raw, &order))
				if order.GetAnnotations()["burnt"] == "yes" {
					return deny(http.StatusForbidden, "it would burn")(request)
				}
				return allow(request)
			})
			s.registerMutating("mutating", halved.mutating(of(rule(on("CREATE"), "pizzas/bake"), webhookVersion)))
			s.registerValidating("validating", refused.validating(of(rule(on("CREATE"), "pizzas/bake"), webhookVersion)))
			for _, version := range framework.Versions() {
				t.Run(version, func(t *testing.T) {
					pizza := s.pizza(version, version)
					require.NoError(t, unstructured.SetNestedField(pizza.Object, int64(9), "spec", "replicas"))
					_, err := s.pizzas(version).Create(t.Context(), pizza, metav1.CreateOptions{})
					require.NoError(t, err)
					burnt := s.bake(version, version, 4)
					burnt.SetAnnotations(map[string]string{"burnt": "yes"})
					_, err = s.pizzas(version).Create(t.Context(), burnt, metav1.CreateOptions{}, "bake")
					status := framework.RequireStatus(t, err, http.StatusForbidden, "")
					require.Equal(t, `admission webhook "validating.example.com" denied the request: it would burn`, status.Message)

					baked, err := s.pizzas(version).Create(t.Context(), s.bake(version, version, 4), metav1.CreateOptions{}, "bake")
					require.NoError(t, err)
					require.EqualValues(t, 2, baked.Object["spec"].(map[string]any)["count"])
					stored, err := s.pizzas("v1").Get(t.Context(), pizza.GetName(), metav1.GetOptions{})
					require.NoError(t, err)
					require.EqualValues(t, 2, stored.Object["status"].(map[string]any)["replicas"])
				})
			}
		})
	}
}

// TestReviewsOfTrack shows what webhooks are told about connections, and that it is
// the same as kube-apiserver says of its own.
func TestReviewsOfTrack(t *testing.T) {
	s := newScopeWithReferences(t)
	attach := rule(on("*"), "pods/attach")
	attach.APIGroups = []string{""}
	recorder := s.recorder()
	var mutating []admissionregistrationv1.MutatingWebhook
	var validating []admissionregistrationv1.ValidatingWebhook
	for _, version := range framework.Versions() {
		rules := []admissionregistrationv1.RuleWithOperations{of(rule(on("*"), "pizzas/track"), version)}
		if version == "v1" {
			rules = append(rules, attach)
		}
		m, v := recorder.mutating(rules...), recorder.validating(rules...)
		m.Name, v.Name = version+".example.com", version+".example.com"
		m.ClientConfig, v.ClientConfig = recorder.at("/mutating/"+version), recorder.at("/validating/"+version)
		m.ObjectSelector, v.ObjectSelector = nil, nil
		m.MatchConditions, v.MatchConditions = s.forCook(), s.forCook()
		mutating, validating = append(mutating, m), append(validating, v)
	}
	s.registerEverywhere("track", mutating, validating)
	// A pizza that is ready is not followed for long.
	s.createPizza("v1", "a")
	_, err := s.pizzas("v1").Create(t.Context(), s.bake("v1", "a", 1), metav1.CreateOptions{}, "bake")
	require.NoError(t, err)

	byPath := func(t *testing.T, connect func() error) map[string]call {
		t.Helper()
		before := len(recorder.ofCook())
		require.NoError(t, connect())
		calls := map[string]call{}
		for _, call := range recorder.ofCook()[before:] {
			require.NotContains(t, calls, call.http.URL.Path)
			calls[call.http.URL.Path] = call
		}
		return calls
	}
	reference := byPath(t, func() error {
		// There is no such pod, which is found out after admission.
		err := kubernetes.NewForConfigOrDie(s.cook()).CoreV1().RESTClient().Get().Namespace(s.Namespace).Resource("pods").Name(s.Name("a")).SubResource("attach").Do(t.Context()).Error()
		framework.RequireStatus(t, err, http.StatusNotFound, metav1.StatusReasonNotFound)
		return nil
	})
	require.ElementsMatch(t, []string{"/mutating/v1", "/validating/v1"}, slices.Collect(maps.Keys(reference)))
	for _, version := range framework.Versions() {
		for query, options := range map[string]map[string]any{
			"":                             {"timeoutSeconds": float64(50)},
			"follow=true&timeoutSeconds=7": {"follow": true, "timeoutSeconds": float64(7)},
		} {
			t.Run(version+"?"+query, func(t *testing.T) {
				calls := byPath(t, func() error {
					_, err := s.track(s.cook(), version, "a", query)
					return err
				})
				var want []string
				for _, version := range framework.Versions() {
					want = append(want, "/mutating/"+version, "/validating/"+version)
				}
				require.ElementsMatch(t, want, slices.Collect(maps.Keys(calls)))
				for path, call := range calls {
					webhookVersion := path[strings.LastIndex(path, "/")+1:]
					request := call.request
					gvk := func(version string) metav1.GroupVersionKind {
						return metav1.GroupVersionKind{Group: restaurant.GroupName, Version: version, Kind: "PizzaTrackOptions"}
					}
					gvr := func(version string) metav1.GroupVersionResource {
						return metav1.GroupVersionResource{Group: restaurant.GroupName, Version: version, Resource: "pizzas"}
					}
					require.Equal(t, admissionv1.Connect, request.Operation, path)
					require.Equal(t, gvk(webhookVersion), request.Kind, path)
					require.Equal(t, new(gvk(version)), request.RequestKind, path)
					require.Equal(t, gvr(webhookVersion), request.Resource, path)
					require.Equal(t, new(gvr(version)), request.RequestResource, path)
					require.Equal(t, "track", request.SubResource, path)
					require.Equal(t, "track", request.RequestSubResource, path)
					var object map[string]any
					require.NoError(t, json.Unmarshal(request.Object.Raw, &object))
					seen := map[string]any{"kind": "PizzaTrackOptions", "apiVersion": restaurant.GroupName + "/" + webhookVersion}
					maps.Copy(seen, options)
					require.Equal(t, seen, object, path)

					// Of what kube-apiserver says, all that is not about the kinds is the same.
					connection := func(body []byte) map[string]any {
						var review map[string]any
						require.NoError(t, json.Unmarshal(body, &review))
						request := review["request"].(map[string]any)
						for _, field := range []string{"uid", "kind", "requestKind", "resource", "requestResource", "subResource", "requestSubResource", "object"} {
							require.NotEmpty(t, request[field])
							request[field] = "is set"
						}
						return review
					}
					sort, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
					require.Empty(t, cmp.Diff(connection(reference["/"+sort+"/v1"].body), connection(call.body)), path)
				}
			})
		}
	}
}

// TestConnectionsAndWebhooks shows that webhooks refuse and change connections in
// every version, and how these are selected.
func TestConnectionsAndWebhooks(t *testing.T) {
	for _, webhookVersion := range framework.Versions() {
		t.Run(webhookVersion, func(t *testing.T) {
			s := newScope(t)
			onConnect := of(rule(on("CONNECT"), "pizzas/track"), webhookVersion)
			// Of options, which have no labels, only the namespace can be selected.
			briefly := s.webhook(patch(`[{"op":"replace","path":"/timeoutSeconds","value":1}]`)).mutating(onConnect)
			briefly.ObjectSelector, briefly.NamespaceSelector = nil, s.Selector()
			briefly.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "following", Expression: "request.operation == 'CONNECT' && has(object.follow) && object.follow"}}
			secret := s.webhook(deny(http.StatusForbidden, "a secret recipe")).validating(onConnect)
			secret.ObjectSelector, secret.NamespaceSelector = nil, s.Selector()
			secret.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "secret", Expression: "request.name.endsWith('-secret')"}}
			labelled := s.webhook(deny(http.StatusForbidden, "options have no labels")).validating(onConnect)
			labelled.Name, labelled.NamespaceSelector = "labelled.example.com", s.Selector()
			s.registerMutating("mutating", briefly)
			s.registerValidating("validating", secret, labelled)
			for _, suffix := range []string{"open", "secret"} {
				s.createPizza("v1", suffix)
			}
			for _, version := range framework.Versions() {
				t.Run(version, func(t *testing.T) {
					said, err := s.track(framework.Config(cp), version, "open", "")
					require.NoError(t, err)
					require.Equal(t, "0 of 1 baked\n", said)
					said, err = s.track(framework.Config(cp), version, "open", "follow=true&timeoutSeconds=3000")
					require.NoError(t, err)
					require.Equal(t, "0 of 1 baked\ntimed out after 1s\n", said)
					_, err = s.track(framework.Config(cp), version, "secret", "")
					status := framework.RequireStatus(t, err, http.StatusForbidden, "")
					require.Equal(t, `admission webhook "validating.example.com" denied the request: a secret recipe`, status.Message)
				})
			}
		})
	}
}

// TestConnectionsAreNoDryRuns shows that a connection cannot be tried only: with
// side effects or without, a webhook is called for it.
func TestConnectionsAreNoDryRuns(t *testing.T) {
	s := newScope(t)
	recorder := s.recorder()
	w := recorder.validating(rule(on("CONNECT"), "pizzas/track"))
	w.ObjectSelector, w.MatchConditions = nil, s.forCook()
	s.storeConfiguration("Validating", admissionregistrationv1.SideEffectClassSome, w)
	s.createPizza("v1", "a")
	controlplane.Eventually(t, func() error {
		_, err := s.track(s.cook(), "v1", "a", "")
		require.NoError(t, err)
		if len(recorder.ofCook()) == 0 {
			return fmt.Errorf("the webhook %s is not in effect", w.Name)
		}
		return nil
	})
	require.Equal(t, new(false), recorder.ofCook()[0].request.DryRun)

	_, err := s.track(s.cook(), "v1", "a", "dryRun=All")
	status := framework.RequireStatus(t, err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	require.Equal(t, "dryRun is not supported", status.Message)
	require.Len(t, recorder.ofCook(), 1)
}
