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
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A quota of the cluster counts objects, also those that are created at the same time.
func TestQuota(t *testing.T) {
	framework.Long(t, "the quota controller discovers new kinds after a while")
	t.Parallel()
	const group, most = "counted.example.com", 3
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	quotas := framework.Kube(cp).CoreV1().ResourceQuotas(ns)
	counted := corev1.ResourceName("count/widgets." + group)
	used := func(want int64) error {
		quota, err := quotas.Get(t.Context(), "few", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got, known := quota.Status.Used[counted]; !known || got.Value() != want {
			return fmt.Errorf("the quota has the status %v, and not %d", quota.Status, want)
		}
		return nil
	}
	// kube-controller-manager looks for new resources every 30 seconds, and then does not look at the
	// quotas again that it knows.
	controlplane.Eventually(t, func() error {
		err := quotas.Delete(t.Context(), "few", metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		_, err = quotas.Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "few"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: *resource.NewQuantity(most, resource.DecimalSI)}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return wait.PollUntilContextTimeout(t.Context(), time.Second/10, 2*time.Second, true, func(context.Context) (bool, error) { return used(0) == nil, nil })
	})
	// The server may learn of the quota a moment later.
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", "one", 1), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if err := used(1); err != nil {
			return errors.Join(err, widgetsIn(group, "v1", ns).Delete(t.Context(), "one", metav1.DeleteOptions{}))
		}
		return nil
	})
	outcomes := make(chan error, 2*most)
	for i := range cap(outcomes) {
		go func() {
			_, err := widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", fmt.Sprint("more-", i), 1), metav1.CreateOptions{})
			outcomes <- err
		}()
	}
	created := 1
	for range cap(outcomes) {
		if err := <-outcomes; err == nil {
			created++
		} else {
			require.ErrorContains(t, err, "exceeded quota: few")
		}
	}
	require.Equal(t, most, created)
	controlplane.Eventually(t, func() error { return used(most) })
	require.NoError(t, widgetsIn(group, "v1", ns).Delete(t.Context(), "one", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error { return used(most - 1) })
}

