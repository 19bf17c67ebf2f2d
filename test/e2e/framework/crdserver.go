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

package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// CRDServerEtcd is the name of the etcd that StartCRDServer stores objects in.
const CRDServerEtcd = "etcd-of-custom-resources"

// WithCRDServer reports whether tests of custom resources run with crd-apiserver instead of
// kube-apiserver alone.
func WithCRDServer() bool { return os.Getenv("E2E_CRD_APISERVER") != "" }

// CRDServer returns the name of the server of custom resources, and of its account, in the
// manifests.
func CRDServer() types.NamespacedName { return crdServer }

// crdServer is the name of the server of custom resources in the manifests.
var crdServer = types.NamespacedName{Namespace: "crd-apiserver", Name: "crd-apiserver"}

// InstallCRDServer applies the manifests of the server of custom resources.
func InstallCRDServer(ctx context.Context, cp *controlplane.ControlPlane) error {
	manifests := filepath.Join("..", "..", "..", "artifacts", "crd-apiserver", "base")
	if output, err := cp.Kubectl(ctx, "apply", "--server-side", "--kustomize", manifests).CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, output)
	}
	// Only a Service of this type may lead to this machine.
	_, err := Kube(cp).CoreV1().Services(crdServer.Namespace).Patch(ctx, crdServer.Name, types.MergePatchType,
		[]byte(`{"spec":{"type":"ExternalName","externalName":"localhost","ports":null,"selector":null,"clusterIP":null,"clusterIPs":null}}`), metav1.PatchOptions{})
	return err
}

// StartCRDServer installs the server of custom resources, and starts it as in its manifests, with
// changes by config. Its groups are not registered yet.
func StartCRDServer(ctx context.Context, cp *controlplane.ControlPlane, config controlplane.ComponentConfig, groups ...string) (*controlplane.Component, error) {
	if err := InstallCRDServer(ctx, cp); err != nil {
		return nil, err
	}
	server, err := cp.NewCRDServer("crd-apiserver", controlplane.CRDServerConfig{ComponentConfig: config, Groups: groups, Service: crdServer, Account: crdServer, Etcd: CRDServerEtcd})
	if err != nil {
		return nil, err
	}
	if err := cp.Component(CRDServerEtcd).Start(ctx); err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	return server, nil
}

// NewCRDServer adds another server of custom resources, with an etcd inside its process.
func NewCRDServer(cp *controlplane.ControlPlane, name string, groups []string, flags ...string) (*controlplane.Component, error) {
	return cp.NewCRDServer(name, controlplane.CRDServerConfig{
		ComponentConfig: controlplane.ComponentConfig{Flags: flags}, Groups: groups, Service: crdServer, Account: crdServer,
	})
}

// RegisterCRDServer makes kube-apiserver send the requests for groups to the server.
func RegisterCRDServer(ctx context.Context, cp *controlplane.ControlPlane, server *controlplane.Component, groups ...string) error {
	ctx, cancel := context.WithTimeout(ctx, controlplane.Patience)
	defer cancel()
	port := int32(server.Port())
	target := crdserver.Target{
		Service:  apiregistrationv1.ServiceReference{Namespace: crdServer.Namespace, Name: crdServer.Name, Port: &port},
		CABundle: cp.PKI.ServingCA.CertPEM(),
	}
	return crdserver.Register(ctx, Config(cp), target, func(string) {}, groups...)
}

// AwaitOpenAPI returns when kube-apiserver has the OpenAPI of groups and versions. It asks a server in its own time.
func AwaitOpenAPI(ctx context.Context, cp *controlplane.ControlPlane, versions ...string) error {
	client := Kube(cp).Discovery().RESTClient()
	for _, document := range []string{"/openapi/v2", "/openapi/v3"} {
		for _, version := range versions {
			err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, controlplane.Patience, true, func(ctx context.Context) (bool, error) {
				body, err := client.Get().AbsPath(document).SetHeader("Accept", "application/json").DoRaw(ctx)
				return bytes.Contains(body, []byte("apis/"+version+`"`)) || bytes.Contains(body, []byte("apis/"+version+"/")), err
			})
			if err != nil {
				return fmt.Errorf("%s has nothing of %s: %w", document, version, err)
			}
		}
	}
	return nil
}

// MarkServed moves a server's group before kube-apiserver's own groups in discovery.
func MarkServed(t *testing.T, cp *controlplane.ControlPlane, group string) {
	t.Helper()
	client := aggregator.NewForConfigOrDie(Config(cp)).ApiregistrationV1().APIServices()
	list, err := client.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, apiService := range list.Items {
		if apiService.Spec.Group == group && apiService.Spec.Service != nil {
			_, err := client.Patch(t.Context(), apiService.Name, types.MergePatchType, []byte(`{"spec":{"groupPriorityMinimum":19999}}`), metav1.PatchOptions{})
			require.NoError(t, err)
		}
	}
	controlplane.Eventually(t, func() error { return servedFirst(t, cp, group, true) })
}

// RequireForgotten requires that kube-apiserver has forgotten the discovery of a marked group's
// server, but still has the group. Otherwise no namespace could be deleted once that server is
// gone.
func RequireForgotten(t *testing.T, cp *controlplane.ControlPlane, group string) {
	t.Helper()
	controlplane.Eventually(t, func() error { return servedFirst(t, cp, group, false) })
}

func servedFirst(t *testing.T, cp *controlplane.ControlPlane, group string, want bool) error {
	t.Helper()
	content, err := Kube(cp).Discovery().RESTClient().Get().AbsPath("/apis").
		SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").DoRaw(t.Context())
	require.NoError(t, err)
	var list apidiscoveryv2.APIGroupDiscoveryList
	require.NoError(t, json.Unmarshal(content, &list))
	position := func(name string) int {
		return slices.IndexFunc(list.Items, func(item apidiscoveryv2.APIGroupDiscovery) bool { return item.Name == name })
	}
	switch at := position(group); {
	case at < 0:
		return fmt.Errorf("%s is not in discovery", group)
	case at < position("apps") != want:
		return fmt.Errorf("%s is at position %d of discovery", group, at)
	}
	return nil
}
