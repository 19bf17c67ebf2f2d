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
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// rule allows verbs on resources of the restaurant, both lists with commas.
func rule(verbs, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups:     []string{restaurant.GroupName},
		Verbs:         strings.Split(verbs, ","),
		Resources:     strings.Split(resources, ","),
		ResourceNames: names,
	}
}

// grant gives a user rights, in a namespace or, if that is empty, everywhere, and
// returns when they hold.
func grant(t *testing.T, user, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{GenerateName: "e2e-"}
	if namespace == "" {
		role, err := framework.Kube(cp).RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		require.NoError(t, err)
		bind(t, user, "", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name})
	} else {
		role, err := framework.Kube(cp).RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		require.NoError(t, err)
		bind(t, user, namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name})
	}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				waitAllowed(t, user, namespace, verb, resource, rule.ResourceNames...)
			}
		}
	}
}

// bind gives a user a role.
func bind(t *testing.T, user, namespace string, role rbacv1.RoleRef) {
	t.Helper()
	meta := metav1.ObjectMeta{GenerateName: "e2e-"}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	var err error
	if namespace == "" {
		_, err = framework.Kube(cp).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: role}, metav1.CreateOptions{})
	} else {
		_, err = framework.Kube(cp).RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: role}, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

// waitAllowed waits until kube-apiserver knows that the user may do something. It
// is to be called before the user does it: a refusal is remembered for seconds.
func waitAllowed(t *testing.T, user, namespace, verb, resource string, names ...string) {
	t.Helper()
	resource, subresource, _ := strings.Cut(resource, "/")
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		controlplane.Eventually(t, func() error {
			review, err := framework.Kube(cp).AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: restaurant.GroupName, Resource: resource, Subresource: subresource, Name: name,
				}},
			}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("%s may not %s %s", user, verb, resource)
			}
			return err
		})
	}
}

// action is a verb on a resource or subresource, which a rule can allow.
type action struct {
	verb, resource string
}

func (a action) String() string { return a.verb + " " + a.resource }

// pizzaActions are all verbs that pizzas and their subresources have.
func pizzaActions() []action {
	return []action{
		{"get", "pizzas"},
		{"list", "pizzas"},
		{"watch", "pizzas"},
		{"create", "pizzas"},
		{"update", "pizzas"},
		{"patch", "pizzas"},
		{"delete", "pizzas"},
		{"deletecollection", "pizzas"},
		{"get", "pizzas/status"},
		{"update", "pizzas/status"},
		{"patch", "pizzas/status"},
		{"get", "pizzas/scale"},
		{"update", "pizzas/scale"},
		{"patch", "pizzas/scale"},
		{"create", "pizzas/bake"},
		{"get", "pizzas/track"},
	}
}

// clusterActions are all verbs of the kinds that belong to the whole cluster.
func clusterActions() []action {
	return []action{
		{"get", "toppings"},
		{"list", "toppings"},
		{"watch", "toppings"},
		{"create", "toppings"},
		{"update", "toppings"},
		{"patch", "toppings"},
		{"delete", "toppings"},
		{"deletecollection", "toppings"},
		{"create", "pricereviews"},
	}
}

// request does the action for an object without a lasting effect. What is sent is
// valid, so that nothing but a missing right keeps it from success.
func (a action) request(t *testing.T, host, namespace, name string) *http.Request {
	t.Helper()
	const apiVersion = "restaurant.programming-kubernetes.info/v1"
	resource, subresource, _ := strings.Cut(a.resource, "/")
	where := path.Join("/apis", apiVersion, resource)
	object, spec := "Topping", `{"cost":"1"}`
	if resource == "pizzas" {
		where = path.Join("/apis", apiVersion, "namespaces", namespace, resource)
		object, spec = "Pizza", `{"toppings":[{"name":"tomato"}]}`
	}
	if resource == "pricereviews" {
		object, spec = "PriceReview", `{"toppings":[{"name":"tomato"}]}`
	}
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, apiVersion, object, name, spec)
	if subresource == "scale" {
		body = fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":%q},"spec":{"replicas":2}}`, name)
	}

	method, query, contentType := http.MethodGet, "", "application/json"
	one := path.Join(where, name, subresource)
	switch a.verb {
	case "get":
		where, body = one, ""
	case "list":
		query, body = "limit=1", ""
	case "watch":
		query, body = "watch=true&timeoutSeconds=1", ""
	case "create":
		method, query = http.MethodPost, "dryRun=All"
		if subresource != "" {
			where, body = one, "{}"
			break
		}
		body = strings.Replace(body, `"name":`, `"generateName":`, 1)
	case "update":
		method, where, query = http.MethodPut, one, "dryRun=All"
		current, err := framework.Dynamic(cp).Resource(schema.GroupVersionResource{Group: restaurant.GroupName, Version: "v1", Resource: resource}).
			Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		body = strings.Replace(body, `"name":`, fmt.Sprintf(`"resourceVersion":%q,"name":`, current.GetResourceVersion()), 1)
	case "patch":
		method, where, query, body, contentType = http.MethodPatch, one, "dryRun=All", "{}", "application/merge-patch+json"
	case "delete":
		method, where, query, body = http.MethodDelete, one, "dryRun=All", ""
	case "deletecollection":
		method, query, body = http.MethodDelete, "dryRun=All&labelSelector=no%3Dsuch", ""
	}
	request, err := http.NewRequestWithContext(t.Context(), method, host+where+"?"+query, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		request.Header.Set("Content-Type", contentType)
	}
	return request
}

