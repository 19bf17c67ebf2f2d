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
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

const (
	// CopiesLabel is on bindings of policies that only kube-apiserver applies. Our servers do not read these.
	CopiesLabel = "crd-apiserver/copies"
	// BypassVersion is the version in which "migrate" writes kube-apiserver's own objects of a group.
	BypassVersion = "migrate"
	// SettleTime is how long all kube-apiservers need to follow a change of a policy, a definition or an APIService.
	SettleTime = 2 * time.Second
	// fieldManager owns what this package applies and changes.
	fieldManager = "crd-apiserver"
)

// ErrNotKept means that a cluster has no MutatingAdmissionPolicies, as before Kubernetes 1.36.
var ErrNotKept = errors.New("this cluster has no MutatingAdmissionPolicies in admissionregistration.k8s.io/v1: when a CustomResourceDefinition of the group is applied again, " +
	"a kube-apiserver that starts may answer for its objects, as if there were none, until the group is registered again")

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

// keepingPolicy returns a policy, and its binding, that keep kube-apiserver from serving the versions of a group's
// CustomResourceDefinitions, whoever applies them: it changes them as Hide does. An update that only serves versions
// that are new, as of a client that reads and then adds one, leaves the versions before in ServedAnnotation.
func keepingPolicy(group string) []runtime.Object {
	ignore, name, version := admissionregistrationv1.Ignore, CopiesPolicyName(group), admissionregistrationv1.SchemeGroupVersion.String()
	served := fmt.Sprintf("v.served && v.name != %q", BypassVersion)
	annotation := func(object string) string {
		return fmt.Sprintf("has(%[1]s.metadata.annotations) && %[2]q in %[1]s.metadata.annotations", object, ServedAnnotation)
	}
	return []runtime.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "MutatingAdmissionPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				FailurePolicy:      &ignore, // A definition is applied in any case.
				ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{definitionResource().Group}, APIVersions: []string{"*"}, Resources: []string{definitionResource().Resource}},
					}}},
				},
				MatchConditions: []admissionregistrationv1.MatchCondition{
					{Name: "group", Expression: fmt.Sprintf("object.spec.group == %q", group)},
					{Name: "served", Expression: fmt.Sprintf("object.spec.versions.exists(v, %s) || oldObject != null && %s && !(%s)", served, annotation("oldObject"), annotation("object"))},
				},
				Variables: []admissionregistrationv1.Variable{
					{Name: "served", Expression: fmt.Sprintf("object.spec.versions.filter(v, %s).map(v, v.name)", served)},
					{Name: "before", Expression: fmt.Sprintf("oldObject != null && %s ? oldObject.metadata.annotations[%q].split(',') : []", annotation("oldObject"), ServedAnnotation)},
					{Name: "kept", Expression: "variables.before.filter(n, object.spec.versions.exists(v, v.name == n) && " +
						"!variables.served.exists(s, oldObject.spec.versions.exists(v, v.name == s)))"},
				},
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType: admissionregistrationv1.PatchTypeJSONPatch,
					JSONPatch: &admissionregistrationv1.JSONPatch{Expression: fmt.Sprintf(`
						(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) +
						[JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey(%q), value: (variables.kept + variables.served).join(",")}] +
						lists.range(size(object.spec.versions)).filter(i, object.spec.versions[i].name in variables.served).map(i,
							JSONPatch{op: "replace", path: "/spec/versions/" + string(i) + "/served", value: false})`, ServedAnnotation)},
				}},
			},
		},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "MutatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		},
	}
}

// RefuseCopies applies copiesPolicy and keepingPolicy. It returns ErrNotKept if the cluster lacks the API of the latter.
func RefuseCopies(ctx context.Context, client dynamic.Interface, group string, dryRun ...string) error {
	policy, binding := copiesPolicy(group)
	return Apply(ctx, client, dryRun, append([]runtime.Object{policy, binding}, keepingPolicy(group)...)...)
}

// Apply applies objects such as admission policies and their bindings. It returns ErrNotKept if the cluster lacks
// MutatingAdmissionPolicies.
func Apply(ctx context.Context, client dynamic.Interface, dryRun []string, objects ...runtime.Object) error {
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		applied := &unstructured.Unstructured{Object: content}
		resource, _ := meta.UnsafeGuessKindToResource(applied.GroupVersionKind())
		_, err = client.Resource(resource).Apply(ctx, applied.GetName(), applied, metav1.ApplyOptions{FieldManager: fieldManager, Force: true, DryRun: dryRun})
		if strings.HasPrefix(applied.GetKind(), "Mutating") && apierrors.IsNotFound(err) {
			return ErrNotKept
		}
		if err != nil {
			return fmt.Errorf("applying the %s %s: %w", applied.GetKind(), applied.GetName(), err)
		}
	}
	return nil
}

// AllowCopies deletes what RefuseCopies applied for groups, and what ReplaceAPIServices has left behind. It returns when
// all kube-apiservers should know that.
func AllowCopies(ctx context.Context, client dynamic.Interface, dryRun []string, groups ...string) error {
	existed := false
	for _, group := range groups {
		for _, name := range []string{CopiesPolicyName(group), OwnPolicyName(group)} {
			deleted, err := DeletePolicies(ctx, client, dryRun, name)
			if err != nil {
				return fmt.Errorf("%w, which keeps kube-apiserver from serving %s", err, group)
			}
			existed = existed || deleted
		}
	}
	if !existed || len(dryRun) > 0 {
		return nil
	}
	return Settle(ctx)
}

// DeletePolicies deletes all policies and bindings of a name, and reports whether there was one. Without either of the two
// nothing is refused, so that only the failure of both is an error.
func DeletePolicies(ctx context.Context, client dynamic.Interface, dryRun []string, name string) (existed bool, err error) {
	for _, pair := range [][]string{
		{"mutatingadmissionpolicybindings", "mutatingadmissionpolicies"}, {"validatingadmissionpolicybindings", "validatingadmissionpolicies"},
	} {
		var failed []error
		for _, resource := range pair {
			err := client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource)).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun})
			existed = existed || err == nil
			if err != nil && !apierrors.IsNotFound(err) {
				failed = append(failed, fmt.Errorf("deleting the %s %s: %w", resource, name, err))
			}
		}
		if len(failed) == len(pair) {
			return existed, errors.Join(failed...)
		}
	}
	return existed, nil
}

// Settle returns when all kube-apiservers should follow a change.
func Settle(ctx context.Context) error {
	select {
	case <-time.After(SettleTime):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
