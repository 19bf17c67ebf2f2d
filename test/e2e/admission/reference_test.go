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
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// referenceGroup has a custom resource for each of the restaurant's. Webhooks have
// to be told the same about both.
const referenceGroup = "reference.example.com"

// A servedKind is a kind of the restaurant, or a reference.
type servedKind struct {
	group, kind, resource string
	namespaced            bool
}

var (
	pizzaKind   = servedKind{restaurant.GroupName, "Pizza", "pizzas", true}
	toppingKind = servedKind{restaurant.GroupName, "Topping", "toppings", false}
)

// reference is the kind that kube-apiserver serves.
func (k servedKind) reference() servedKind {
	if k.namespaced {
		return servedKind{referenceGroup, "Calzone", "calzones", true}
	}
	return servedKind{referenceGroup, "Sauce", "sauces", false}
}

// asRestaurant makes of what is said of the references what is said of the
// restaurant's kinds.
var asRestaurant = strings.NewReplacer(referenceGroup, restaurant.GroupName,
	"Calzone", "Pizza", "calzones", "pizzas", "Sauce", "Topping", "sauces", "toppings")

// client is for the kind's objects in a version, in the test's namespace.
func (k servedKind) client(s *scope, config *rest.Config, version string) dynamic.ResourceInterface {
	client := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: k.group, Version: version, Resource: k.resource})
	if k.namespaced {
		return client.Namespace(s.Namespace)
	}
	return client
}

// object is what pizza or topping returns, as an object of the kind.
func (k servedKind) object(s *scope, version, suffix string) *unstructured.Unstructured {
	object := s.topping(version, suffix)
	if k.namespaced {
		object = s.pizza(version, suffix)
	}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: k.group, Version: version, Kind: k.kind})
	return object
}

// definition makes kube-apiserver serve a kind. It converts nothing but the name
// of the version.
func (k servedKind) definition() *unstructured.Unstructured {
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	var served []any
	for _, version := range framework.Versions() {
		v := map[string]any{
			"name": version, "served": true, "storage": version == "v1",
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type":       "object",
				"properties": map[string]any{"spec": anything, "status": anything},
			}},
		}
		scope := map[string]any{}
		if k.namespaced {
			scope["status"] = map[string]any{}
			scope["scale"] = map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
		}
		v["subresources"] = scope
		served = append(served, v)
	}
	scope := "Cluster"
	if k.namespaced {
		scope = "Namespaced"
	}
	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": k.group, "scope": scope, "versions": served,
		"names": map[string]any{"kind": k.kind, "plural": k.resource, "singular": strings.ToLower(k.kind), "listKind": k.kind + "List"},
	}}}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(k.resource + "." + k.group)
	return definition
}

var createReferences = sync.OnceValue(func() error {
	definitions := dynamic.NewForConfigOrDie(framework.Config(cp)).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, kind := range []servedKind{pizzaKind, toppingKind} {
		if _, err := definitions.Create(context.Background(), kind.reference().definition(), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
})

// newScopeWithReferences is newScope for a test that compares with the references.
// They stay: each test needs them.
func newScopeWithReferences(t *testing.T) *scope {
	t.Helper()
	s := newScope(t)
	require.NoError(t, createReferences())
	for _, kind := range []servedKind{pizzaKind.reference(), toppingKind.reference()} {
		for _, version := range framework.Versions() {
			controlplane.Eventually(t, func() error {
				_, err := kind.client(s, framework.Config(cp), version).List(t.Context(), metav1.ListOptions{Limit: 1})
				return err
			})
		}
	}
	return s
}

// cook is the client configuration of an admin. kube-apiserver tells this server
// all about that user.
func (s *scope) cook() *rest.Config {
	config := framework.Config(cp)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: s.ID,
		UID:      "uid-of-" + s.ID,
		Groups:   []string{"kitchen", "system:masters"},
		Extra:    map[string][]string{"example.com/shift": {"late", "früh"}, "tables": {"1 & 2"}},
	}
	return config
}

// A recorder is a webhook that allows all requests of the cook. It refuses changes
// by others in the test's namespace, so that nothing comes in between.
func (s *scope) recorder() *webhook {
	s.t.Helper()
	return s.webhook(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if request.UserInfo.Username != s.ID {
			return deny(http.StatusForbidden, "only the cook may do that")(request)
		}
		return allow(request)
	})
}

