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
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

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