// Several servers with one etcd serve the same, and follow the same definitions.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const group = "replicated.example.com"
	second, err := cp.NewCRDServer("crd-apiserver-second", controlplane.CRDServerConfig{
		Groups: groups(), Service: framework.CRDServer(), Account: framework.CRDServer(), Etcd: framework.CRDServerEtcd,
	})
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	ns := framework.Namespace(t, cp)
	definition := widgets(group, false)
	define(t, definition)
	other := dynamic.NewForConfigOrDie(framework.AdminConfig(t, cp, second)).
		Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Namespace(ns)
	controlplane.Eventually(t, func() error {
		_, err := other.List(t.Context(), metav1.ListOptions{})
		return err
	})
	events, err := other.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer events.Stop()
	created := create(t, group, "v1", ns, "one")
	require.Equal(t, watch.Event{Type: watch.Added, Object: created}, <-events.ResultChan())
	got, err := other.Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, created, got)

	properties := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	colour := properties["colour"]
	colour.Default.Raw = []byte(`"green"`)
	properties["colour"] = colour
	content, err := json.Marshal(definition)
	require.NoError(t, err)
	apply(t, content)
	for name, client := range map[string]dynamic.ResourceInterface{"first": widgetsIn(group, "v1", ns), "second": other} {
		controlplane.Eventually(t, func() error {
			created, err := client.Create(t.Context(), widget(group, "v1", "two", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && created.Object["spec"].(map[string]any)["colour"] != "green" {
				err = fmt.Errorf("the %s server has not followed the definition: %v", name, created.Object["spec"])
			}
			return err
		})
	}
}

// Objects are encrypted, and come back from a snapshot, in which all are looked at.
func TestEncryptedAndRestored(t *testing.T) {
	t.Parallel()
	const group = "kept.example.com"
	encryption := "--encryption-provider-config=" + framework.File(t, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [widgets.`+group+`]
  providers: [{secretbox: {keys: [{name: key, secret: YS0zMi1ieXRlLWtleS1mb3ItZW5jcnlwdGlvbi1zZWM=}]}}]
`)
	kept, err := framework.NewCRDServer(cp, "crd-apiserver-kept", []string{group}, encryption)
	require.NoError(t, err)
	require.NoError(t, kept.Start(t.Context()))
	ns := framework.Namespace(t, cp)
	defineAt(t, kept, widgets(group, false))
	before := create(t, group, "v1", ns, "one")

	dir := filepath.Join(kept.Dir(), "data")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dir, "etcd.sock")}})
	require.NoError(t, err)
	key := "/registry/" + group + "/widgets/" + ns + "/one"
	found, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	require.Len(t, found.Kvs, 1)
	value, err := etcd.OpenValue(key, found.Kvs[0].Value)
	require.NoError(t, err)
	require.Regexp(t, "^k8s:enc:secretbox:v1:key:", string(value))

	tool := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := framework.ToolOf(t, cp, "crd-apiserver", append([]string{"snapshot"}, args...)...)
		require.Equal(t, 0, code, stderr)
		return stdout + stderr
	}
	snapshot, restored := filepath.Join(t.TempDir(), "snapshot"), filepath.Join(kept.Dir(), "restored")
	tool("save", snapshot, "--data-dir="+dir)
	require.Contains(t, tool("verify", snapshot, encryption), "widgets."+group+": 1 stored values can be served in every version\n")
	require.NoError(t, widgetsIn(group, "v1", ns).Delete(t.Context(), "one", metav1.DeleteOptions{}))
	tool("restore", snapshot, "--data-dir="+restored)
	kept.SetFlags(encryption, "--data-dir="+restored)
	require.NoError(t, kept.Restart(t.Context()))
	controlplane.Eventually(t, func() error {
		after, err := widgetsIn(group, "v1", ns).Get(t.Context(), "one", metav1.GetOptions{})
		if err == nil {
			require.Equal(t, before, after)
		}
		return err
	})
	_, err = widgetsIn(group, "v1", ns).Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}

// Each check of the server has a name of its own, and so has the server in its documents. The path
// of a check that was registered twice told nothing of the caches.
func TestNames(t *testing.T) {
	t.Parallel()
	client := kubernetes.NewForConfigOrDie(framework.AdminConfig(t, cp, server)).Discovery().RESTClient()
	checks, err := client.Get().AbsPath("/readyz").Param("verbose", "").DoRaw(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(checks), "[+]definition-caches ok\n"), "%s", checks)
	require.NotContains(t, string(checks), "storage-readiness")
	document, err := client.Get().AbsPath("/openapi/v2").DoRaw(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(document), `"title":"crd-apiserver"`)
}

// An object of a restored snapshot whose namespace has been deleted since can be changed and deleted,
// also if policies and webhooks select by namespaces.
func TestObjectsWithoutNamespace(t *testing.T) {
	t.Parallel()
	const group = "orphaned.example.com"
	ns := framework.Namespace(t, cp)
	define(t, widgets(group, false))
	held := widget(group, "v1", "held", 1)
	held.SetFinalizers([]string{"example.com/held"})
	_, err := widgetsIn(group, "v1", ns).Create(t.Context(), held, metav1.CreateOptions{})
	require.NoError(t, err)
	crdEtcd := cp.Component(framework.CRDServerEtcd)
	before := stored(t, crdEtcd, group, ns, "held")
	release := func(t *testing.T) error {
		_, err := widgetsIn(group, "v1", ns).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	}
	require.NoError(t, release(t))
	require.NoError(t, widgetsIn(group, "v1", ns).Delete(t.Context(), "held", metav1.DeleteOptions{}))
	require.NoError(t, framework.Kube(cp).CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		_, err := framework.Kube(cp).CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the namespace is there: %w", err)
	})
	policies := cp.Kubectl(t.Context(), "create", "--filename=-")
	policies.Stdin = strings.NewReader(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: orphaned}
spec:
  matchConstraints:
    namespaceSelector: {matchExpressions: [{key: example.com/off, operator: DoesNotExist}]}
    resourceRules: [{apiGroups: [` + group + `], apiVersions: ["*"], resources: ["*"], operations: ["*"]}]
  validations: [{expression: 'namespaceObject.metadata.name != "" && !(has(object.spec) && object.spec.size == 9)'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: orphaned}
spec: {policyName: orphaned, validationActions: [Deny]}
`)
	output, err := policies.CombinedOutput()
	require.NoError(t, err, "%s", output)
	other := framework.Namespace(t, cp)
	create(t, group, "v1", other, "probe")
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v1", other).Patch(t.Context(), "probe", types.MergePatchType, []byte(`{"spec":{"size":9}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policy does not hold yet")
		}
		return nil
	})
	_, err = etcdClient(t, crdEtcd).Put(t.Context(), keyOf(group, ns, "held"), string(before))
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		_, err := widgetsIn(group, "v1", ns).Get(t.Context(), "held", metav1.GetOptions{ResourceVersion: "0"})
		return err
	})
	_, err = widgetsIn(group, "v1", ns).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = widgetsIn(group, "v1", ns).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"spec":{"size":9}}`), metav1.PatchOptions{})
	framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
	_, err = widgetsIn(group, "v1", ns).Create(t.Context(), widget(group, "v1", "another", 1), metav1.CreateOptions{})
	framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
	require.NoError(t, widgetsIn(group, "v1", ns).Delete(t.Context(), "held", metav1.DeleteOptions{}))
	require.NoError(t, release(t))
	_, err = widgetsIn(group, "v1", ns).Get(t.Context(), "held", metav1.GetOptions{})
	framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
}

// Policies for other groups whose parameters the server has are not evaluated while kube-apiserver
// can't read these. docs/crd-apiserver/README.md says what is admitted then.
func TestParametersOfTheServer(t *testing.T) {
	framework.Long(t, "kube-apiserver restarts without the server")
	t.Parallel()
	const group = "parameters.example.com"
	cp := controlplane.ForTest(t, controlplane.Config{APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}}})
	server, err := framework.StartCRDServer(t.Context(), cp, controlplane.ComponentConfig{}, group)
	require.NoError(t, err)
	content, err := json.Marshal(widgets(group, false))
	require.NoError(t, err)
	kubectl := func(content string) error {
		command := cp.Kubectl(t.Context(), "apply", "--server-side", "--filename=-")
		command.Stdin = strings.NewReader(content)
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}
	require.NoError(t, kubectl(string(content)))
	require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, group))
	controlplane.Eventually(t, func() error {
		return kubectl(`{apiVersion: ` + group + `/v1, kind: Widget, metadata: {name: most, namespace: default}, spec: {size: 3}}`)
	})
	for _, failure := range []string{"Fail", "Ignore"} {
		name := strings.ToLower(failure)
		require.NoError(t, kubectl(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: `+name+`}
spec:
  failurePolicy: `+failure+`
  paramKind: {apiVersion: `+group+`/v1, kind: Widget}
  matchConstraints:
    objectSelector: {matchLabels: {judged: `+name+`}}
    resourceRules: [{apiGroups: [coordination.k8s.io], apiVersions: ["*"], resources: [leases], operations: ["*"]}]
  validations: [{expression: 'object.metadata.name.size() <= params.spec.size'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: `+name+`}
spec: {policyName: `+name+`, validationActions: [Deny], paramRef: {name: most, namespace: default, parameterNotFoundAction: Deny}}
`))
	}
	lease := func(name, judged string) error {
		_, err := framework.Kube(cp).CoordinationV1().Leases("default").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"judged": judged}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, judged := range []string{"fail", "ignore"} {
		controlplane.Eventually(t, func() error {
			if err := lease("long", judged); err == nil || !strings.Contains(err.Error(), "failed expression") {
				return fmt.Errorf("the policy does not hold yet: %w", err)
			}
			return nil
		})
		require.NoError(t, lease("a", judged))
	}
	refused := func(judged, name, why string) {
		t.Helper()
		err := lease(name, judged)
		framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
		require.ErrorContains(t, err, why)
	}
	const unequal = "failed expression: object.metadata.name.size() <= params.spec.size"
	require.NoError(t, server.Stop())
	for _, judged := range []string{"fail", "ignore"} {
		require.NoError(t, lease("a", judged))
		refused(judged, "long", unequal)
	}
	require.NoError(t, cp.KubeAPIServer.Restart(t.Context()))
	refused("fail", "a", "failed to configure policy: failed to find resource referenced by paramKind")
	for _, name := range []string{"a", "long"} {
		require.NoError(t, lease(name, "ignore"))
		require.NoError(t, lease(name, "other"))
	}
	require.NoError(t, server.Start(t.Context()))
	controlplane.Eventually(t, func() error { return lease("a", "fail") })
	for _, judged := range []string{"fail", "ignore"} {
		require.NoError(t, lease("a", judged))
		refused(judged, "long", unequal)
	}
}