// forCook restricts a webhook to what the cook does, and what others do in the
// test's namespace.
func (s *scope) forCook() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{
		Name:       "cook",
		Expression: fmt.Sprintf("request.userInfo.username == '%s' || has(request.namespace) && request.namespace == '%s'", s.ID, s.Namespace),
	}}
}

// recordingRule is for all that can happen to a kind and its reference.
func (k servedKind) recordingRule() admissionregistrationv1.RuleWithOperations {
	reference := k.reference()
	all := rule(on("*"), k.resource, k.resource+"/*", reference.resource, reference.resource+"/*")
	all.APIGroups = []string{k.group, reference.group}
	return all
}

// ofCook returns the requests of the cook that the webhook has received.
func (w *webhook) ofCook() []call {
	return slices.DeleteFunc(w.received(), func(c call) bool { return c.request.UserInfo.Username != w.scope.ID })
}

// registerEverywhere registers webhooks of both sorts, and returns when they are
// in effect in kube-apiserver, too.
func (s *scope) registerEverywhere(name string, mutating []admissionregistrationv1.MutatingWebhook, validating []admissionregistrationv1.ValidatingWebhook) {
	s.t.Helper()
	sauce := toppingKind.reference()
	marked := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{markerLabel: name}}
	}
	onSauces := rule(on("CREATE"), sauce.resource)
	onSauces.APIGroups = []string{sauce.group}
	marker := s.webhook(deny(http.StatusForbidden, inEffect))
	mutatingMarker, validatingMarker := marker.mutating(onSauces), marker.validating(onSauces)
	mutatingMarker.Name, validatingMarker.Name = "reference.example.com", "reference.example.com"
	mutatingMarker.ObjectSelector, validatingMarker.ObjectSelector = marked(s.Name(name+"-m")), marked(s.Name(name+"-v"))
	s.registerMutating(name+"-mutating", append(mutating, mutatingMarker)...)
	s.registerValidating(name+"-validating", append(validating, validatingMarker)...)
	for _, suffix := range []string{name + "-m", name + "-v"} {
		object := sauce.object(s, "v1", suffix)
		object.SetLabels(map[string]string{markerLabel: s.Name(suffix)})
		controlplane.Eventually(s.t, func() error {
			_, err := sauce.client(s, framework.Config(cp), "v1").Create(s.t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), inEffect) {
				return nil
			}
			return fmt.Errorf("kube-apiserver does not know the configuration %s: %w", s.Name(suffix), err)
		})
	}
}

// comparable returns an AdmissionReview without what differs from one request to
// the next, in the restaurant's words.
func (c call) comparable(t *testing.T) map[string]any {
	t.Helper()
	var review map[string]any
	require.NoError(t, json.Unmarshal([]byte(asRestaurant.Replace(string(c.body))), &review))
	request := review["request"].(map[string]any)
	require.NotEmpty(t, request["uid"])
	delete(request, "uid")
	for _, field := range []string{"object", "oldObject"} {
		object, _ := request[field].(map[string]any)
		if object == nil {
			continue
		}
		if object["kind"] == pizzaKind.kind && object["status"] == nil {
			// Custom resources begin without one.
			object["status"] = map[string]any{"replicas": float64(0)}
		}
		metadata := object["metadata"].(map[string]any)
		for _, volatile := range []string{"uid", "resourceVersion", "creationTimestamp"} {
			if metadata[volatile] != nil {
				metadata[volatile] = "is set"
			}
		}
		if prefix, _ := metadata["generateName"].(string); prefix != "" && metadata["name"] != nil {
			require.Equal(t, metadata["name"], request["name"])
			metadata["name"], request["name"] = prefix+"is generated", prefix+"is generated"
		}
		managers, _ := metadata["managedFields"].([]any)
		for _, manager := range managers {
			entry := manager.(map[string]any)
			require.NotEmpty(t, entry["fieldsV1"])
			entry["fieldsV1"], entry["time"] = "are set", "is set"
		}
	}
	return review
}
