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
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// checkPermissions asks for everything that the server's service account must be
// allowed to do.
func (e *examination) checkPermissions(ctx context.Context) ([]Finding, error) {
	if e.namespace() == "" {
		return []Finding{skipped("it is not known in which namespace the server is going to be: name it by --namespace")}, nil
	}
	if e.ServiceAccount == "" {
		return nobody(), nil
	}
	if _, err := e.kube.CoreV1().ServiceAccounts(e.namespace()).Get(ctx, e.ServiceAccount, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		if len(e.apiServices) == 0 {
			return []Finding{skipped("there is no service account %s in the namespace %s yet", e.ServiceAccount, e.namespace())}, nil
		}
		return []Finding{failure(fmt.Sprintf("there is no service account %s in the namespace %s", e.ServiceAccount, e.namespace()),
			"create it, or name the one of the server's pods by --namespace and --service-account").
			by("kubectl create serviceaccount %s --namespace=%s", e.ServiceAccount, e.namespace())}, nil
	}
	permissions := e.Permissions(e.namespace())
	var fixes []string
	known := map[string]cluster.Permission{}
	missing := map[string][]string{}
	for _, permission := range permissions {
		allowed, err := e.allowed(ctx, permission)
		if err != nil {
			return nil, unreadable{"what " + e.user() + " may do", err}
		}
		if allowed {
			continue
		}
		if missing[permission.Fix] == nil {
			fixes = append(fixes, permission.Fix)
			known[permission.Fix] = permission
		}
		missing[permission.Fix] = append(missing[permission.Fix], permission.String())
	}
	results, err := e.checkEverything(ctx)
	if err != nil {
		return nil, err
	}
	for _, fix := range fixes {
		status := Failure
		if known[fix].Optional {
			status = Warning
		}
		results = append(results, Finding{Status: status, Cause: e.user() + " may not " + strings.Join(missing[fix], ", "), Fix: fix, Command: known[fix].Command})
	}
	return orOK(results, "%s has %s", e.user(), plural(len(permissions), "permission")), nil
}

// checkEverything warns of a server that may do everything, as it may while objects are moved.
func (e *examination) checkEverything(ctx context.Context) ([]Finding, error) {
	everything := cluster.Permission{Verb: "*", Resource: schema.GroupResource{Group: "*", Resource: "*"}}
	allowed, err := e.allowed(ctx, everything)
	if err != nil {
		return nil, unreadable{"what " + e.user() + " may do", err}
	}
	if !allowed {
		return nil, nil
	}
	return []Finding{warning(e.user()+" may do everything in the cluster, and so may whoever gets into the server",
		"unless objects are being moved, delete the ClusterRoleBinding that allows it, which of servers of this module is that of the component migrate").
		by("kubectl get clusterrolebindings --output=wide")}, nil
}

// user is the server's.
func (e *examination) user() string {
	return serviceaccount.MakeUsername(e.namespace(), e.ServiceAccount)
}

// allowed tells whether the server may do something. Who is the server asks for
// itself, which needs no permission.
func (e *examination) allowed(ctx context.Context, permission cluster.Permission) (bool, error) {
	if e.self == "" {
		self, err := e.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		e.self = self.Status.UserInfo.Username
	}
	if e.self == e.user() {
		review, err := e.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: permission.Attributes()},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
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
