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
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// describeToppings lists the toppings of a pizza and, each with a plus, the labels
// that webhooks have given it.
func describeToppings(t *testing.T, object map[string]any) string {
	t.Helper()
	toppings, _, err := unstructured.NestedSlice(object, "spec", "toppings")
	require.NoError(t, err)
	var parts []string
	for _, topping := range toppings {
		if fields, ok := topping.(map[string]any); ok {
			topping = fields["name"]
		}
		parts = append(parts, topping.(string))
	}
	labels, _, err := unstructured.NestedStringMap(object, "metadata", "labels")
	require.NoError(t, err)
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if label != framework.Label && label != caseLabel {
			parts = append(parts, "+"+label)
		}
	}
	return strings.Join(parts, " ")
}

// TestReinvocation shows when mutating webhooks are called a second time, in the
// scenarios of KEP-492. The mutation in the tree is that of PizzaToppings.
func TestReinvocation(t *testing.T) {
	s := newScope(t)
	const (
		never    = admissionregistrationv1.NeverReinvocationPolicy
		ifNeeded = admissionregistrationv1.IfNeededReinvocationPolicy
		empty    = `[{"op":"replace","path":"/spec/toppings","value":[]}]`
		defaults = "mozzarella tomato salami"
	)
	label := func(name string) string { return `[{"op":"add","path":"/metadata/labels/` + name + `","value":""}]` }
	type called struct{ webhook, sees, patch string }
	scenarios := map[string]struct {
		// policies are those of the webhooks a, b and so on, in this order.
		policies []admissionregistrationv1.ReinvocationPolicyType
		// calls are made for a pizza without toppings.
		calls []called
		// want is the pizza, or a cause of the refusal.
		want string
	}{
		"no webhook mutates": {
			[]admissionregistrationv1.ReinvocationPolicyType{ifNeeded},
			[]called{{"a", defaults, ``}},
			defaults,
		},
		"only the tree again": {
			[]admissionregistrationv1.ReinvocationPolicyType{ifNeeded},
			[]called{{"a", defaults, label("a")}},
			defaults + " +a",
		},
		"only the tree mutates again": {
			[]admissionregistrationv1.ReinvocationPolicyType{never},
			[]called{{"a", defaults, empty}},
			defaults,
		},
		"full": {
			[]admissionregistrationv1.ReinvocationPolicyType{ifNeeded},
			[]called{{"a", defaults, empty}, {"a", defaults, label("a")}},
			defaults + " +a",
		},
		"full but not for ever": {
			[]admissionregistrationv1.ReinvocationPolicyType{ifNeeded},
			[]called{{"a", defaults, empty}, {"a", defaults, empty}},
			"spec.toppings: Required value",
		},
		"partial": {
			[]admissionregistrationv1.ReinvocationPolicyType{ifNeeded, ifNeeded},
			[]called{{"a", defaults, label("a")}, {"b", defaults + " +a", label("b")}, {"a", defaults + " +a +b", ``}},
			defaults + " +a +b",
		},
		"full of two": {
			[]admissionregistrationv1.ReinvocationPolicyType{ifNeeded, ifNeeded},
			[]called{
				{"a", defaults, label("a")}, {"b", defaults + " +a", label("b")},
				{"a", defaults + " +a +b", label("aa")}, {"b", defaults + " +a +aa +b", label("bb")},
			},
			defaults + " +a +aa +b +bb",
		},
		"one that empties what another sees again": {
			[]admissionregistrationv1.ReinvocationPolicyType{ifNeeded, never},
			[]called{{"a", defaults, ``}, {"b", defaults, empty}, {"a", defaults, label("a")}},
			defaults + " +a",
		},
		"never": {
			[]admissionregistrationv1.ReinvocationPolicyType{never, never},
			[]called{{"a", defaults, label("a")}, {"b", defaults + " +a", label("b")}},
			defaults + " +a +b",
		},
	}

	// One request is sent at a time: the script is that of its scenario.
	var mu sync.Mutex
	var script, calls []called
	server := s.respond(func(path string, request *admissionv1.AdmissionRequest) string {
		mu.Lock()
		defer mu.Unlock()
		var object map[string]any
		if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
			return err.Error()
		}
		now := called{webhook: path[strings.LastIndex(path, "/")+1:], sees: describeToppings(t, object)}
		if len(calls) < len(script) {
			now.patch = script[len(calls)].patch
		}
		calls = append(calls, now)
		if now.patch == "" {
			return review(`"allowed":true`)
		}
		return patched(now.patch)
	})
	var webhooks []admissionregistrationv1.MutatingWebhook
	for name, scenario := range scenarios {
		for i, policy := range scenario.policies {
			id := string(rune('a' + i))
			webhook := s.webhook(allow).mutating(rule(on("CREATE"), "pizzas"))
			webhook.Name = id + "." + slug(name) + ".example.com"
			webhook.ClientConfig = at(server, slug(name)+"/"+id)
			webhook.ReinvocationPolicy = &policy
			webhook.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID, caseLabel: slug(name)}}
			webhooks = append(webhooks, webhook)
		}
	}
	s.registerMutating("reinvocation", webhooks...)

	for name, scenario := range scenarios {
		for _, version := range framework.Versions() {
			t.Run(name+"/"+version, func(t *testing.T) {
				mu.Lock()
				script, calls = scenario.calls, nil
				mu.Unlock()
				pizza := forCase(s.pizza(version, slug(name)+"-"+version), slug(name))
				unstructured.RemoveNestedField(pizza.Object, "spec", "toppings")
				created, err := s.pizzas(version).Create(t.Context(), pizza, metav1.CreateOptions{})
				require.Equal(t, scenario.calls, calls)
				if err == nil {
					require.Equal(t, scenario.want, describeToppings(t, created.Object))
					return
				}
				cause := framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid).Details.Causes[0]
				require.Equal(t, scenario.want, cause.Field+": "+cause.Message)
			})
		}
	}
}
