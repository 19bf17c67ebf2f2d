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

package customresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func dynamicREST(config *rest.Config) (rest.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.Discovery().RESTClient(), nil
}

func lines(content []byte) []string { return strings.Split(string(content), "\n") }

// Objects are in the server's etcd and not in the cluster's. What k8s.io/apiextensions-apiserver does with them is
// tested in test/e2e/crd, by "make nightly SUITE=crd-apiserver".
func TestObjects(t *testing.T) {
	t.Parallel()
	const group = "objects.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, true))
	client := widgetsIn(group, "v1", ns)

	events, err := client.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer events.Stop()

	pruned := widget(group, "v1", "one", 3)
	pruned.Object["spec"].(map[string]any)["unknown"] = "x"
	pruned.Object["spec"].(map[string]any)["free"] = map[string]any{"anything": "stays"}
	created, err := client.Create(t.Context(), pruned, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"size": int64(3), "colour": "red", "free": map[string]any{"anything": "stays"}}, created.Object["spec"])
	require.EqualValues(t, 1, created.GetGeneration())
	event := <-events.ResultChan()
	require.Equal(t, watch.Added, event.Type)
	require.Equal(t, created, event.Object)

	value := stored(t, cp.Component(framework.CRDServerEtcd), group, ns, "one")
	require.NotNil(t, value)
	var content struct{ APIVersion, Kind string }
	require.NoError(t, json.Unmarshal(value, &content))
	require.Equal(t, group+"/v1 Widget", content.APIVersion+" "+content.Kind)
	require.Nil(t, stored(t, cp.Etcd, group, ns, "one"))

	_, err = client.Create(t.Context(), widget(group, "v1", "large", 11), metav1.CreateOptions{})
	status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
	require.Contains(t, status.Message, "nothing large is red")

	controlplane.Eventually(t, func() error {
		output, err := cp.Kubectl(t.Context(), "get", "widgets."+group, "--namespace="+ns, "--no-headers").Output()
		require.NoError(t, err, string(output))
		require.Equal(t, []string{"one", "3"}, strings.Fields(strings.Split(string(output), "\n")[0]))
		return nil
	})
	output, err := cp.Kubectl(t.Context(), "explain", "widgets.spec.colour", "--api-version="+group+"/v1").CombinedOutput()
	require.NoError(t, err, string(output))
	require.Contains(t, string(output), "colour <string>")

	require.NoError(t, client.Delete(t.Context(), "one", metav1.DeleteOptions{}))
	require.Nil(t, stored(t, cp.Component(framework.CRDServerEtcd), group, ns, "one"))
}

// The definitions themselves are kube-apiserver's: the server has copies, which it shows
// nobody.
func TestDefinitionsArePrivate(t *testing.T) {
	t.Parallel()
	config, err := cp.RESTConfigFor("admin", "system:masters")
	require.NoError(t, err)
	config.Host = server.URL()
	client, err := dynamicREST(config)
	require.NoError(t, err)
	for _, path := range []string{
		"/apis/apiextensions.k8s.io", "/apis/apiextensions.k8s.io/v1", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	} {
		content, err := client.Get().AbsPath(path).DoRaw(t.Context())
		require.Error(t, err, "%s is served: %s", path, content)
		framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3"} {
		content, err := client.Get().AbsPath(path).DoRaw(t.Context())
		require.NoError(t, err)
		require.NotContains(t, string(content), "apis/apiextensions.k8s.io")
	}
	content, err := client.Get().AbsPath("/apis").SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").DoRaw(t.Context())
	require.NoError(t, err)
	require.NotContains(t, string(content), "apiextensions.k8s.io")
}

// A resource is served by its own name only. The library finds it by another one, too: to users who
// may do something in a group that ends alike.
func TestAliasesOfResources(t *testing.T) {
	t.Parallel()
	const group, user = "aliased.example.com", "parent"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	create(t, group, "v1", ns, "one")
	_, err := framework.Kube(cp).RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"example.com"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	framework.Kubectl(t, cp, "create", "rolebinding", user, "--namespace="+ns, "--role="+user, "--user="+user)
	alias := "/apis/example.com/v1/namespaces/" + ns + "/widgets.aliased/one"
	for name, config := range map[string]*rest.Config{
		"a user of the other group": framework.ConfigFor(t, cp, server, user), "an administrator": framework.AdminConfig(t, cp, server),
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodPut, http.MethodDelete} {
				request, err := http.NewRequestWithContext(t.Context(), method, config.Host+alias, strings.NewReader("{}"))
				require.NoError(t, err)
				request.Header.Set("Content-Type", "application/merge-patch+json")
				response, err := framework.HTTPClient(t, config).Do(request)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, response.StatusCode, method)
			}
		})
	}
	_, err = widgetsIn(group, "v1", ns).Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
}

