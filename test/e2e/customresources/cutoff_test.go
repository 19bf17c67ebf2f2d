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
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// way leads to kube-apiserver until it is cut.
type way struct {
	listener net.Listener
	mu       sync.Mutex
	isCut    bool
	conns    []net.Conn
}

// newWay returns a way, and the configuration of a replica that takes it.
func newWay(t *testing.T) (w *way, kubeconfig string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w = &way{listener: listener}
	t.Cleanup(func() {
		w.cut(true)
		_ = listener.Close()
	})
	target := fmt.Sprintf("127.0.0.1:%d", cp.KubeAPIServer.Port())
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if server, err := net.Dial("tcp", target); err != nil || !w.keep(client, server) {
				_ = client.Close()
			} else {
				go func() { _, _ = io.Copy(server, client) }()
				go func() { _, _ = io.Copy(client, server) }()
			}
		}
	}()
	account := framework.CRDServer()
	file, err := cp.KubeconfigFor(serviceaccount.MakeUsername(account.Namespace, account.Name), serviceaccount.MakeGroupNames(account.Namespace)...)
	require.NoError(t, err)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	led := bytes.ReplaceAll(content, []byte(cp.KubeAPIServer.URL()), []byte("https://"+listener.Addr().String()))
	require.NotEqual(t, content, led)
	return w, framework.File(t, string(led))
}

func (w *way) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isCut {
		w.conns = append(w.conns, conns...)
	}
	return !w.isCut
}

func (w *way) cut(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = cut
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}

// A replica that can't reach kube-apiserver follows the definition by the copy that another one writes. So
// objects can be rewritten in another version, and the old one removed, without a replica that still writes or
// can't read any. It answers no user meanwhile whose permissions it would have to ask kube-apiserver for.
func TestVersionRemovedWhileAReplicaIsCutOff(t *testing.T) {
	framework.Long(t, "two servers start, and one restarts")
	t.Parallel()
	const group, etcd = "cutoff.example.com", "etcd-of-replicas"
	account := framework.CRDServer()
	config := controlplane.CRDServerConfig{Groups: []string{group}, Service: account, Account: account, Etcd: etcd}
	near, err := cp.NewCRDServer("crd-apiserver-near", config)
	require.NoError(t, err)
	way, kubeconfig := newWay(t)
	config.Flags = []string{"--kubeconfig=" + kubeconfig}
	far, err := cp.NewCRDServer("crd-apiserver-far", config)
	require.NoError(t, err)
	require.NoError(t, cp.Component(etcd).Start(t.Context()))
	require.NoError(t, near.Start(t.Context()))
	require.NoError(t, far.Start(t.Context()))
	ns := framework.Namespace(t, cp)
	at := func(version, user string, groups ...string) dynamic.ResourceInterface {
		return dynamic.NewForConfigOrDie(framework.ConfigFor(t, cp, far, user, groups...)).Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "widgets"}).Namespace(ns)
	}
	apiVersionOf := func(name string) string {
		t.Helper()
		var content struct{ APIVersion string }
		require.NoError(t, json.Unmarshal(stored(t, cp.Component(etcd), group, ns, name), &content))
		return content.APIVersion
	}
	definition := widgets(group, true)
	change := func(change func(*apiextensionsv1.CustomResourceDefinition)) {
		t.Helper()
		change(definition)
		content, err := json.Marshal(definition)
		require.NoError(t, err)
		apply(t, content)
	}
	defineAt(t, near, definition)
	create(t, group, "v1", ns, "old")
	controlplane.Eventually(t, func() error {
		_, err := at("v1", "admin", "system:masters").Get(t.Context(), "old", metav1.GetOptions{})
		return err
	})
	require.Equal(t, group+"/v1", apiVersionOf("old"))

	way.cut(true)
	change(func(definition *apiextensionsv1.CustomResourceDefinition) {
		definition.Spec.Versions[0].Storage, definition.Spec.Versions[1].Storage = false, true
	})
	written := func(client dynamic.ResourceInterface, version, name string) {
		t.Helper()
		controlplane.Eventually(t, func() error {
			if _, err := client.Create(t.Context(), widget(group, version, name, 1), metav1.CreateOptions{}); err != nil {
				return err
			}
			if got := apiVersionOf(name); got != group+"/v2" {
				require.NoError(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
				return fmt.Errorf("%s is stored as %s", name, got)
			}
			return nil
		})
	}
	written(widgetsIn(group, "v1", ns), "v1", "near")
	written(at("v1", "admin", "system:masters"), "v1", "far")
	_, err = widgetsIn(group, "v2", ns).Patch(t.Context(), "old", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, group+"/v2", apiVersionOf("old"))
	_, err = at("v2", "stranger").List(t.Context(), metav1.ListOptions{})
	framework.RequireStatus(t, err, 503, metav1.StatusReasonServiceUnavailable)

	_, err = definitions().ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), definition.Name, types.MergePatchType,
		[]byte(`{"status":{"storedVersions":["v2"]}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	change(func(definition *apiextensionsv1.CustomResourceDefinition) {
		definition.Spec.Versions = definition.Spec.Versions[1:]
	})
	controlplane.Eventually(t, func() error {
		if _, err := at("v1", "admin", "system:masters").List(t.Context(), metav1.ListOptions{}); err == nil {
			return fmt.Errorf("the replica that is cut off still serves v1")
		}
		return nil
	})
	everything := func(client dynamic.ResourceInterface) map[string]any {
		t.Helper()
		found := map[string]any{}
		controlplane.Eventually(t, func() error {
			list, err := client.List(t.Context(), metav1.ListOptions{})
			if err == nil {
				clear(found)
				for _, item := range list.Items {
					found[item.GetName()], _, err = unstructured.NestedFieldNoCopy(item.Object, "spec", "size")
				}
			}
			return err
		})
		return found
	}
	want := map[string]any{"old": int64(2), "near": int64(1), "far": int64(1)}
	require.Equal(t, want, everything(widgetsIn(group, "v2", ns)))
	require.Equal(t, want, everything(at("v2", "admin", "system:masters")))
	way.cut(false)
	require.NoError(t, far.Restart(t.Context()))
	require.Equal(t, want, everything(at("v2", "admin", "system:masters")))
}
