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

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// checkPriority looks whether kube-apiserver answers the server's reviews before anything else.
// Reviews that wait behind the requests that wait for them fail all of these.
func (e *examination) checkPriority(ctx context.Context) ([]Finding, error) {
	if e.ServiceAccount == "" {
		return nobody(), nil
	}
	schemas, err := e.kube.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return []Finding{skipped("kube-apiserver has no FlowSchemas")}, nil
	}
	if err != nil {
		return nil, unreadable{"the FlowSchemas", err}
	}
	slices.SortFunc(schemas.Items, func(a, b flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	for _, review := range []schema.GroupResource{
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"},
		{Group: authenticationv1.GroupName, Resource: "tokenreviews"},
	} {
		first := slices.IndexFunc(schemas.Items, func(schema flowcontrolv1.FlowSchema) bool { return e.decides(schema.Spec, review) })
		if first < 0 || schemas.Items[first].Spec.PriorityLevelConfiguration.Name != flowcontrolv1.PriorityLevelConfigurationNameExempt {
			return []Finding{warning(fmt.Sprintf("%s that %s creates wait in kube-apiserver behind the requests that wait for them, so that many of these can fail at once", review, e.user()),
				"install a FlowSchema that lets them pass, as the manifests of this server do").by("%s", e.flowSchema())}, nil
		}
	}
	return []Finding{ok("kube-apiserver answers reviews before anything else")}, nil
}

// flowSchema is a command that has reviews of the server pass.
func (e *examination) flowSchema() string {
	return fmt.Sprintf(`echo '{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"%[1]s-%[2]s-reviews"},"spec":{"matchingPrecedence":100,`+
		`"priorityLevelConfiguration":{"name":"exempt"},"rules":[{"subjects":[{"kind":"ServiceAccount","serviceAccount":{"namespace":"%[1]s","name":"%[2]s"}}],`+
		`"resourceRules":[{"verbs":["create"],"apiGroups":["authentication.k8s.io","authorization.k8s.io"],"resources":["tokenreviews","subjectaccessreviews"],"clusterScope":true}]}]}}' | kubectl apply --filename=-`,
		e.namespace(), e.ServiceAccount)
}

// decides tells whether a FlowSchema is for the reviews that the server creates.
func (e *examination) decides(schema flowcontrolv1.FlowSchemaSpec, review schema.GroupResource) bool {
	return slices.ContainsFunc(schema.Rules, func(rules flowcontrolv1.PolicyRulesWithSubjects) bool {
		return slices.ContainsFunc(rules.Subjects, e.isSubject) &&
			slices.ContainsFunc(rules.ResourceRules, func(rule flowcontrolv1.ResourcePolicyRule) bool {
				return rule.ClusterScope && has(rule.Verbs, "create") && has(rule.APIGroups, review.Group) && has(rule.Resources, review.Resource)
			})
	})
}

// isSubject tells whether the server's user is one that a FlowSchema names.
func (e *examination) isSubject(subject flowcontrolv1.Subject) bool {
	switch subject.Kind {
	case flowcontrolv1.SubjectKindServiceAccount:
		return subject.ServiceAccount.Namespace == e.namespace() &&
			(subject.ServiceAccount.Name == e.ServiceAccount || subject.ServiceAccount.Name == flowcontrolv1.NameAll)
	case flowcontrolv1.SubjectKindUser:
		return subject.User.Name == e.user() || subject.User.Name == flowcontrolv1.NameAll
	case flowcontrolv1.SubjectKindGroup:
		return subject.Group.Name == flowcontrolv1.NameAll ||
			slices.Contains(append(serviceaccount.MakeGroupNames(e.namespace()), user.AllAuthenticated), subject.Group.Name)
	}
	return false
}

// has tells whether a rule names something, or everything.
func has(names []string, name string) bool {
	return slices.Contains(names, name) || slices.Contains(names, "*")
}
