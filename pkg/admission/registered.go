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
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
)

// Webhook is a validating or a mutating webhook of a cluster.
type Webhook struct {
	// Name is the webhook's name. Configuration is the kind and the name of its object.
	Name, Configuration string
	Client              admissionregistrationv1.WebhookClientConfig
	Rules               []admissionregistrationv1.RuleWithOperations
	FailurePolicy       *admissionregistrationv1.FailurePolicyType
	NamespaceSelector   *metav1.LabelSelector
}

// ListWebhooks returns the webhooks of a cluster, the validating ones first.
func ListWebhooks(ctx context.Context, client kubernetes.Interface) (webhooks []Webhook, err error) {
	registration := client.AdmissionregistrationV1()
	validating, err := registration.ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			webhooks = append(webhooks, Webhook{w.Name, "ValidatingWebhookConfiguration " + c.Name, w.ClientConfig, w.Rules, w.FailurePolicy, w.NamespaceSelector})
		}
	}
	mutating, err := registration.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			webhooks = append(webhooks, Webhook{w.Name, "MutatingWebhookConfiguration " + c.Name, w.ClientConfig, w.Rules, w.FailurePolicy, w.NamespaceSelector})
		}
	}
	return webhooks, nil
}

// Policy is a validating or a mutating policy of a cluster.
type Policy struct {
	Kind, Name    string
	Parameters    *admissionregistrationv1.ParamKind
	Rules         []admissionregistrationv1.RuleWithOperations
	FailurePolicy *admissionregistrationv1.FailurePolicyType
	// Bound is false for a policy without a binding, which is never evaluated.
	Bound bool
}

// ListPolicies returns the policies of a cluster, the validating ones first. Older kube-apiservers
// do not have all kinds in v1.
func ListPolicies(ctx context.Context, client kubernetes.Interface) ([]Policy, error) {
	registration := client.AdmissionregistrationV1()
	validating, err := registration.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	validatingBindings, err := registration.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	mutating, err := registration.MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	mutatingBindings, err := registration.MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	boundValidating, boundMutating := sets.New[string](), sets.New[string]()
	for _, b := range validatingBindings.Items {
		boundValidating.Insert(b.Spec.PolicyName)
	}
	for _, b := range mutatingBindings.Items {
		boundMutating.Insert(b.Spec.PolicyName)
	}
	var policies []Policy
	for _, p := range validating.Items {
		policies = append(policies, Policy{"ValidatingAdmissionPolicy", p.Name, p.Spec.ParamKind, rulesOf(p.Spec.MatchConstraints), p.Spec.FailurePolicy, boundValidating.Has(p.Name)})
	}
	for _, p := range mutating.Items {
		policies = append(policies, Policy{"MutatingAdmissionPolicy", p.Name, p.Spec.ParamKind, rulesOf(p.Spec.MatchConstraints), p.Spec.FailurePolicy, boundMutating.Has(p.Name)})
	}
	return policies, nil
}

func rulesOf(matches *admissionregistrationv1.MatchResources) (rules []admissionregistrationv1.RuleWithOperations) {
	if matches == nil {
		return nil
	}
	for _, rule := range matches.ResourceRules {
		rules = append(rules, rule.RuleWithOperations)
	}
	return rules
}

// Concern reports whether rules are about some resource of a group. The function tells
// whether a resource is one of those that matter.
func Concern(rules []admissionregistrationv1.RuleWithOperations, group string, has func(resource string) bool) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		if !slices.Contains(rule.APIGroups, group) && !slices.Contains(rule.APIGroups, "*") {
			return false
		}
		return slices.ContainsFunc(rule.Resources, func(resource string) bool {
			resource, _, _ = strings.Cut(resource, "/") // Subresources count as their resource.
			return resource == "*" || has(resource)
		})
	})
}