// Objects survive a restart, even if their definition is gone. This test does
// not run beside the others, which need the server.
func TestRestart(t *testing.T) {
	const group = "restarted.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	before := create(t, group, "v1", ns, "survivor")
	later := create(t, group, "v1", ns, "later")
	framework.DeleteDefinition(t, cp, "widgets."+group)
	require.NoError(t, server.Restart(context.WithoutCancel(t.Context())))
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v1", ns).Get(t.Context(), "survivor", metav1.GetOptions{})
		return err
	})
	after, err := widgetsIn(group, "v1", ns).Get(t.Context(), "survivor", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, before, after)
	// A watch goes on where it was.
	events, err := widgetsIn(group, "v1", ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.GetResourceVersion()})
	require.NoError(t, err)
	defer events.Stop()
	event := <-events.ResultChan()
	require.Equal(t, watch.Added, event.Type, "%v", event.Object)
	require.Equal(t, later, event.Object)
}

// Without etcd, clients are told to try again.
func TestWithoutEtcd(t *testing.T) {
	const group = "etcd.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	create(t, group, "v1", ns, "one")
	etcd := cp.Component(framework.CRDServerEtcd)
	etcd.Kill()
	client, err := dynamicREST(framework.AdminConfig(t, cp, server))
	require.NoError(t, err)
	content, err := json.Marshal(widget(group, "v1", "two", 1))
	require.NoError(t, err)
	err = client.Post().AbsPath("/apis", group, "v1/namespaces", ns, "widgets").SetHeader("Content-Type", "application/json").
		Body(content).MaxRetries(0).Do(t.Context()).Error()
	require.NoError(t, etcd.Start(context.WithoutCancel(t.Context())))
	seconds, retry := apierrors.SuggestsClientDelay(err)
	require.True(t, retry, "%v", err)
	require.Equal(t, 2, seconds)
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v1", ns).Get(t.Context(), "one", metav1.GetOptions{})
		return err
	})
}

// The cluster's policies hold as for kube-apiserver's own custom resources, in all versions.
func TestAdmission(t *testing.T) {
	t.Parallel()
	const group = "admitted.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, true))
	policies := framework.Kube(cp).AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-green"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.spec.colour != 'green'", Message: "no green"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-green"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "no-green", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	green := widget(group, "v2", "green", 1)
	green.Object["spec"].(map[string]any)["colour"] = "green"
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v2", ns).Create(t.Context(), green, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policy does not hold yet")
		}
		require.ErrorContains(t, err, "no green")
		return nil
	})
}

// A resource without a watch cache has lists, pages, watches and informers.
func TestWithoutWatchCache(t *testing.T) {
	t.Parallel()
	const group = "uncached.example.com"
	uncached, err := framework.NewCRDServer(cp, "crd-apiserver-uncached", []string{group}, "--watch-cache-sizes=widgets."+group+"#0")
	require.NoError(t, err)
	require.NoError(t, uncached.Start(t.Context()))
	ns := framework.Namespace(t, cp)
	defineAt(t, uncached, widgets(group, true))
	create(t, group, "v1", ns, "one")
	create(t, group, "v1", ns, "two")
	resource := schema.GroupVersionResource{Group: group, Version: "v2", Resource: "widgets"}

	page, err := widgetsIn(group, "v2", ns).List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "one", page.Items[0].GetName())
	page, err = widgetsIn(group, "v2", ns).List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.GetContinue()})
	require.NoError(t, err)
	require.Equal(t, "two", page.Items[0].GetName())

	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(framework.Dynamic(cp), 0, ns, nil)
	informer := factory.ForResource(resource).Informer()
	go informer.RunWithContext(t.Context())
	create(t, group, "v1", ns, "three")
	controlplane.Eventually(t, func() error {
		if keys := informer.GetStore().ListKeys(); len(keys) != 3 {
			return fmt.Errorf("the informer has %v", keys)
		}
		return nil
	})
	_, metrics := framework.Get(t, cp, uncached, "/metrics")
	require.NotRegexp(t, `apiserver_watch_cache_initializations_total\{group="`+group, metrics)
}
