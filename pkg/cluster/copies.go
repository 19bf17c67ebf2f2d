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

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// CopiesLabel is on bindings of policies that only kube-apiserver applies. Our servers do not read these.
	CopiesLabel = "crd-apiserver/copies"
	// BypassVersion is the version in which "migrate" writes kube-apiserver's own objects of a group.
	BypassVersion = "migrate"
	// copiesSettle is how long all kube-apiservers need to follow a change of a policy.
	copiesSettle = 2 * time.Second
)

// CopiesPolicyName returns the name of the objects of copiesPolicy.
func CopiesPolicyName(group string) string { return "crd-apiserver." + group }

// copiesPolicy returns a policy, and its binding, with which kube-apiserver stores no objects of a group that a server
// has. kube-apiserver would store them while it starts, until it knows the APIServices, or while one of these is gone.
// Such a write would be lost.
func copiesPolicy(group string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	name := CopiesPolicyName(group)
	policy, binding := WritePolicy(name, group, []string{"*"},
		fmt.Sprintf("request.resource.version == %q", BypassVersion),
		fmt.Sprintf("another server has the objects of %[1]s, and kube-apiserver does not lead there yet: try again; "+
			"if that goes on, run \"crd-apiserver register\" for the group, or \"crd-apiserver unregister --groups=%[1]s\" if no server has its objects any more", group))
	binding.Labels = map[string]string{CopiesLabel: "true"}
	return policy, binding
}

// WritePolicy returns a policy that refuses writes of a group's resources in versions, unless an expression in CEL allows
// them, and its binding.
func WritePolicy(name, group string, versions []string, allowed, message string) (*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	exact, fail, forbidden := admissionregistrationv1.Exact, admissionregistrationv1.Fail, metav1.StatusReasonForbidden
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: &fail,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					MatchPolicy: &exact,
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: versions, Resources: []string{"*/*"}},
					}}},
				},
				Validations: []admissionregistrationv1.Validation{{Expression: allowed, Message: message, Reason: &forbidden}},
			},
		}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		}
}

// RefuseCopies applies the objects of copiesPolicy.
func RefuseCopies(ctx context.Context, client kubernetes.Interface, group string, dryRun ...string) error {
	policy, binding := copiesPolicy(group)
	registration, force := client.AdmissionregistrationV1(), true
	options := metav1.PatchOptions{FieldManager: "crd-apiserver", Force: &force, DryRun: dryRun}
	data, err := json.Marshal(policy)
	if err != nil {
		return err
	}
	if _, err := registration.ValidatingAdmissionPolicies().Patch(ctx, policy.Name, types.ApplyPatchType, data, options); err != nil {
		return err
	}
	if data, err = json.Marshal(binding); err != nil {
		return err
	}
	_, err = registration.ValidatingAdmissionPolicyBindings().Patch(ctx, binding.Name, types.ApplyPatchType, data, options)
	return err
}

// AllowCopies deletes the objects of copiesPolicy for groups, and returns when all kube-apiservers should know that.
func AllowCopies(ctx context.Context, client kubernetes.Interface, groups ...string) error {
	registration, existed := client.AdmissionregistrationV1(), false
	for _, group := range groups {
		name := CopiesPolicyName(group)
		err := registration.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
		existed = existed || err == nil
		if err == nil || apierrors.IsNotFound(err) {
			err = registration.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting what keeps kube-apiserver from storing objects of %s: %w", group, err)
		}
	}
	if !existed {
		return nil
	}
	select {
	case <-time.After(copiesSettle):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
