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

package deploy

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// account is the identity of a pod of the manifests.
func account(name string) string { return serviceaccount.MakeUsername(systemNamespace, name) }

// testRequests makes the server do all that it needs its permissions for.
func (ha *highAvailability) testRequests(t *testing.T) {
	const namespace, group = "kitchen", restaurant.GroupName
	ctx := t.Context()
	kube := framework.Kube(cp)
	_, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { kubectlCleanup(t, "delete", "namespace", namespace) })
	pizza := func(name string) *restaurantv1.Pizza {
		return &restaurantv1.Pizza{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: "tomato"}}},
		}
	}

	// A namespace that its cache does not know is asked for.
	_, err = ha.restaurant.Pizzas("nowhere").Create(ctx, pizza("margherita"), metav1.CreateOptions{})
	require.True(t, apierrors.IsNotFound(err), err)

	// Created objects count at once. The controller that counts what there is takes half
	// a minute to find a new kind.
	counted := corev1.ResourceName("count/pizzas." + group)
	hard, none := corev1.ResourceList{counted: resource.MustParse("10")}, corev1.ResourceList{counted: resource.MustParse("0")}
	quotas := kube.CoreV1().ResourceQuotas(namespace)
	quota, err := quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pizzas"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		if quota, err = quotas.Get(ctx, quota.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: none}
		_, err := quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
		return err
	})
	controlplane.Eventually(t, func() error {
		// A replica that has not seen the status yet refuses it.
		_, err := ha.restaurant.Pizzas(namespace).Create(ctx, pizza("margherita"), metav1.CreateOptions{})
		return err
	})
	controlplane.Eventually(t, func() error {
		quota, err := quotas.Get(ctx, quota.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if used := quota.Status.Used[counted]; used.Value() != 1 {
			return fmt.Errorf("the quota is used by %s, not 1", used.String())
		}
		return nil
	})

	// One of the policies' parameters does not exist.
	policies := kube.AdmissionregistrationV1()
	for kind, topping := range map[string]string{"Pizza": "margherita", "Topping": "olive"} {
		name := strings.ToLower(kind) + "-policy"
		meta := metav1.ObjectMeta{Name: name}
		_, err = policies.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: &admissionregistrationv1.ParamKind{APIVersion: group + "/v1", Kind: kind},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"pizzas"}},
			}}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "!has(object.metadata.labels) || !('" + name + "' in object.metadata.labels)", Message: "refused by " + name}},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { kubectlCleanup(t, "delete", "validatingadmissionpolicy", name) })
		for binding, parameter := range map[string]string{name + "-here": map[string]string{"Pizza": "margherita", "Topping": "tomato"}[kind], name + "-absent": topping + "-absent"} {
			reference := &admissionregistrationv1.ParamRef{Name: parameter, ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction)}
			_, err = policies.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: binding},
				Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: name, ParamRef: reference, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { kubectlCleanup(t, "delete", "validatingadmissionpolicybinding", binding) })
		}
		controlplane.Eventually(t, func() error {
			labelled := pizza("labelled")
			labelled.Labels = map[string]string{name: ""}
			_, err := ha.restaurant.Pizzas(namespace).Create(ctx, labelled, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), "refused by "+name) {
				return fmt.Errorf("%s is not in force yet: %w", name, err)
			}
			return nil
		})
	}

	// The server asks kube-apiserver about a token of the cluster that comes past it.
	request, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(&rest.Config{BearerToken: request.Status.Token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	require.NoError(t, err)
	response, err := client.Get(ha.servers[0].URL() + "/apis/" + group + "/v1/toppings")
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusForbidden, response.StatusCode)

	// A flow schema that refers to nothing gets a status that says so.
	const schema = "dangling"
	_, err = kube.FlowcontrolV1().FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: schema},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "nothing"},
			MatchingPrecedence:         9000,
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { kubectlCleanup(t, "delete", "flowschema", schema) })
}

// kubectlCleanup is for the end of a test. Objects may be gone already.
func kubectlCleanup(t *testing.T, args ...string) {
	t.Helper()
	output, err := tryKubectl(context.Background(), append(args, "--ignore-not-found")...)
	require.NoError(t, err, output)
}

// permission is something that a user may do, or has done.
type permission struct {
	verb, group, resource string
	// name is empty for all names.
	name string
}

func (p permission) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s %s", p.verb, p.resource, p.group, p.name))
}

// testPermissions compares what the pods may do with what they have done.
func testPermissions(t *testing.T) {
	for _, name := range []string{"apiserver", "etcd-certificates"} {
		t.Run(name, func(t *testing.T) {
			granted := grants(t, name)
			require.NotEmpty(t, granted)
			// An event tells of a missing topping, which happens only after a race that the
			// plugins lose. The tests of pricing have servers without these plugins.
			delete(granted, permission{verb: "create", group: "events.k8s.io", resource: "events"})
			controlplane.Eventually(t, func() error {
				done, denied := audited(t, account(name))
				require.Empty(t, denied, "This was denied.")
				for p := range done {
					delete(granted, p)
					p.name = ""
					delete(granted, p)
				}
				if len(granted) > 0 {
					return fmt.Errorf("nobody has made use of the permission to %v", slices.SortedFunc(maps.Keys(granted), func(a, b permission) int {
						return strings.Compare(a.String(), b.String())
					}))
				}
				return nil
			})
		})
	}
}

// grants returns what the roles bound to a service account allow.
func grants(t *testing.T, name string) map[permission]bool {
	t.Helper()
	ctx, list := t.Context(), metav1.ListOptions{}
	roles := framework.Kube(cp).RbacV1()
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: systemNamespace}
	granted := map[permission]bool{}
	add := func(rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			require.Empty(t, rule.NonResourceURLs)
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						for _, name := range names {
							require.NotContains(t, []string{group, resource, verb, name}, "*")
							granted[permission{verb, group, resource, name}] = true
						}
					}
				}
			}
		}
	}
	clusterBindings, err := roles.ClusterRoleBindings().List(ctx, list)
	require.NoError(t, err)
	for _, binding := range clusterBindings.Items {
		if slices.Contains(binding.Subjects, subject) {
			role, err := roles.ClusterRoles().Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
			require.NoError(t, err)
			add(role.Rules)
		}
	}
	bindings, err := roles.RoleBindings("").List(ctx, list)
	require.NoError(t, err)
	for _, binding := range bindings.Items {
		if slices.Contains(binding.Subjects, subject) {
			role, err := roles.Roles(binding.Namespace).Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
			require.NoError(t, err)
			add(role.Rules)
		}
	}
	return granted
}

// audited returns what a user has done, and what it was not allowed to, by the audit log
// of kube-apiserver.
func audited(t *testing.T, user string) (done map[permission]bool, denied []string) {
	t.Helper()
	done = map[permission]bool{}
	for _, event := range framework.AuditEvents(t, filepath.Join(cp.KubeAPIServer.Dir(), auditLog), user) {
		if event.User.Username != user || event.ObjectRef == nil || event.ResponseStatus == nil {
			continue
		}
		resource := event.ObjectRef.Resource
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}
		p := permission{event.Verb, event.ObjectRef.APIGroup, resource, event.ObjectRef.Name}
		if event.Annotations["authorization.k8s.io/decision"] == "forbid" {
			denied = append(denied, fmt.Sprintf("%s: %s", p, event.Annotations["authorization.k8s.io/reason"]))
			continue
		}
		done[p] = true
	}
	require.NotEmpty(t, done)
	return done, denied
}
