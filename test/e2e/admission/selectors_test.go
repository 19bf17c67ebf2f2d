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

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestObjectSelector shows that a webhook is called for what it selects before or
// after the request.
func TestObjectSelector(t *testing.T) {
	tests := map[string]struct {
		operation admissionregistrationv1.OperationType
		// before and after say whether the object has the label.
		before, after bool
		subresource   string
		called        bool
	}{
		"create":                {operation: "CREATE", after: true, called: true},
		"create another":        {operation: "CREATE"},
		"update":                {operation: "UPDATE", before: true, after: true, called: true},
		"update that adds":      {operation: "UPDATE", after: true, called: true},
		"update that removes":   {operation: "UPDATE", before: true, called: true},
		"update another":        {operation: "UPDATE"},
		"update status":         {operation: "UPDATE", before: true, after: true, subresource: "status", called: true},
		"update another status": {operation: "UPDATE", subresource: "status"},
		// A Scale has no labels.
		"update scale":   {operation: "UPDATE", before: true, after: true, subresource: "scale"},
		"delete":         {operation: "DELETE", before: true, called: true},
		"delete another": {operation: "DELETE"},
	}
	for _, kind := range []servedKind{pizzaKind, toppingKind} {
		t.Run(kind.kind, func(t *testing.T) {
			s := newScope(t)
			recorder := s.webhook(allow)
			m, v := recorder.mutating(kind.recordingRule()), recorder.validating(kind.recordingRule())
			m.ClientConfig, v.ClientConfig = recorder.at("/mutating"), recorder.at("/validating")
			// The test's own label is on all objects, this one is not.
			selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "reviewed-by", Operator: metav1.LabelSelectorOpIn, Values: []string{s.ID}}}}
			m.ObjectSelector, v.ObjectSelector = selector, selector
			s.registerMutating("mutating", m)
			s.registerValidating("validating", v)
			for i, name := range slices.Sorted(maps.Keys(tests)) {
				test := tests[name]
				if test.subresource != "" && kind != pizzaKind {
					continue
				}
				for _, version := range framework.Versions() {
					t.Run(name+"/"+version, func(t *testing.T) {
						client := kind.client(s, framework.Config(cp), version)
						object := kind.object(s, version, fmt.Sprintf("%d-%s", i, version))
						labelled := func(has bool) map[string]string {
							if has {
								return map[string]string{"reviewed-by": s.ID}
							}
							return nil
						}
						if test.operation != admissionregistrationv1.Create {
							object.SetLabels(labelled(test.before))
							_, err := client.Create(t.Context(), object, metav1.CreateOptions{})
							require.NoError(t, err)
						}
						if test.operation != admissionregistrationv1.Delete && !kind.namespaced {
							s.Cleanup(func(ctx context.Context) error { return client.Delete(ctx, object.GetName(), metav1.DeleteOptions{}) })
						}
						before := len(recorder.received())
						var err error
						switch {
						case test.operation == admissionregistrationv1.Create:
							object.SetLabels(labelled(test.after))
							_, err = client.Create(t.Context(), object, metav1.CreateOptions{})
						case test.operation == admissionregistrationv1.Delete:
							err = client.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{})
						case test.subresource == "status":
							_, err = client.Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, test.subresource)
						case test.subresource == "scale":
							_, err = client.Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, test.subresource)
						default:
							label := "null"
							if test.after {
								label = `"` + s.ID + `"`
							}
							_, err = client.Patch(t.Context(), object.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed":"yes"},"labels":{"reviewed-by":`+label+`}}}`), metav1.PatchOptions{})
						}
						require.NoError(t, err)
						called := map[string]bool{}
						for _, call := range recorder.received()[before:] {
							// The controller writes the status at any time.
							r := call.request
							if r.Operation == admissionv1.Operation(test.operation) && r.SubResource == test.subresource && r.Name == object.GetName() && !strings.HasPrefix(r.UserInfo.Username, "system:") {
								called[call.http.URL.Path] = true
							}
						}
						require.Equal(t, test.called, called["/mutating"])
						require.Equal(t, test.called, called["/validating"])
					})
				}
			}
		})
	}
}

