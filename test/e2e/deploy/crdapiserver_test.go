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
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	// crdServer is the name of the server of custom resources, its namespace and its Service.
	crdServer = "crd-apiserver"
	// crdGroup is the one that its manifests name.
	crdGroup = "example.com"
)

func crdOverlay(name string) string {
	return filepath.Join(root, "artifacts", "crd-apiserver", "overlays", name)
}

// crdKustomization writes one of an overlay with components of artifacts/crd-apiserver.
func crdKustomization(t *testing.T, overlay string, components ...string) string {
	t.Helper()
	for i, component := range components {
		components[i] = "../crd-apiserver/components/" + component
	}
	return kustomization(t, "../crd-apiserver/overlays/"+overlay, components, "")
}

// TestCRDServer runs the pods of the server of custom resources, with the certificate that one
// of them makes. It runs them again with what the first server has stored.
func TestCRDServer(t *testing.T) {
	framework.Long(t, "pods are run")
	dir := crdKustomization(t, "standalone", "doctor")
	install(t, dir)
	found := pods(t, crdServer, map[string]int{crdServer: 1, "crd-apiserver-certificates": 1})
	machine := newMachine("crd-")
	machine.claims["crd-apiserver-data"] = shortDirectory(t)
	server, secret := runCRDServer(t, machine, crdServer, found)

	things := defineThings(t)
	register(t, crdServer, server, secret.Data["ca.crt"])
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": crdGroup + "/v1", "kind": "Thing", "metadata": map[string]any{"name": "one"}}}
	client := framework.Dynamic(cp).Resource(things).Namespace(metav1.NamespaceDefault)
	_, err := client.Create(t.Context(), thing, metav1.CreateOptions{})
	require.NoError(t, err)

	doctor := podTemplates(t, render(t, dir))["doctor"].Spec
	checks := map[string]string{}
	_, results := examine(t, crdServer, crdServer, doctor)
	for _, result := range results {
		checks[result.Check] = result.Status
	}
	require.Equal(t, "ok", checks["apiservices"])
	require.Equal(t, "ok", checks["permissions"])
	require.Equal(t, "ok", checks["availability"])

	server.Kill()
	require.NoError(t, server.Start(t.Context()))
	// kube-apiserver finds out in its own time that the server is back.
	controlplane.Eventually(t, func() error {
		_, err := client.Get(t.Context(), "one", metav1.GetOptions{})
		return err
	})
}

// runCRDServer runs the pods of an installation. The Secret has the server's certificate.
func runCRDServer(t *testing.T, machine *machine, namespace string, found map[string][]corev1.Pod) (*controlplane.Component, *corev1.Secret) {
	t.Helper()
	machine.run(t, found["crd-apiserver-certificates"][0])
	var secret *corev1.Secret
	controlplane.Eventually(t, func() (err error) {
		secret, err = framework.Kube(cp).CoreV1().Secrets(namespace).Get(t.Context(), "crd-apiserver-serving", metav1.GetOptions{})
		if err == nil && len(secret.Data) == 0 {
			err = errors.New("there is no certificate yet")
		}
		return err
	})
	return machine.runAll(t, found[crdServer])[0], secret
}

// TestCRDServerWithHA has all pods admitted, of every component.
func TestCRDServerWithHA(t *testing.T) {
	framework.Long(t, "pods are run")
	install(t, crdKustomization(t, "ha", "backup-etcd", "doctor"))
	pods(t, crdServer, map[string]int{crdServer: 3, "crd-apiserver-certificates": 1, "etcd": 3, "etcd-certificates": 1})
}

// defineThings creates a definition, which goes with the test.
func defineThings(t *testing.T) schema.GroupVersionResource {
	t.Helper()
	definitions := clientset.NewForConfigOrDie(framework.Config(cp)).ApiextensionsV1().CustomResourceDefinitions()
	const name = "things." + crdGroup
	_, err := definitions.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: crdGroup,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background() // The test's own is over.
		require.NoError(t, definitions.Delete(ctx, name, metav1.DeleteOptions{}))
		controlplane.Eventually(t, func() error {
			if _, err := definitions.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return errors.Join(fmt.Errorf("%s is still there", name), err)
			}
			return nil
		})
	})
	return schema.GroupVersionResource{Group: crdGroup, Version: "v1", Resource: "things"}
}

// register has kube-apiserver send requests to the server, which it reaches on this machine,
// until the test ends.
func register(t *testing.T, namespace string, server *controlplane.Component, caBundle []byte) {
	t.Helper()
	_, err := framework.Kube(cp).CoreV1().Services(namespace).Patch(t.Context(), crdServer, types.MergePatchType,
		[]byte(`{"spec":{"type":"ExternalName","externalName":"localhost","ports":null,"selector":null,"clusterIP":null,"clusterIPs":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	port := int32(server.Port())
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	require.NoError(t, crdserver.Register(ctx, framework.Config(cp), crdserver.Target{
		Service: apiregistrationv1.ServiceReference{Namespace: namespace, Name: crdServer, Port: &port}, CABundle: caBundle,
	}, func(string) {}, crdGroup))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), controlplane.Patience)
		defer cancel()
		require.NoError(t, crdserver.Unregister(ctx, framework.Config(cp), crdGroup))
	})
}
