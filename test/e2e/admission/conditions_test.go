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
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// missing is an expression that fails.
const missing = "object.metadata.annotations['missing'] == 'yes'"

// failsWith is what is said of missing.
const failsWith = "expression '" + missing + "' resulted in error: no such key: annotations"

// conditions are match conditions of a webhook for v1, and what comes of a request
// about a pizza that has one mozzarella.
var conditions = map[string]struct {
	operation   admissionregistrationv1.OperationType
	subresource string
	dryRun      bool
	// byEditor requests come from a user with permission to write pizzas, and to season them.
	byEditor   bool
	conditions []string
	ignore     bool
	// calledFor are the versions whose requests reach the webhook.
	calledFor []string
	// refusal is why the request fails, if it does.
	refusal string
}{
	"none": {operation: "CREATE", calledFor: framework.Versions()},

	"object":                            {operation: "CREATE", conditions: []string{"object.spec.replicas == 1"}, calledFor: framework.Versions()},
	"another object":                    {operation: "CREATE", conditions: []string{"object.spec.replicas > 1"}},
	"object after the update":           {operation: "UPDATE", conditions: []string{"object.spec.replicas == 6"}, calledFor: framework.Versions()},
	"converted object":                  {operation: "CREATE", conditions: []string{"object.apiVersion.endsWith('/v1') && object.spec.toppings.all(t, t.name == 'mozzarella' && t.quantity == 1)"}, calledFor: framework.Versions()},
	"no object":                         {operation: "DELETE", conditions: []string{"object == null"}, calledFor: framework.Versions()},
	"object with status":                {operation: "UPDATE", subresource: "status", conditions: []string{"object.status.replicas == 1 && oldObject.status.replicas == 0"}, calledFor: framework.Versions()},
	"old object":                        {operation: "UPDATE", conditions: []string{"oldObject.spec.replicas == 1"}, calledFor: framework.Versions()},
	"another old object":                {operation: "UPDATE", conditions: []string{"oldObject.spec.replicas == 6"}},
	"converted old object":              {operation: "UPDATE", conditions: []string{"oldObject.apiVersion.endsWith('/v1') && oldObject.spec.toppings[0].name == 'mozzarella'"}, calledFor: framework.Versions()},
	"old object of a deletion":          {operation: "DELETE", conditions: []string{"oldObject.spec.replicas == 1"}, calledFor: framework.Versions()},
	"another old object of a deletion":  {operation: "DELETE", conditions: []string{"oldObject.spec.replicas == 2"}},
	"no old object":                     {operation: "CREATE", conditions: []string{"oldObject == null"}, calledFor: framework.Versions()},
	"request":                           {operation: "UPDATE", conditions: []string{"request.operation == 'UPDATE' && request.kind.kind == 'Pizza' && request.resource.resource == 'pizzas' && !has(request.subResource)"}, calledFor: framework.Versions()},
	"request of a subresource":          {operation: "UPDATE", subresource: "status", conditions: []string{"request.subResource == 'status' && request.requestSubResource == 'status'"}, calledFor: framework.Versions()},
	"request for a version":             {operation: "UPDATE", conditions: []string{"request.kind.version == 'v1' && request.requestKind.version == 'v1alpha1' && request.requestResource.version == 'v1alpha1'"}, calledFor: []string{"v1alpha1"}},
	"request by its name":               {operation: "UPDATE", conditions: []string{"request.name == object.metadata.name && request.namespace == object.metadata.namespace"}, calledFor: framework.Versions()},
	"request of a user":                 {operation: "CREATE", conditions: []string{"request.userInfo.username.startsWith('e2e-') && 'kitchen' in request.userInfo.groups && request.userInfo.uid.startsWith('uid-of-') && request.userInfo.extra['tables'] == ['1 & 2']"}, calledFor: framework.Versions()},
	"request of another user":           {operation: "CREATE", byEditor: true, conditions: []string{"'kitchen' in request.userInfo.groups"}},
	"request with options":              {operation: "CREATE", conditions: []string{"request.options.kind == 'CreateOptions' && request.options.fieldManager == 'kitchen'"}, calledFor: framework.Versions()},
	"request of a dry run":              {operation: "CREATE", dryRun: true, conditions: []string{"request.dryRun"}, calledFor: framework.Versions()},
	"request that is not a dry run":     {operation: "CREATE", conditions: []string{"request.dryRun"}},
	"authorizer allows the editor":      {operation: "CREATE", byEditor: true, conditions: []string{"authorizer.group('restaurant.programming-kubernetes.info').resource('pizzas').namespace(request.namespace).check('season').allowed()"}, calledFor: framework.Versions()},
	"authorizer denies the editor":      {operation: "CREATE", byEditor: true, conditions: []string{"authorizer.group('restaurant.programming-kubernetes.info').resource('pizzas').namespace(request.namespace).check('burn').allowed()"}},
	"authorizer allows admins anything": {operation: "CREATE", conditions: []string{"authorizer.group('restaurant.programming-kubernetes.info').resource('pizzas').namespace(request.namespace).check('burn').allowed()"}, calledFor: framework.Versions()},
	"authorizer for the resource":       {operation: "UPDATE", byEditor: true, conditions: []string{"authorizer.requestResource.check('season').allowed() && !authorizer.requestResource.check('burn').allowed()"}, calledFor: framework.Versions()},
	"authorizer for a subresource":      {operation: "UPDATE", byEditor: true, conditions: []string{"authorizer.group('restaurant.programming-kubernetes.info').resource('pizzas').subresource('status').namespace(request.namespace).name(request.name).check('season').allowed()"}},
	"authorizer for a path":             {operation: "CREATE", byEditor: true, conditions: []string{"authorizer.path('/metrics').check('get').allowed()"}},

	"all are true":                 {operation: "CREATE", conditions: []string{"true", "object.spec.replicas == 1", "request.operation == 'CREATE'"}, calledFor: framework.Versions()},
	"one is false":                 {operation: "CREATE", conditions: []string{"true", "object.spec.replicas == 2", "true"}},
	"an error":                     {operation: "CREATE", conditions: []string{missing}, refusal: failsWith},
	"an ignored error":             {operation: "CREATE", conditions: []string{missing}, ignore: true},
	"an error beside true":         {operation: "CREATE", conditions: []string{"true", missing}, refusal: failsWith},
	"an ignored error, true":       {operation: "CREATE", conditions: []string{"true", missing}, ignore: true},
	"false after an error":         {operation: "CREATE", conditions: []string{missing, "false"}},
	"false before an error":        {operation: "CREATE", conditions: []string{"false", missing}},
	"errors":                       {operation: "CREATE", conditions: []string{missing, "oldObject.spec.replicas == 1"}, refusal: "[" + failsWith + ", expression 'oldObject.spec.replicas == 1' resulted in error: no such key: spec]"},
	"an error of an update":        {operation: "UPDATE", conditions: []string{missing}, refusal: failsWith},
	"an error of a deletion":       {operation: "DELETE", conditions: []string{missing}, refusal: "expression '" + missing + "' resulted in error: no such key: metadata"},
	"an error of a dry run":        {operation: "CREATE", dryRun: true, conditions: []string{missing}, refusal: failsWith},
	"the shape of another version": {operation: "CREATE", conditions: []string{"object.spec.toppings[0].startsWith('m')"}, refusal: "expression 'object.spec.toppings[0].startsWith('m')' resulted in error: no such overload"},
}