// TestObjectSelectorAfterMutation shows that a webhook selects what webhooks before
// it have made of an object.
func TestObjectSelectorAfterMutation(t *testing.T) {
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newScope(t)
			labeller := s.webhook(patch(`[{"op":"add","path":"/metadata/labels/style","value":"napoletana"}]`)).mutating(of(rule(on("CREATE"), "pizzas"), "v1alpha1"))
			later, last := s.webhook(allow), s.webhook(allow)
			m, v := later.mutating(rule(on("CREATE"), "pizzas")), last.validating(rule(on("CREATE"), "pizzas"))
			m.Name = "later.example.com"
			m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID, "style": "napoletana"}}
			v.ObjectSelector = m.ObjectSelector
			s.registerMutating("mutating", labeller, m)
			s.registerValidating("validating", v)
			s.createPizza(version, "a")
			require.Len(t, later.received(), 1)
			require.Len(t, last.received(), 1)
		})
	}
}

// TestDeleteCollectionSelects shows that each deleted object is selected by itself.
func TestDeleteCollectionSelects(t *testing.T) {
	s := newScope(t)
	w := s.webhook(deny(http.StatusForbidden, "keep it")).validating(rule(on("DELETE"), "pizzas"))
	w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID, "keep": "yes"}}
	s.registerValidating("validating", w)
	for _, name := range []string{"a", "b", "c"} {
		pizza := s.pizza("v1", name)
		if name == "b" {
			pizza.SetLabels(map[string]string{framework.Label: s.ID, "keep": "yes"})
		}
		_, err := s.pizzas("v1").Create(t.Context(), pizza, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	err := s.pizzas("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	status := framework.RequireStatus(t, err, http.StatusForbidden, "")
	require.Equal(t, `admission webhook "validating.example.com" denied the request: keep it`, status.Message)
	err = s.pizzas("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep!=yes"})
	require.NoError(t, err)
	left, err := s.pizzas("v1").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, left.Items, 1)
	require.Equal(t, s.Name("b"), left.Items[0].GetName())
}

