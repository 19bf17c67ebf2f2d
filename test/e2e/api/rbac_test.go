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

package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// mayDo asks kube-apiserver whether a user may do something with the restaurant's objects.
func mayDo(t *testing.T, user, namespace, verb, resource string) bool {
	t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	review, err := framework.Kube(cp).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: restaurant.GroupName, Resource: resource, Subresource: subresource,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status.Allowed
}

// The roles that every cluster has include the restaurant. That a permission is for one verb only, in one
// namespace, package conformance shows.
func TestAggregatedRoles(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	list, err := framework.Kube(cp).Discovery().ServerResourcesForGroupVersion(restaurant.GroupName + "/v1")
	require.NoError(t, err)
	reads := []string{"get", "list", "watch"}
	for role, may := range map[string]func(verb, resource string) bool{
		"view": func(verb, resource string) bool { return slices.Contains(reads, verb) || resource == "pricereviews" },
		// The status is the server's to say.
		"edit":  func(verb, resource string) bool { return slices.Contains(reads, verb) || resource != "pizzas/status" },
		"admin": func(verb, resource string) bool { return slices.Contains(reads, verb) || resource != "pizzas/status" },
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			user, reference := role+"-of-"+ns, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
			subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
			require.False(t, mayDo(t, user, ns, "get", "pizzas"))
			_, err := framework.Kube(cp).RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects, RoleRef: reference,
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			requireAllowed := func(namespaced bool) {
				controlplane.Eventually(t, func() error {
					for _, resource := range list.APIResources {
						namespace := map[bool]string{true: ns}[resource.Namespaced]
						for _, verb := range resource.Verbs {
							want := may(verb, resource.Name) && (resource.Namespaced || !namespaced)
							if mayDo(t, user, namespace, verb, resource.Name) != want {
								return fmt.Errorf("whether %s may %s %s in %q is expected to be %t", user, verb, resource.Name, namespace, want)
							}
						}
					}
					return nil
				})
			}
			requireAllowed(true)
			_, err = framework.Kube(cp).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects, RoleRef: reference,
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			requireAllowed(false)
		})
	}
}