// TestMatchConditions shows which requests reach webhooks with match conditions,
// and which fail because a condition does.
func TestMatchConditions(t *testing.T) {
	for _, sort := range []string{"mutating", "validating"} {
		t.Run(sort, func(t *testing.T) {
			s := newScope(t)
			editor, err := cp.RESTConfigFor(s.Name("editor"))
			require.NoError(t, err)
			editor.WarningHandler = rest.NoWarnings{}
			s.grant(s.Name("editor"), rbacv1.PolicyRule{APIGroups: []string{restaurant.GroupName}, Resources: []string{"pizzas"}, Verbs: []string{"create", "update", "patch", "delete", "season"}})

			recorder := s.webhook(allow)
			names := slices.Sorted(maps.Keys(conditions))
			var mutating []admissionregistrationv1.MutatingWebhook
			var validating []admissionregistrationv1.ValidatingWebhook
			for i, name := range names {
				test := conditions[name]
				v := recorder.validating(of(rule(on(test.operation), strings.TrimSuffix("pizzas/"+test.subresource, "/")), "v1"))
				v.Name = fmt.Sprintf("w%d.example.com", i)
				v.ClientConfig = recorder.at(fmt.Sprint("/", i))
				v.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"case": s.Name(fmt.Sprint(i))}}
				if test.ignore {
					v.FailurePolicy = new(admissionregistrationv1.Ignore)
				}
				for j, expression := range test.conditions {
					v.MatchConditions = append(v.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", j), Expression: expression})
				}
				validating = append(validating, v)
				m := recorder.mutating(v.Rules...)
				m.Name, m.ClientConfig, m.ObjectSelector, m.FailurePolicy, m.MatchConditions = v.Name, v.ClientConfig, v.ObjectSelector, v.FailurePolicy, v.MatchConditions
				mutating = append(mutating, m)
			}
			if sort == "mutating" {
				s.registerMutating(sort, mutating...)
			} else {
				s.registerValidating(sort, validating...)
			}

			for i, name := range names {
				test := conditions[name]
				for _, version := range framework.Versions() {
					t.Run(name+"/"+version, func(t *testing.T) {
						pizza := s.pizza(version, fmt.Sprintf("%d-%s", i, version))
						pizza.SetLabels(map[string]string{"case": s.Name(fmt.Sprint(i))})
						if test.operation != admissionregistrationv1.Create {
							_, err := s.pizzas(version).Create(t.Context(), pizza, metav1.CreateOptions{})
							require.NoError(t, err)
						}
						user := s.cook()
						if test.byEditor {
							user = editor
						}
						client := pizzaKind.client(s, user, version)
						var dryRun []string
						if test.dryRun {
							dryRun = []string{metav1.DryRunAll}
						}
						var err error
						switch {
						case test.operation == admissionregistrationv1.Create:
							_, err = client.Create(t.Context(), pizza, metav1.CreateOptions{FieldManager: kitchen, DryRun: dryRun})
						case test.operation == admissionregistrationv1.Delete:
							err = client.Delete(t.Context(), pizza.GetName(), metav1.DeleteOptions{})
						case test.subresource == "status":
							_, err = client.Patch(t.Context(), pizza.GetName(), types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status")
						default:
							_, err = client.Patch(t.Context(), pizza.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":6}}`), metav1.PatchOptions{})
						}
						if test.refusal == "" {
							require.NoError(t, err)
						} else {
							status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
							require.Equal(t, fmt.Sprintf("pizzas.%s %q is forbidden: %s", restaurant.GroupName, pizza.GetName(), test.refusal), status.Message)
						}
						called := slices.ContainsFunc(recorder.received(), func(c call) bool {
							return c.http.URL.Path == fmt.Sprint("/", i) && c.request.Name == pizza.GetName()
						})
						require.Equal(t, slices.Contains(test.calledFor, version), called, "Whether the webhook is called.")
					})
				}
			}
		})
	}
}

// grant lets a user do something in the test's namespace, and returns when both
// servers know.
func (s *scope) grant(user string, what rbacv1.PolicyRule) {
	s.t.Helper()
	rbac := framework.Kube(cp).RbacV1()
	meta := metav1.ObjectMeta{Name: user}
	_, err := rbac.Roles(s.Namespace).Create(s.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{what}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	_, err = rbac.RoleBindings(s.Namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	controlplane.Eventually(s.t, func() error {
		// A server remembers for a while what it was told about a user: it is not
		// asked itself before kube-apiserver knows.
		review, err := framework.Kube(cp).AuthorizationV1().LocalSubjectAccessReviews(s.Namespace).Create(s.t.Context(), &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: s.Namespace, Verb: what.Verbs[0], Group: what.APIGroups[0], Resource: what.Resources[0],
			}},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("%s may not do it yet: %s", user, review.Status.Reason)
		}
		return err
	})
}
