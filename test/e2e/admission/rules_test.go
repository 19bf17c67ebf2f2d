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
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// rulesRequests are requests of the cook in the order in which they are sent, each
// as "operation version resource".
var rulesRequests = []struct {
	name string
	send func(t *testing.T, s *scope) error
}{
	{"CREATE v1 pizzas", func(t *testing.T, s *scope) error {
		_, err := pizzaKind.client(s, s.cook(), "v1").Create(t.Context(), s.pizza("v1", "a"), metav1.CreateOptions{})
		return err
	}},
	{"CREATE v1alpha1 pizzas", func(t *testing.T, s *scope) error {
		_, err := pizzaKind.client(s, s.cook(), "v1alpha1").Create(t.Context(), s.pizza("v1alpha1", "b"), metav1.CreateOptions{})
		return err
	}},
	{"UPDATE v1beta1 pizzas", func(t *testing.T, s *scope) error {
		_, err := pizzaKind.client(s, s.cook(), "v1beta1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
		return err
	}},
	{"UPDATE v1 pizzas/status", func(t *testing.T, s *scope) error {
		_, err := pizzaKind.client(s, s.cook(), "v1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status")
		return err
	}},
	{"UPDATE v1 pizzas/scale", func(t *testing.T, s *scope) error {
		_, err := pizzaKind.client(s, s.cook(), "v1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
		return err
	}},
	{"CREATE v1beta1 pizzas/bake", func(t *testing.T, s *scope) error {
		_, err := pizzaKind.client(s, s.cook(), "v1beta1").Create(t.Context(), s.bake("v1beta1", "a", 1), metav1.CreateOptions{}, "bake")
		return err
	}},
	{"CONNECT v1 pizzas/track", func(_ *testing.T, s *scope) error {
		_, err := s.track(s.cook(), "v1", "a", "")
		return err
	}},
	{"DELETE v1 pizzas", func(t *testing.T, s *scope) error {
		return pizzaKind.client(s, s.cook(), "v1").Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{})
	}},
	{"DELETE v1alpha1 pizzas", func(t *testing.T, s *scope) error {
		return pizzaKind.client(s, s.cook(), "v1alpha1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	}},
	{"CREATE v1 toppings", func(t *testing.T, s *scope) error {
		_, err := toppingKind.client(s, s.cook(), "v1").Create(t.Context(), s.topping("v1", "a"), metav1.CreateOptions{})
		return err
	}},
	{"UPDATE v1beta1 toppings", func(t *testing.T, s *scope) error {
		_, err := toppingKind.client(s, s.cook(), "v1beta1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(`{"spec":{"cost":"2"}}`), metav1.PatchOptions{})
		return err
	}},
	{"DELETE v1 toppings", func(t *testing.T, s *scope) error {
		return toppingKind.client(s, s.cook(), "v1").Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{})
	}},
}

// TestRules shows which requests the rules of a webhook are for.
func TestRules(t *testing.T) {
	type rules = []admissionregistrationv1.RuleWithOperations
	ofGroups := func(groups ...string) admissionregistrationv1.RuleWithOperations {
		r := rule(on("CREATE"), "*")
		r.APIGroups = groups
		return r
	}
	ofVersions := func(versions ...string) admissionregistrationv1.RuleWithOperations {
		r := rule(on("*"), "*/*")
		r.APIVersions = versions
		return r
	}
	inScope := func(scope admissionregistrationv1.ScopeType) admissionregistrationv1.RuleWithOperations {
		r := rule(on("CREATE", "UPDATE"), "*/*")
		r.Scope = &scope
		return r
	}
	var everything []string
	for _, request := range rulesRequests {
		everything = append(everything, request.name)
	}
	tests := map[string]struct {
		rules rules
		want  []string
	}{
		"operation CREATE":  {rules{rule(on("CREATE"), "*/*")}, []string{"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "CREATE v1beta1 pizzas/bake", "CREATE v1 toppings"}},
		"operation UPDATE":  {rules{rule(on("UPDATE"), "*/*")}, []string{"UPDATE v1beta1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale", "UPDATE v1beta1 toppings"}},
		"operation DELETE":  {rules{rule(on("DELETE"), "*/*")}, []string{"DELETE v1 pizzas", "DELETE v1alpha1 pizzas", "DELETE v1 toppings"}},
		"operation CONNECT": {rules{rule(on("CONNECT"), "*/*")}, []string{"CONNECT v1 pizzas/track"}},
		"operation *": {rules{rule(on("*"), "pizzas")}, []string{
			"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "UPDATE v1beta1 pizzas", "DELETE v1 pizzas", "DELETE v1alpha1 pizzas",
		}},
		"operation * on everything": {rules{rule(on("*"), "*/*")}, everything},
		"operations":                {rules{rule(on("CREATE", "DELETE"), "toppings")}, []string{"CREATE v1 toppings", "DELETE v1 toppings"}},

		"group":         {rules{ofGroups(restaurant.GroupName)}, []string{"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "CREATE v1 toppings"}},
		"group *":       {rules{ofGroups("*")}, []string{"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "CREATE v1 toppings"}},
		"groups":        {rules{ofGroups("apps", restaurant.GroupName)}, []string{"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "CREATE v1 toppings"}},
		"another group": {rules{ofGroups("apps")}, nil},
		"core group":    {rules{ofGroups("")}, nil},

		"version": {rules{ofVersions("v1")}, []string{
			"CREATE v1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale", "CONNECT v1 pizzas/track", "DELETE v1 pizzas", "CREATE v1 toppings", "DELETE v1 toppings",
		}},
		"versions":        {rules{ofVersions("v1alpha1", "v1beta1")}, []string{"CREATE v1alpha1 pizzas", "UPDATE v1beta1 pizzas", "CREATE v1beta1 pizzas/bake", "DELETE v1alpha1 pizzas", "UPDATE v1beta1 toppings"}},
		"another version": {rules{ofVersions("v2")}, nil},

		"resource":             {rules{rule(on("CREATE", "UPDATE"), "pizzas")}, []string{"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "UPDATE v1beta1 pizzas"}},
		"resource *":           {rules{rule(on("UPDATE"), "*")}, []string{"UPDATE v1beta1 pizzas", "UPDATE v1beta1 toppings"}},
		"resource */*":         {rules{rule(on("UPDATE"), "*/*")}, []string{"UPDATE v1beta1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale", "UPDATE v1beta1 toppings"}},
		"resource pizzas/*":    {rules{rule(on("UPDATE"), "pizzas/*")}, []string{"UPDATE v1beta1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale"}},
		"resource */status":    {rules{rule(on("*"), "*/status")}, []string{"UPDATE v1 pizzas/status"}},
		"resource */scale":     {rules{rule(on("*"), "*/scale")}, []string{"UPDATE v1 pizzas/scale"}},
		"resource pizzas/bake": {rules{rule(on("*"), "pizzas/bake")}, []string{"CREATE v1beta1 pizzas/bake"}},
		"resource */track":     {rules{rule(on("*"), "*/track")}, []string{"CONNECT v1 pizzas/track"}},
		"resource of toppings": {rules{rule(on("*"), "toppings/status", "toppings/scale")}, nil},
		"resources":            {rules{rule(on("UPDATE"), "pizzas/scale", "toppings")}, []string{"UPDATE v1 pizzas/scale", "UPDATE v1beta1 toppings"}},

		"scope Namespaced": {rules{inScope("Namespaced")}, []string{
			"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "UPDATE v1beta1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale", "CREATE v1beta1 pizzas/bake",
		}},
		"scope Cluster": {rules{inScope("Cluster")}, []string{"CREATE v1 toppings", "UPDATE v1beta1 toppings"}},
		"scope *": {rules{inScope("*")}, []string{
			"CREATE v1 pizzas", "CREATE v1alpha1 pizzas", "UPDATE v1beta1 pizzas", "UPDATE v1 pizzas/status", "UPDATE v1 pizzas/scale", "CREATE v1beta1 pizzas/bake", "CREATE v1 toppings", "UPDATE v1beta1 toppings",
		}},

		"several rules": {rules{rule(on("DELETE"), "toppings"), rule(on("UPDATE"), "pizzas/status"), rule(on("*"), "*/status")}, []string{"UPDATE v1 pizzas/status", "DELETE v1 toppings"}},
	}

	s := newScope(t)
	recorder := s.recorder()
	var mutating []admissionregistrationv1.MutatingWebhook
	var validating []admissionregistrationv1.ValidatingWebhook
	names := slices.Sorted(maps.Keys(tests))
	for i, name := range names {
		m, v := recorder.mutating(tests[name].rules...), recorder.validating(tests[name].rules...)
		m.Name, v.Name = fmt.Sprintf("m%d.example.com", i), fmt.Sprintf("v%d.example.com", i)
		m.ClientConfig.URL, v.ClientConfig.URL = ptr.To(recorder.server.URL+"/mutating/"+fmt.Sprint(i)), ptr.To(recorder.server.URL+"/validating/"+fmt.Sprint(i))
		m.ObjectSelector, v.ObjectSelector = nil, nil
		m.MatchConditions, v.MatchConditions = s.forCook(), s.forCook()
		m.MatchPolicy, v.MatchPolicy = ptr.To(admissionregistrationv1.Exact), ptr.To(admissionregistrationv1.Exact)
		mutating, validating = append(mutating, m), append(validating, v)
	}
	s.registerMutating("mutating", mutating...)
	s.registerValidating("validating", validating...)

	// got are the requests by the path at which they have arrived.
	got := map[string][]string{}
	seen := 0
	for _, request := range rulesRequests {
		require.NoError(t, request.send(t, s), request.name)
		calls := recorder.ofCook()
		for _, call := range calls[seen:] {
			r := call.request
			require.Equal(t, request.name, strings.TrimSuffix(fmt.Sprintf("%s %s %s/%s", r.Operation, r.Resource.Version, r.Resource.Resource, r.SubResource), "/"))
			path := call.http.URL.Path
			// A request that begins with a stale object is tried again, with webhooks.
			got[path] = slices.Compact(append(got[path], request.name))
		}
		seen = len(calls)
	}
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tests[name].want, got["/mutating/"+fmt.Sprint(i)])
			require.Equal(t, tests[name].want, got["/validating/"+fmt.Sprint(i)])
		})
	}
}

// configurations is a client for "Validating" or "Mutating" webhook configurations.
func configurations(sort string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(framework.Config(cp)).Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(strings.ToLower(sort) + "webhookconfigurations"))
}

// TestChangesOfConfigurations shows that configurations that come, change and go
// take effect within seconds, in the server that runs.
func TestChangesOfConfigurations(t *testing.T) {
	const seconds = 10 * time.Second
	for _, sort := range []string{"Validating", "Mutating"} {
		t.Run(strings.ToLower(sort), func(t *testing.T) {
			s := newScope(t)
			process := cp.APIServer.PID()
			client := configurations(sort)
			remove := func(ctx context.Context) error { return client.Delete(ctx, s.ID, metav1.DeleteOptions{}) }
			s.Cleanup(remove)
			pizza := s.createPizza("v1", "existing")
			denying := func(message string) admissionregistrationv1.ValidatingWebhook {
				webhook := s.webhook(deny(http.StatusForbidden, message)).validating(rule(on("CREATE"), "pizzas"))
				webhook.Name = message + ".example.com"
				return webhook
			}
			first, second, third := denying("first"), denying("second"), denying("third")
			moved := first
			moved.ClientConfig = second.ClientConfig
			onUpdate := first
			onUpdate.Rules = []admissionregistrationv1.RuleWithOperations{rule(on("UPDATE"), "pizzas")}
			ofOthers := first
			ofOthers.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"of": "others"}}
			conditional := first
			conditional.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
			for _, step := range []struct {
				name     string
				webhooks []admissionregistrationv1.ValidatingWebhook
				// wantCreate and wantUpdate are parts of the refusals, if any.
				wantCreate, wantUpdate string
			}{
				{"created", []admissionregistrationv1.ValidatingWebhook{first}, `"first.example.com" denied the request: first`, ""},
				{"moved", []admissionregistrationv1.ValidatingWebhook{moved}, `"first.example.com" denied the request: second`, ""},
				{"other rules", []admissionregistrationv1.ValidatingWebhook{onUpdate}, "", `"first.example.com" denied the request: first`},
				{"another selector", []admissionregistrationv1.ValidatingWebhook{ofOthers}, "", ""},
				{"another webhook", []admissionregistrationv1.ValidatingWebhook{ofOthers, third}, `"third.example.com" denied the request: third`, ""},
				{"other conditions", []admissionregistrationv1.ValidatingWebhook{conditional}, "", ""},
				{"without conditions", []admissionregistrationv1.ValidatingWebhook{first}, `"first.example.com" denied the request: first`, ""},
				{"deleted", nil, "", ""},
				{"created again", []admissionregistrationv1.ValidatingWebhook{second}, `"second.example.com" denied the request: second`, ""},
				{"deleted again", nil, "", ""},
			} {
				if step.webhooks == nil {
					require.NoError(t, remove(t.Context()))
				} else {
					// Both sorts have the fields that are used here.
					content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: step.webhooks})
					require.NoError(t, err)
					configuration := &unstructured.Unstructured{Object: content}
					configuration.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(sort + "WebhookConfiguration"))
					configuration.SetName(s.ID)
					_, err = client.Apply(t.Context(), s.ID, configuration, metav1.ApplyOptions{FieldManager: "test"})
					require.NoError(t, err, step.name)
				}
				require.EventuallyWithT(t, func(t *assert.CollectT) {
					_, err := s.pizzas("v1").Create(s.t.Context(), s.pizza("v1", "new"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					assertRefusal(t, step.wantCreate, err)
					_, err = s.pizzas("v1").Patch(s.t.Context(), pizza.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
					assertRefusal(t, step.wantUpdate, err)
				}, seconds, 50*time.Millisecond, step.name)
			}
			require.Equal(t, process, cp.APIServer.PID(), "The server has been started again.")
		})
	}
}

// assertRefusal asserts that an error is the refusal that is wanted, if any.
func assertRefusal(t assert.TestingT, want string, err error) {
	if want == "" {
		assert.NoError(t, err)
		return
	}
	if assert.Error(t, err) {
		assert.Contains(t, err.Error(), want)
	}
}
