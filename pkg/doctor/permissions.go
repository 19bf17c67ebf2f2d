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

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// checkPermissions checks all permissions that the server's service account needs.
func (e *examination) checkPermissions(ctx context.Context) []Finding {
	if e.namespace() == "" {
		return []Finding{skipped("it is not known in which namespace the server is going to be: name it by --namespace")}
	}
	if e.ServiceAccount == "" {
		return nobody()
	}
	if _, err := e.kube.CoreV1().ServiceAccounts(e.namespace()).Get(ctx, e.ServiceAccount, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		if len(e.apiServices) == 0 {
			return []Finding{skipped("there is no service account %s in the namespace %s yet", e.ServiceAccount, e.namespace())}
		}
		return []Finding{failure(fmt.Sprintf("there is no service account %s in the namespace %s", e.ServiceAccount, e.namespace()),
			"create it, or name the one of the server's pods by --namespace and --service-account").
			by(kubectl("create", "serviceaccount", e.ServiceAccount, "--namespace="+e.namespace()))}
	}
	var results []Finding
	permissions := e.Permissions(e.namespace())
	for _, permission := range permissions {
		allowed, err := e.allowed(ctx, permission)
		if err != nil {
			return unread("what "+e.user()+" may do", err)
		}
		if allowed {
			continue
		}
		if i := slices.IndexFunc(results, func(found Finding) bool { return found.Fix == permission.Fix }); i >= 0 {
			results[i].Cause += ", " + permission.String()
			continue
		}
		found := failure(e.user()+" may not "+permission.String(), permission.Fix).by(permission.Command)
		if permission.Optional {
			found.Status = Warning
		}
		results = append(results, found)
	}
	if e.foreign && len(results) > 0 && e.answersWell() {
		return []Finding{skipped("%s may not do what a server needs that has kube-apiserver authenticate and authorize its clients, but the server answers as it should", e.user())}
	}
	return orOK(results, "%s has %s", e.user(), plural(len(permissions), "permission"))
}

// answersWell reports whether a server has no fault that a missing permission could explain.
func (e *examination) answersWell() bool {
	if e.unavailable().Type != "" {
		return false
	}
	all, err := e.listings()
	return err == nil && !slices.ContainsFunc(all, func(l listing) bool { return l.err != nil })
}

// user returns the server's user.
func (e *examination) user() string {
	return serviceaccount.MakeUsername(e.namespace(), e.ServiceAccount)
}

// allowed reports whether the server may do something. If this process runs as the server's user, it
// asks for itself, which needs no permission.
func (e *examination) allowed(ctx context.Context, permission cluster.Permission) (bool, error) {
	if e.self == "" {
		self, err := e.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		e.self = self.Status.UserInfo.Username
	}
	if e.self == e.user() {
		return e.selfAllowed(ctx, permission.Attributes())
	}
	review, err := e.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               e.user(),
			Groups:             append(serviceaccount.MakeGroupNames(e.namespace()), user.AllAuthenticated),
			ResourceAttributes: permission.Attributes(),
		},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed, err
}

// selfAllowed reports whether kube-apiserver allows this user something.
func (e *examination) selfAllowed(ctx context.Context, attributes *authorizationv1.ResourceAttributes) (bool, error) {
	review, err := e.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed, err
}

// checkPriority checks that kube-apiserver answers the server's reviews before anything else.
// Otherwise reviews may queue behind the requests that wait for them, and all of these fail.
func (e *examination) checkPriority(ctx context.Context) []Finding {
	if e.ServiceAccount == "" {
		return nobody()
	}
	schemas, err := e.kube.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return []Finding{skipped("kube-apiserver has no FlowSchemas")}
	}
	if err != nil {
		return unread("the FlowSchemas", err)
	}
	for _, review := range []schema.GroupResource{
		{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"},
		{Group: authenticationv1.GroupName, Resource: "tokenreviews"},
	} {
		if !slices.ContainsFunc(schemas.Items, func(schema flowcontrolv1.FlowSchema) bool { return e.exempts(schema.Spec, review) }) {
			return []Finding{warning(fmt.Sprintf("%s that %s creates wait in kube-apiserver behind the requests that wait for them, so that many of these can fail at once", review, e.user()),
				"install a FlowSchema that lets them pass, as the manifests of this server do").by(e.flowSchema())}
		}
	}
	return []Finding{ok("kube-apiserver answers reviews before anything else")}
}

// flowSchema returns a command that exempts reviews of the server from queueing.
func (e *examination) flowSchema() string {
	object := fmt.Sprintf(`{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"%[1]s-%[2]s-reviews"},"spec":{"matchingPrecedence":100,`+
		`"priorityLevelConfiguration":{"name":"exempt"},"rules":[{"subjects":[{"kind":"ServiceAccount","serviceAccount":{"namespace":"%[1]s","name":"%[2]s"}}],`+
		`"resourceRules":[{"verbs":["create"],"apiGroups":["authentication.k8s.io","authorization.k8s.io"],"resources":["tokenreviews","subjectaccessreviews"],"clusterScope":true}]}]}}`, e.namespace(), e.ServiceAccount)
	return "echo " + quoted(object) + " | " + kubectl("apply", "--filename=-")
}

// exempts reports whether a FlowSchema lets the reviews pass that the server creates.
func (e *examination) exempts(schema flowcontrolv1.FlowSchemaSpec, review schema.GroupResource) bool {
	return schema.PriorityLevelConfiguration.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt && slices.ContainsFunc(schema.Rules, func(rules flowcontrolv1.PolicyRulesWithSubjects) bool {
		return slices.ContainsFunc(rules.Subjects, e.isSubject) &&
			slices.ContainsFunc(rules.ResourceRules, func(rule flowcontrolv1.ResourcePolicyRule) bool {
				return rule.ClusterScope && has(rule.Verbs, "create") && has(rule.APIGroups, review.Group) && has(rule.Resources, review.Resource)
			})
	})
}

// isSubject reports whether a subject of a FlowSchema includes the server's user.
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

// has reports whether a rule names something, or everything.
func has(names []string, name string) bool {
	return slices.Contains(names, name) || slices.Contains(names, "*")
}