// TestNamespaceSelector shows which namespaces webhooks are called for, and that
// changes of a namespace's labels take effect.
func TestNamespaceSelector(t *testing.T) {
	s := newScope(t)
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		// This namespace only, whatever else is selected.
		return &metav1.LabelSelector{MatchLabels: s.Labels(), MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	selectors := map[string]*metav1.LabelSelector{
		"by label":    {MatchLabels: map[string]string{framework.Label: s.ID, "kitchen": "open"}},
		"in":          expression("kitchen", metav1.LabelSelectorOpIn, "open", "busy"),
		"not in":      expression("kitchen", metav1.LabelSelectorOpNotIn, "open"),
		"exists":      expression("kitchen", metav1.LabelSelectorOpExists),
		"exists not":  expression("kitchen", metav1.LabelSelectorOpDoesNotExist),
		"by name":     {MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}},
		"not by name": expression(corev1.LabelMetadataName, metav1.LabelSelectorOpNotIn, s.Namespace),
	}
	recorder := s.webhook(allow)
	var validating []admissionregistrationv1.ValidatingWebhook
	var mutating []admissionregistrationv1.MutatingWebhook
	names := slices.Sorted(maps.Keys(selectors))
	for i, name := range names {
		m, v := recorder.mutating(rule(on("CREATE"), "pizzas")), recorder.validating(rule(on("CREATE"), "pizzas"))
		m.Name, v.Name = fmt.Sprintf("w%d.example.com", i), fmt.Sprintf("w%d.example.com", i)
		path := strings.ReplaceAll(name, " ", "-")
		m.ClientConfig, v.ClientConfig = recorder.at("/mutating/"+path), recorder.at("/validating/"+path)
		m.NamespaceSelector, v.NamespaceSelector = selectors[name], selectors[name]
		m.ObjectSelector, v.ObjectSelector = nil, nil
		mutating, validating = append(mutating, m), append(validating, v)
	}
	s.registerMutating("mutating", mutating...)
	s.registerValidating("validating", validating...)

	for _, step := range []struct {
		label string
		want  []string
	}{
		{`null`, []string{"by-name", "exists-not", "not-in"}},
		{`"open"`, []string{"by-label", "by-name", "exists", "in"}},
		{`"busy"`, []string{"by-name", "exists", "in", "not-in"}},
		{`"closed"`, []string{"by-name", "exists", "not-in"}},
		{`null`, []string{"by-name", "exists-not", "not-in"}},
	} {
		_, err := framework.Kube(cp).CoreV1().Namespaces().Patch(t.Context(), s.Namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"kitchen":`+step.label+`}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		for _, version := range framework.Versions() {
			controlplane.Eventually(t, func() error {
				before := len(recorder.received())
				_, err := s.pizzas(version).Create(t.Context(), s.pizza(version, "a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				require.NoError(t, err)
				var got, want []string
				for _, call := range recorder.received()[before:] {
					got = append(got, call.http.URL.Path)
				}
				for _, name := range step.want {
					want = append(want, "/mutating/"+name, "/validating/"+name)
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					return fmt.Errorf("with the label kitchen=%s, %s are called, want %s", step.label, got, want)
				}
				return nil
			})
		}
	}
}

// TestNamespaceSelectorInAllRequests shows that requests in a namespace are
// selected by the namespace, and requests outside of any always are.
func TestNamespaceSelectorInAllRequests(t *testing.T) {
	framework.Long(t, "every verb and subresource")
	s := newScope(t)
	// in is for the test's namespace, out for no namespace at all.
	recorder := s.recorder()
	in, out := recorder.validating(pizzaKind.recordingRule(), toppingKind.recordingRule()), recorder.validating(pizzaKind.recordingRule(), toppingKind.recordingRule())
	in.Name, out.Name = "in.example.com", "out.example.com"
	in.ClientConfig, out.ClientConfig = recorder.at("/in"), recorder.at("/out")
	in.NamespaceSelector, out.NamespaceSelector = s.Selector(), &metav1.LabelSelector{MatchLabels: map[string]string{"no": "namespace"}}
	in.ObjectSelector, out.ObjectSelector = nil, nil
	in.MatchConditions, out.MatchConditions = s.forCook(), s.forCook()
	s.registerValidating("validating", in, out)
	for kind, want := range map[servedKind][]string{pizzaKind: {"/in"}, toppingKind: {"/in", "/out"}} {
		for _, version := range framework.Versions() {
			for i, name := range slices.Sorted(maps.Keys(reviews)) {
				test := reviews[name]
				if test.of != nil && !slices.Contains(test.of, kind) {
					continue
				}
				t.Run(kind.kind+"/"+version+"/"+name, func(t *testing.T) {
					r := s.newReviewedRequest(t, kind, version, fmt.Sprintf("%s-%d", version, i), test.existing)
					before := len(recorder.ofCook())
					require.NoError(t, test.send(r))
					var got []string
					for _, call := range recorder.ofCook()[before:] {
						got = append(got, call.http.URL.Path)
					}
					slices.Sort(got)
					require.Equal(t, want, slices.Compact(got))
				})
			}
		}
	}
}

// TestNamespaceSelectorOfNewNamespaces shows that the labels of a namespace count
// from its first moment on, which the server has not heard of it yet.
func TestNamespaceSelectorOfNewNamespaces(t *testing.T) {
	s := newScope(t)
	closed := map[string]string{"kitchen-of": s.ID}
	w := s.webhook(deny(http.StatusForbidden, "closed")).validating(rule(on("CREATE"), "pizzas"))
	w.NamespaceSelector, w.ObjectSelector = &metav1.LabelSelector{MatchLabels: closed}, nil
	s.registerValidating("validating", w)
	namespaces := framework.Kube(cp).CoreV1().Namespaces()
	for i := range 3 {
		created, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name(fmt.Sprint(i)), Labels: closed}}, metav1.CreateOptions{})
		require.NoError(t, err)
		s.Cleanup(func(ctx context.Context) error { return namespaces.Delete(ctx, created.Name, metav1.DeleteOptions{}) })
		pizza := s.pizza("v1", "a")
		pizza.SetNamespace(created.Name)
		_, err = dynamic.NewForConfigOrDie(framework.Config(cp)).Resource(resource("v1", "pizzas")).Namespace(created.Name).Create(t.Context(), pizza, metav1.CreateOptions{})
		status := framework.RequireStatus(t, err, http.StatusForbidden, "")
		require.Equal(t, `admission webhook "validating.example.com" denied the request: closed`, status.Message)
	}
}
