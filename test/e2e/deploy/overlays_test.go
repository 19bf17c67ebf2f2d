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
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// Values of the label app.kubernetes.io/name.
const (
	serverName       = "restaurant-apiserver"
	etcdName         = "etcd"
	certificatesName = "etcd-certificates"
)

// overlays are all, with the pods that each has.
func overlays() map[string]map[string]int {
	return map[string]map[string]int{
		"standalone":    {serverName: 1},
		"external-etcd": {serverName: 3},
		"ha":            {serverName: 3, etcdName: 3, certificatesName: 1},
	}
}

func overlayDirectory(overlay string) string {
	return filepath.Join(root, "artifacts", "deploy", "overlays", overlay)
}

// TestApply applies every overlay in both ways, twice, and deletes it. All pods are
// admitted under the profile "restricted".
func TestApply(t *testing.T) {
	framework.Long(t, "every overlay is applied four times")
	for overlay, want := range overlays() {
		for way, flag := range map[string]string{"client-side": "--server-side=false", "server-side": "--server-side=true"} {
			t.Run(overlay+" "+way, func(t *testing.T) {
				dir := overlayDirectory(overlay)
				install(t, dir, flag)
				pods(t, systemNamespace, want)
				first := versions(t, dir)
				again := kubectl(t, "apply", "-k", dir, flag)
				require.Equal(t, first, versions(t, dir))
				for line := range strings.Lines(again) {
					// kubectl always sends the selector of a budget, and says that it has changed.
					if way == "client-side" && !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
						require.Contains(t, line, " unchanged\n")
					}
				}
				kubectl(t, "diff", "-k", dir, flag)
			})
		}
	}
}

// versions returns what reports whether the objects of a kustomization have been changed.
// That is the generation of those that have one, as their status changes by itself.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	var list unstructured.UnstructuredList
	require.NoError(t, list.UnmarshalJSON([]byte(kubectl(t, "get", "-k", dir, "--output=json"))))
	versions := map[string]string{}
	for _, current := range list.Items {
		_, hasStatus := current.Object["status"]
		_, aggregated := current.Object["aggregationRule"]
		name := current.GetKind() + " " + current.GetName()
		switch {
		case current.GetGeneration() != 0:
			versions[name] = strconv.FormatInt(current.GetGeneration(), 10)
		case !hasStatus && !aggregated:
			versions[name] = current.GetResourceVersion()
		}
	}
	require.Greater(t, len(versions), 20)
	return versions
}

// serve has kube-apiserver send requests for the group to a server and returns a client.
func serve(t *testing.T, server *controlplane.Component) typed.RestaurantV1Interface {
	t.Helper()
	require.NoError(t, cp.Register(t.Context(), server))
	return versioned.NewForConfigOrDie(cp.RESTConfig()).RestaurantV1()
}

// TestStandalone runs the pod, and again with what the first one has stored.
func TestStandalone(t *testing.T) {
	install(t, overlayDirectory("standalone"))
	pod := pods(t, systemNamespace, overlays()["standalone"])[serverName][0]
	machine := newMachine("standalone-")
	// The path of the socket is too long in some directories for temporary files.
	machine.claims["apiserver-data"] = shortDirectory(t)
	server := machine.runAll(t, []corev1.Pod{pod})[0]
	restaurant := serve(t, server)
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato"))

	server.Kill()
	require.NoError(t, server.Start(t.Context()))
	// kube-apiserver finds out in its own time that the server is back.
	controlplane.Eventually(t, func() error {
		_, err := restaurant.Toppings().Get(t.Context(), "tomato", metav1.GetOptions{})
		return err
	})
}

func shortDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "data-") //nolint:usetesting // That of the test has its name in it.
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// TestRemovedVersion takes a version out of an installation, as a later release does.
// The command that the documentation names deletes its APIService.
func TestRemovedVersion(t *testing.T) {
	framework.Long(t, "pods are run")
	const removed = "v1alpha1.restaurant.programming-kubernetes.info"
	install(t, overlayDirectory("standalone"))
	later := kustomization(t, "overlays/standalone", nil, `patches:
  - patch: |
      $patch: delete
      apiVersion: apiregistration.k8s.io/v1
      kind: APIService
      metadata:
        name: `+removed+"\n")
	document, err := os.ReadFile(filepath.Join(root, "docs", "operations", "upgrade.md"))
	require.NoError(t, err)
	const flags = "--prune --selector=app.kubernetes.io/part-of=restaurant-apiserver --prune-allowlist=apiregistration.k8s.io/v1/APIService"
	require.Contains(t, string(document), flags)
	output := kubectl(t, append([]string{"apply", "-k", later}, strings.Fields(flags)...)...)
	require.Contains(t, output, "apiservice.apiregistration.k8s.io/"+removed+" pruned\n")
	require.Equal(t, 1, strings.Count(output, " pruned"), output)
	require.Equal(t, map[string]bool{
		"v1.restaurant.programming-kubernetes.info":      true,
		"v1beta1.restaurant.programming-kubernetes.info": true,
	}, apiServices(t))
}

// apiServices returns the names of the APIServices of the group.
func apiServices(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for name := range strings.FieldsSeq(kubectl(t, "get", "apiservices", "--output=name")) {
		if name = strings.TrimPrefix(name, "apiservice.apiregistration.k8s.io/"); strings.HasSuffix(name, ".restaurant.programming-kubernetes.info") {
			found[name] = true
		}
	}
	return found
}

// TestDocumentedPrometheus renders what the documentation says to write for a Prometheus under other names.
func TestDocumentedPrometheus(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(root, "docs", "operations", "observability.md"))
	require.NoError(t, err)
	_, patches, found := strings.Cut(string(document), "```yaml\n# restaurant/kustomization.yaml\npatches:\n")
	require.True(t, found)
	patches, _, _ = strings.Cut(patches, "```\n")
	labelled := 0
	for _, object := range render(t, kustomization(t, "overlays/ha", []string{"components/monitoring"}, "patches:\n"+patches)) {
		require.NotContains(t, fmt.Sprint(object.Object), "prometheus-k8s", identity(object))
		require.NotContains(t, fmt.Sprint(object.Object), ":monitoring]", identity(object))
		if object.GetLabels()["release"] == "kube-prometheus-stack" {
			labelled++
		}
	}
	require.Equal(t, 5, labelled)
}