// allowed returns which of the actions a user may do at a server. Whatever is not
// allowed must be answered with 403.
func allowed(t *testing.T, config *rest.Config, namespace, name string, actions []action) []action {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	var may []action
	for _, action := range actions {
		response, err := client.Do(action.request(t, config.Host, namespace, name))
		require.NoError(t, err)
		// A watch would go on for a second.
		answer := make([]byte, 1)
		if action.verb != "watch" || response.StatusCode != http.StatusOK {
			answer, err = io.ReadAll(response.Body)
			require.NoError(t, err)
		}
		require.NoError(t, response.Body.Close())
		switch response.StatusCode {
		case http.StatusOK, http.StatusCreated:
			may = append(may, action)
		case http.StatusForbidden:
		default:
			assert.Failf(t, "neither allowed nor forbidden", "%s: got %s: %s", action, response.Status, answer)
		}
	}
	return may
}

// bothWays runs a test of a user's requests through kube-apiserver, and of those
// that go past it to the server itself: the first would hide what the second
// allows.
func bothWays(t *testing.T, user string, test func(*testing.T, *rest.Config)) {
	t.Helper()
	for name, host := range map[string]string{"through kube-apiserver": cp.KubeAPIServer.URL(), "directly": cp.APIServer.URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := cp.RESTConfigFor(user)
			require.NoError(t, err)
			config.Host = host
			test(t, config)
		})
	}
}

func requireAllowed(t *testing.T, want, got []action) {
	t.Helper()
	assert.Empty(t, cmp.Diff(want, got, cmp.AllowUnexported(action{})), "unexpected permissions (-want +got)")
}

// The roles that every cluster has include the restaurant.
func TestAggregatedRoles(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	topping := newSubject(t, "Topping", "v1").Create(t, "basil").GetName()
	reads := func(a action) bool { return slices.Contains([]string{"get", "list", "watch"}, a.verb) }
	for role, may := range map[string]func(action) bool{
		"view": func(a action) bool { return reads(a) || a.resource == "pricereviews" },
		// The status is the server's to say.
		"edit":  func(a action) bool { return reads(a) || a.resource != "pizzas/status" },
		"admin": func(a action) bool { return reads(a) || a.resource != "pizzas/status" },
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			only := func(actions []action) []action {
				return slices.DeleteFunc(actions, func(a action) bool { return !may(a) })
			}
			t.Run("in a namespace", func(t *testing.T) {
				t.Parallel()
				user := role + "-of-" + k.namespace
				bind(t, user, k.namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role})
				for _, action := range only(pizzaActions()) {
					waitAllowed(t, user, k.namespace, action.verb, action.resource)
				}
				bothWays(t, user, func(t *testing.T, config *rest.Config) {
					requireAllowed(t, only(pizzaActions()), allowed(t, config, k.namespace, "margherita", pizzaActions()))
					requireAllowed(t, nil, allowed(t, config, "", topping, clusterActions()))
				})
			})
			t.Run("in the cluster", func(t *testing.T) {
				t.Parallel()
				user := role + "-of-all-" + k.namespace
				bind(t, user, "", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role})
				for _, action := range only(append(pizzaActions(), clusterActions()...)) {
					waitAllowed(t, user, "", action.verb, action.resource)
				}
				bothWays(t, user, func(t *testing.T, config *rest.Config) {
					requireAllowed(t, only(pizzaActions()), allowed(t, config, k.namespace, "margherita", pizzaActions()))
					requireAllowed(t, only(clusterActions()), allowed(t, config, "", topping, clusterActions()))
				})
			})
		})
	}
}
