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
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// instance writes a kustomization of an overlay under other names.
func instance(t *testing.T, overlay, name, namespace string, components ...string) string {
	t.Helper()
	dir := kustomization(t, "overlays/"+overlay, append(components, "components/instance"), "")
	file := filepath.Join(dir, "kustomization.yaml")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var parsed map[string]any
	require.NoError(t, yaml.Unmarshal(content, &parsed))
	parsed["resources"] = append(parsed["resources"].([]any), "instance.yaml")
	content, err = yaml.Marshal(parsed)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "instance.yaml"), fmt.Appendf(nil, `{apiVersion: v1, kind: ConfigMap, data: {name: %s, namespace: %s},
metadata: {name: instance, annotations: {config.kubernetes.io/local-config: "true"}}}`, name, namespace), 0o600))
	return dir
}

// TestNamesOfInstances finds no name of the manifests in an instance with another one that
// would get in the way of either.
func TestNamesOfInstances(t *testing.T) {
	for overlay, backup := range map[string]string{"standalone": "components/backup-embedded", "ha": "components/backup-etcd"} {
		t.Run(overlay, func(t *testing.T) {
			components := []string{"components/monitoring", backup, "components/doctor", "../examples/second-scheduler", "components/webhook", "components/migrate"}
			plain := render(t, kustomization(t, "overlays/"+overlay, components, ""))
			require.Equal(t, plain, render(t, instance(t, overlay, "restaurant", systemNamespace, components...)))
			for _, object := range render(t, instance(t, overlay, "trattoria", "trattoria-system", components...)) {
				text, err := object.MarshalJSON()
				require.NoError(t, err)
				require.NotContains(t, string(text), systemNamespace)
			}

			components = append(components[:3], "components/unregistered")
			others := map[string]bool{}
			for _, object := range plain {
				others[identity(object)] = true
			}
			objects := render(t, instance(t, overlay, "trattoria", "trattoria-system", components...))
			roles := map[string]bool{"ClusterRole  system:auth-delegator": true, "Role kube-system extension-apiserver-authentication-reader": true}
			for _, object := range objects {
				require.NotContains(t, others, identity(object))
				require.Equal(t, "trattoria-apiserver", object.GetLabels()["app.kubernetes.io/part-of"], identity(object))
				roles[identity(object)] = true
			}
			for _, object := range objects {
				kind, name, found := roleRef(t, object)
				if !found {
					continue
				}
				namespace := object.GetNamespace()
				if kind == "ClusterRole" {
					namespace = ""
				}
				require.Contains(t, roles, kind+" "+namespace+" "+name, "%s refers to it.", identity(object))
			}
		})
	}
}

func identity(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetNamespace() + " " + object.GetName()
}

func roleRef(t *testing.T, object *unstructured.Unstructured) (kind, name string, found bool) {
	t.Helper()
	kind, found, err := unstructured.NestedString(object.Object, "roleRef", "kind")
	require.NoError(t, err)
	name, _, err = unstructured.NestedString(object.Object, "roleRef", "name")
	require.NoError(t, err)
	return kind, name, found
}

// TestTwoInstances runs an instance beside the one that serves the group, which does not
// notice.
func TestTwoInstances(t *testing.T) {
	framework.Long(t, "pods are run")
	const otherNamespace = "trattoria-system"
	install(t, overlayDirectory("standalone"))
	other := instance(t, "standalone", "trattoria", otherNamespace, "components/unregistered")
	kubectl(t, "apply", "-k", other)
	run := func(namespace string) *controlplane.Component {
		t.Helper()
		machine := newMachine(namespace + "-")
		machine.claims["apiserver-data"] = shortDirectory(t)
		return machine.runAll(t, pods(t, namespace, overlays()["standalone"])[serverName])[0]
	}
	restaurant := serve(t, run(systemNamespace))
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato"))
	trusted := kubectl(t, "get", "apiservices", "v1.restaurant.programming-kubernetes.info", "--output=jsonpath={.spec}")

	run(otherNamespace)
	// Each has a certificate authority of its own, and controllers that run.
	controlplane.Eventually(t, func() error {
		_, err := framework.Kube(cp).CoordinationV1().Leases(otherNamespace).Get(t.Context(), "apiserver-controllers", metav1.GetOptions{})
		return err
	})
	require.NotEmpty(t, kubectl(t, "get", "secret", "apiserver-serving-ca", "--namespace="+otherNamespace, "--output=jsonpath={.data.ca\\.crt}"))
	require.Equal(t, trusted, kubectl(t, "get", "apiservices", "v1.restaurant.programming-kubernetes.info", "--output=jsonpath={.spec}"))

	kubectl(t, "delete", "-k", other, "--timeout="+controlplane.Patience.String())
	_, err := restaurant.Toppings().Get(t.Context(), "tomato", metav1.GetOptions{})
	require.NoError(t, err)
}
