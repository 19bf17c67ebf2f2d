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

package operations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authorization"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// mayListPizzas returns an error until kube-apiserver knows that a user may.
func mayListPizzas(t *testing.T, user string) error {
	t.Helper()
	if !mayList(t, user) {
		return fmt.Errorf("%s may not list pizzas", user)
	}
	return nil
}

// randomRules are rules of RBAC for about half of what is asked for.
func randomRules(random *rand.Rand, count int) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, count)
	for i := range rules {
		rules[i] = rbacv1.PolicyRule{
			APIGroups: []string{oneOf(random, restaurant.GroupName, "bakery.example.com", "*")},
			Verbs:     []string{oneOf(random, "get", "update", "patch", "delete", "*")},
			Resources: []string{oneOf(random, "pizzas", "pizzas/status", "pizzas/*", "toppings", "*")},
		}
		for random.IntN(4) > 0 {
			rules[i].ResourceNames = append(rules[i].ResourceNames, oneOf(random, "a", "b", "c", "d", "e", "f"))
		}
	}
	return rules
}

// namesNothing reports whether a user of these has a rule for the empty name.
func namesNothing(user int) bool { return user%10 == 0 }

func oneOf(random *rand.Rand, values ...string) string { return values[random.IntN(len(values))] }

// reviewer asks kube-apiserver, as the server's own authorizer does.
type reviewer struct {
	authorizer.Authorizer
	client kubernetes.Interface
}

func (r reviewer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: attributes.GetUser().GetName(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: attributes.GetVerb(), Group: attributes.GetAPIGroup(), Version: attributes.GetAPIVersion(), Namespace: attributes.GetNamespace(),
			Resource: attributes.GetResource(), Subresource: attributes.GetSubresource(), Name: attributes.GetName(),
		}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		return authorizer.DecisionNoOpinion, "", err
	}
	return authorizer.DecisionAllow, "", nil
}

// TestReviewsWithoutNameAgree compares what the server decides by asking for all names
// first with what kube-apiserver says about the very name, for thousands of random rules. Only a
// rule for the empty name makes a difference, for users whom kube-apiserver refuses before.
func TestReviewsWithoutNameAgree(t *testing.T) {
	framework.Long(t, "hundreds of users and roles")
	const users, rulesOfEach, questions = 500, 20, 10_000
	admin := framework.Config(cp)
	admin.QPS = -1
	client := kubernetes.NewForConfigOrDie(admin)
	bind := func(user, role string) {
		_, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range users {
		name, rules := fmt.Sprintf("random-%d", i), randomRules(random, rulesOfEach)
		if namesNothing(i) {
			rules[0].ResourceNames = []string{""}
		}
		_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		require.NoError(t, err)
		bind(name, name)
	}
	// The last one is known to kube-apiserver when all are.
	bind("known", "cluster-admin")
	controlplane.Eventually(t, func() error { return mayListPizzas(t, "known") })

	exact := reviewer{client: client}
	tested := authorization.AskForAllNames(exact)
	var mu sync.Mutex
	outcomes := map[authorizer.Decision]int{}
	type question struct {
		authorizer.AttributesRecord
		user int
	}
	work := make(chan question)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for question := range work {
				attributes := question.AttributesRecord
				info := &genericapirequest.RequestInfo{
					IsResourceRequest: true, Verb: attributes.Verb, APIGroup: attributes.APIGroup, APIVersion: attributes.APIVersion,
					Namespace: attributes.Namespace, Resource: attributes.Resource, Subresource: attributes.Subresource, Name: attributes.Name,
				}
				want, _, err := exact.Authorize(t.Context(), attributes)
				if want != authorizer.DecisionAllow && err == nil && namesNothing(question.user) {
					without := attributes
					without.Name = ""
					want, _, err = exact.Authorize(t.Context(), without)
				}
				if err != nil {
					assert.Fail(t, err.Error())
					continue
				}
				got, _, err := tested.Authorize(genericapirequest.WithRequestInfo(t.Context(), info), attributes)
				if err != nil || got != want {
					assert.Failf(t, "another decision", "%+v: got %v, %v, want %v", attributes, got, err, want)
				}
				mu.Lock()
				outcomes[got]++
				mu.Unlock()
			}
		})
	}
	for range questions {
		number := random.IntN(users)
		work <- question{authorizer.AttributesRecord{
			User: authentication.FrontProxied{Info: &user.DefaultInfo{Name: fmt.Sprintf("random-%d", number)}}, ResourceRequest: true,
			Verb: oneOf(random, "get", "update", "patch", "delete"), APIGroup: restaurant.GroupName, APIVersion: "v1", Namespace: oneOf(random, "default", "kube-system"),
			Resource: oneOf(random, "pizzas", "toppings"), Subresource: oneOf(random, "", "", "status"), Name: oneOf(random, "a", "b", "c", "d", "e", "f"),
		}, number}
	}
	close(work)
	workers.Wait()
	for _, decision := range []authorizer.Decision{authorizer.DecisionAllow, authorizer.DecisionNoOpinion} {
		require.Greater(t, outcomes[decision], questions/20, "too few of one kind to tell anything: %v", outcomes)
	}
}
