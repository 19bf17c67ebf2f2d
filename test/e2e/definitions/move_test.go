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

package definitions

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// moved is a group whose objects own each other.
const moved = "cluster.x-k8s.io"

// Machines move there and back with their owners, and the garbage collector acts on none of
// them before their owner is really deleted.
func TestMove(t *testing.T) {
	require.NoError(t, crdserver.Unregister(t.Context(), framework.Config(cp), moved))
	namespace := framework.Namespace(t, cp)
	owner := createOwned(t, namespace, "clusters", object("Cluster", "cluster", map[string]any{
		"controlPlaneEndpoint": map[string]any{"host": "example.com", "port": int64(6443)},
	}), nil)
	for _, owned := range []struct{ resource, kind string }{{"machinedeployments", "MachineDeployment"}, {"machinesets", "MachineSet"}, {"machines", "Machine"}} {
		owner = createOwned(t, namespace, owned.resource, example(t, owned.kind), owner)
	}
	configMaps := framework.Kube(cp).CoreV1().ConfigMaps(namespace)
	_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "of-machine", OwnerReferences: []metav1.OwnerReference{referenceTo(owner)},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	before := everything(t, namespace)
	require.Len(t, before, 4)

	migrate(t, "run", "--raise-revision", "--service-ca-file="+cp.PKI.ServingCA.File)
	require.Empty(t, cmp.Diff(before, everything(t, namespace)))
	_, err = machines(namespace, "clusters").Patch(t.Context(), "cluster", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	changed := everything(t, namespace)

	issued, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: "migrate"})
	require.NoError(t, err)
	migrate(t, "back", "--raise-revision", "--kube-etcd-servers="+cp.Etcd.URL(), "--kube-etcd-cafile="+cp.PKI.ServingCA.File,
		"--kube-etcd-certfile="+framework.File(t, string(issued.Cert)), "--kube-etcd-keyfile="+framework.File(t, string(issued.Key)))
	require.Empty(t, cmp.Diff(changed, everything(t, namespace)))
	migrate(t, "finish")
	require.Empty(t, cmp.Diff(changed, everything(t, namespace)))
	_, err = configMaps.Get(t.Context(), "of-machine", metav1.GetOptions{})
	require.NoError(t, err)

	require.NoError(t, machines(namespace, "clusters").Delete(t.Context(), "cluster", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		if left := everything(t, namespace); len(left) > 0 {
			return fmt.Errorf("there are %d objects of the group", len(left))
		}
		if _, err := configMaps.Get(t.Context(), "of-machine", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the dependent of a machine is there"), err)
		}
		return nil
	})
}

// migrate runs a command of "migrate".
func migrate(t *testing.T, command string, args ...string) {
	t.Helper()
	args = append([]string{
		"migrate", command, "--group=" + moved, "--groups=" + moved, "--kubeconfig=" + cp.Kubeconfig(), "--data-dir=" + filepath.Join(server.Dir(), "data"),
		"--service-namespace=crd-apiserver", fmt.Sprintf("--service-port=%d", server.Port()),
	}, args...)
	code, stdout, stderr := framework.ToolOf(t, cp, "crd-apiserver", args...)
	require.Equal(t, 0, code, "%s%s", stdout, stderr)
}

func machines(namespace, resource string) dynamic.ResourceInterface {
	return framework.Dynamic(cp).Resource(schema.GroupVersionResource{Group: moved, Version: "v1beta2", Resource: resource}).Namespace(namespace)
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": moved + "/v1beta2", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// example is the one of a kind in testdata.
func example(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, example := range loadExamples(t, "testdata") {
		if example.GetKind() == kind {
			return example
		}
	}
	require.FailNow(t, "There is no example of "+kind)
	return nil
}

func createOwned(t *testing.T, namespace, resource string, object, owner *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if owner != nil {
		object.SetOwnerReferences([]metav1.OwnerReference{referenceTo(owner)})
	}
	created, err := machines(namespace, resource).Create(t.Context(), object, metav1.CreateOptions{FieldManager: "test"})
	require.NoError(t, err)
	return created
}

func referenceTo(owner *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
}

// everything is all objects that own each other, by resource, without what differs between
// two servers.
func everything(t *testing.T, namespace string) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	for _, resource := range []string{"clusters", "machinedeployments", "machinesets", "machines"} {
		list, err := machines(namespace, resource).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, item := range list.Items {
			item.SetResourceVersion("")
			found[resource+"/"+item.GetName()] = &item
		}
	}
	return found
}
