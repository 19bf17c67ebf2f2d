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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// forPolicies are match constraints with rules, for the test's objects and their
// references.
func (s *scope) forPolicies(rules ...admissionregistrationv1.RuleWithOperations) *admissionregistrationv1.MatchResources {
	constraints := &admissionregistrationv1.MatchResources{ObjectSelector: s.Selector()}
	for _, r := range rules {
		constraints.ResourceRules = append(constraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
		reference := r.DeepCopy()
		reference.APIGroups = []string{referenceGroup}
		for i, name := range r.Resources {
			reference.Resources[i] = strings.NewReplacer("pizzas", "calzones", "toppings", "sauces").Replace(name)
		}
		constraints.ResourceRules = append(constraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: *reference})
	}
	return constraints
}

// policySlug makes of the name of a case what can be a part of the name of a policy.
func policySlug(name string) string {
	return strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(strings.ToLower(name))
}

// A policy is a validating or a mutating one, with its bindings.
type policy struct {
	validating         *admissionregistrationv1.ValidatingAdmissionPolicySpec
	validatingBindings []admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
	mutating           *admissionregistrationv1.MutatingAdmissionPolicySpec
	mutatingBindings   []admissionregistrationv1.MutatingAdmissionPolicyBindingSpec
}

// validatingPolicy is bound once, and denies what does not pass all expressions.
func validatingPolicy(constraints *admissionregistrationv1.MatchResources, expressions ...string) policy {
	p := policy{
		validating: &admissionregistrationv1.ValidatingAdmissionPolicySpec{MatchConstraints: constraints},
		validatingBindings: []admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{{
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}},
	}
	for _, expression := range expressions {
		p.validating.Validations = append(p.validating.Validations, admissionregistrationv1.Validation{Expression: expression})
	}
	return p
}

// mutatingPolicy is bound once.
func mutatingPolicy(constraints *admissionregistrationv1.MatchResources, mutations ...admissionregistrationv1.Mutation) policy {
	return policy{
		mutating: &admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: constraints, Mutations: mutations, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		},
		mutatingBindings: []admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{{}},
	}
}

func jsonPatch(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression}}
}

func applyConfiguration(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
	}
}

// with changes the specification of a validating policy.
func (p policy) with(change func(*admissionregistrationv1.ValidatingAdmissionPolicySpec)) policy {
	change(p.validating)
	return p
}

// bound changes the binding of a validating policy.
func (p policy) bound(change func(*admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec)) policy {
	change(&p.validatingBindings[0])
	return p
}

// createPolicy creates a policy and its bindings, named like it, until the test ends.
func (s *scope) createPolicy(name string, p policy) {
	s.t.Helper()
	client := framework.Kube(cp).AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: s.Name(name)}
	ctx := s.t.Context()
	if p.validating != nil {
		_, err := client.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: *p.validating}, metav1.CreateOptions{})
		require.NoError(s.t, err)
		s.Cleanup(func(ctx context.Context) error {
			return client.ValidatingAdmissionPolicies().Delete(ctx, meta.Name, metav1.DeleteOptions{})
		})
	}
	if p.mutating != nil {
		s.createMutating("MutatingAdmissionPolicy", "mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: *p.mutating})
	}
	for i, spec := range p.validatingBindings {
		spec.PolicyName = meta.Name
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: spec}
		if i > 0 {
			binding.Name += fmt.Sprintf("-%d", i)
		}
		_, err := client.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
		require.NoError(s.t, err)
		s.Cleanup(func(ctx context.Context) error {
			return client.ValidatingAdmissionPolicyBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{})
		})
	}
	for i, spec := range p.mutatingBindings {
		spec.PolicyName = meta.Name
		meta := meta
		if i > 0 {
			meta.Name += fmt.Sprintf("-%d", i)
		}
		s.createMutating("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: spec})
	}
}

// mutatingPolicies is a client of mutating policies, or of their bindings, in the version
// that kube-apiserver serves: both versions have the same fields.
func mutatingPolicies(resource string) dynamic.ResourceInterface {
	gvr := admissionregistrationv1.SchemeGroupVersion.WithResource(resource)
	gvr.Version = framework.MutatingPolicyVersion()
	return framework.Dynamic(cp).Resource(gvr)
}

// createMutating creates a mutating policy or a binding until the test ends.
func (s *scope) createMutating(kind, resource string, object metav1.Object) {
	s.t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(s.t, err)
	created := &unstructured.Unstructured{Object: content}
	created.SetGroupVersionKind(schema.GroupVersionKind{Group: admissionregistrationv1.GroupName, Version: framework.MutatingPolicyVersion(), Kind: kind})
	client := mutatingPolicies(resource)
	_, err = client.Create(s.t.Context(), created, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.Cleanup(func(ctx context.Context) error { return client.Delete(ctx, object.GetName(), metav1.DeleteOptions{}) })
}

// enforce creates policies, and returns when they are in force.
func (s *scope) enforce(policies map[string]policy) {
	s.t.Helper()
	for name, p := range policies {
		s.createPolicy(policySlug(name), p)
	}
	s.awaitPolicies("marker", toppingKind)
}

// enforceEverywhere is enforce for a test with references: the policies are in force
// in kube-apiserver, too.
func (s *scope) enforceEverywhere(policies map[string]policy) {
	s.t.Helper()
	for name, p := range policies {
		s.createPolicy(policySlug(name), p)
	}
	s.awaitPolicies("marker", toppingKind, toppingKind.reference())
}

// awaitPolicies returns when all policies created before are in force for the kinds.
// Servers learn of policies, and of bindings, in the order of their creation: so one
// more of each, made after the others, tells.
func (s *scope) awaitPolicies(name string, kinds ...servedKind) {
	s.t.Helper()
	marked := s.forPolicies(rule(on("CREATE"), "toppings"))
	marked.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{markerLabel: s.Name(name)}}
	// The validation sees the mutation.
	marker := validatingPolicy(marked, "!has(object.metadata.annotations)")
	mutating := mutatingPolicy(marked, jsonPatch(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"in": "force"}}]`))
	marker.mutating, marker.mutatingBindings = mutating.mutating, mutating.mutatingBindings
	s.createPolicy(name, marker)
	for _, kind := range kinds {
		object := kind.object(s, "v1", name)
		object.SetLabels(map[string]string{markerLabel: s.Name(name)})
		controlplane.Eventually(s.t, func() error {
			_, err := kind.client(s, framework.Config(cp), "v1").Create(s.t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if apierrors.IsInvalid(err) {
				return nil
			}
			return fmt.Errorf("the policies of %s are not in force for %s: %w", s.ID, kind.resource, err)
		})
	}
}

// createEverywhere creates a pizza, and its reference, in a version. The error must be
// the same, in the restaurant's words.
func (s *scope) createEverywhere(t *testing.T, version, suffix string, change func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	t.Helper()
	create := func(kind servedKind) (*unstructured.Unstructured, error) {
		object := kind.object(s, version, suffix)
		if change != nil {
			change(object)
		}
		return kind.client(s, framework.Config(cp), version).Create(t.Context(), object, metav1.CreateOptions{})
	}
	created, err := create(pizzaKind)
	_, referenceErr := create(pizzaKind.reference())
	require.Equal(t, comparableError(t, referenceErr), comparableError(t, err), "kube-apiserver says something else.")
	return created, err
}

var failOpen = ptr.To(admissionregistrationv1.Ignore)
