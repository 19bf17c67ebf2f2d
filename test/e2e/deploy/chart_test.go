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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const chartVersion = "v0.37.0-rc.0"

// The charts.
const (
	restaurantChart = "restaurant-apiserver"
	crdChart        = "crd-apiserver"
)

// chart is a Helm chart, and the program for it.
type chart struct {
	dir, helm string
	env       []string
	// required are the flags that the chart can't be without.
	required []string
}

// newChart builds a chart, of a release that env can describe.
func newChart(t *testing.T, name string, env ...string) *chart {
	t.Helper()
	home := t.TempDir()
	c := &chart{dir: filepath.Join(home, "chart"), helm: framework.GoTool(t, root, "helm", "helm"), env: append(os.Environ(),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+cp.Kubeconfig())}
	if name == crdChart {
		c.required = []string{"--set=groups={a.example.com,b.example.com}"}
	}
	env = slices.Concat(os.Environ(), []string{"VERSION=" + chartVersion, "REGISTRY=registry.example.org/a"}, env)
	program(t, env, filepath.Join(root, "hack", "build-chart.sh"), c.dir, name)
	return c
}

func program(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	stdout, stderr, err := tryProgram(t.Context(), env, name, args...)
	require.NoError(t, err, stdout+stderr)
	return stdout
}

func tryProgram(ctx context.Context, env []string, name string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = env
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// template returns the objects of the chart, without its hooks.
func (c *chart) template(t *testing.T, namespace string, flags ...string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range c.templateAll(t, namespace, flags...) {
		if object.GetAnnotations()["helm.sh/hook"] == "" {
			objects = append(objects, object)
		}
	}
	return objects
}

// templateAll returns the objects of the chart.
func (c *chart) templateAll(t *testing.T, namespace string, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	args := slices.Concat([]string{"template", "release", c.dir, "--namespace=" + namespace}, c.required, flags)
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(program(t, c.env, c.helm, args...), "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects
}

// admit has kube-apiserver admit the objects of the chart, and store none.
func (c *chart) admit(t *testing.T, namespace string, flags ...string) {
	t.Helper()
	program(t, c.env, c.helm, slices.Concat([]string{"lint", "--strict", c.dir, "--namespace=" + namespace}, c.required, flags)...)
	var list unstructured.UnstructuredList
	for _, object := range c.templateAll(t, namespace, flags...) {
		if object.GetKind() != "Pod" { // Its account would have to be stored.
			list.Items = append(list.Items, *object)
		}
	}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	content, err := list.MarshalJSON()
	require.NoError(t, err)
	kubectl(t, "apply", "--server-side", "--dry-run=server", "--filename="+framework.File(t, string(content)))
}

// admitInto has namespaces, and the kinds of the Prometheus Operator, until the test ends.
func admitInto(t *testing.T, namespaces ...string) {
	t.Helper()
	monitoringKinds(t)
	for _, namespace := range namespaces {
		kubectl(t, "create", "namespace", namespace)
	}
	t.Cleanup(func() {
		output, err := tryKubectl(context.Background(), append([]string{"delete", "namespace", "--timeout=" + controlplane.Patience.String()}, namespaces...)...)
		require.NoError(t, err, output)
	})
}

// TestChart finds the same objects in the charts and in the manifests.
func TestChart(t *testing.T) {
	framework.Long(t, "Helm is built")
	const (
		second   = "trattoria-system"
		plain    = "createNamespace=true,"
		single   = "mode=standalone,storage.keep=false"
		external = "mode=external-etcd,etcd.servers={https://a:2379,https://b:2379}"
		examined = ",monitoring.enabled=true,doctor.enabled=true"
		more     = examined + ",backup.enabled=true,backup.storage.keep=false"
		stored   = ",backup.enabled=true,backup.store=true,backup.storage.keep=false"
	)
	admitInto(t, systemNamespace, second, crdServer)
	for name, cases := range map[string]map[string]struct{ kustomization, namespace, set string }{
		restaurantChart: {
			"standalone":    {overlayDirectory("standalone"), systemNamespace, single},
			"ha":            {overlayDirectory("ha"), systemNamespace, "mode=ha"},
			"external-etcd": {overlayDirectory("external-etcd"), systemNamespace, external},
			"standalone with components": {
				kustomization(t, "overlays/standalone", []string{"components/monitoring", "components/backup-embedded", "components/doctor"}, ""),
				systemNamespace, single + more,
			},
			"ha with components": {
				kustomization(t, "overlays/ha", []string{"components/monitoring", "components/backup-etcd", "components/doctor"}, ""),
				systemNamespace, "mode=ha" + more,
			},
			"external-etcd with components": {
				kustomization(t, "overlays/external-etcd", []string{"components/monitoring", "components/doctor", "components/webhook"}, ""),
				systemNamespace, external + examined + ",webhook.enabled=true",
			},
			"standalone restored": {
				kustomization(t, "overlays/standalone", []string{"components/backup-embedded", "components/backup-store", "components/restore-embedded", "components/restore-store"}, ""),
				systemNamespace, single + stored + ",restore=store",
			},
			"ha restored": {
				kustomization(t, "overlays/ha", []string{"components/restore-etcd"}, ""), systemNamespace, "mode=ha,restore=stdin",
			},
			"a second instance": {
				instance(t, "ha", "trattoria", second, "components/monitoring", "components/backup-etcd", "components/doctor", "components/unregistered"),
				second, "mode=ha,name=trattoria,registered=false" + more,
			},
		},
		crdChart: {
			"standalone":                 {crdOverlay("standalone"), crdServer, single},
			"ha":                         {crdOverlay("ha"), crdServer, "mode=ha"},
			"external-etcd":              {crdOverlay("external-etcd"), crdServer, external},
			"standalone with components": {crdKustomization(t, "standalone", "monitoring", "backup-embedded", "doctor"), crdServer, single + more},
			"ha with components":         {crdKustomization(t, "ha", "monitoring", "backup-etcd", "doctor"), crdServer, "mode=ha" + more},
			"standalone restored":        {crdKustomization(t, "standalone", "restore-embedded"), crdServer, single + ",restore=stdin"},
			"ha restored": {
				crdKustomization(t, "ha", "backup-etcd", "backup-store", "restore-etcd", "restore-store"), crdServer, "mode=ha" + stored + ",restore=store",
			},
		},
	} {
		chart := newChart(t, name)
		for about, test := range cases {
			t.Run(name+" "+about, func(t *testing.T) {
				set := "--set=" + plain + test.set
				require.Equal(t, asSet(t, render(t, test.kustomization)), byIdentity(t, chart.template(t, test.namespace, set)))
				chart.admit(t, test.namespace, set)
			})
		}
	}
}

// asSet returns objects of manifests with the image, the etcd and the groups that the charts are told.
func asSet(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	for _, object := range objects {
		text, err := object.MarshalJSON()
		require.NoError(t, err)
		for pattern, replacement := range map[string]string{
			`"image":"(apiserver|crd-apiserver|webhook)"`: `"image":"registry.example.org/a/$1:` + chartVersion + `"`,
			`https://etcd-0\.example\.com:2379[^"]*`:      "https://a:2379,https://b:2379",
			`"value":"example\.com"`:                      `"value":"a.example.com,b.example.com"`,
			`name=~\\"\.\+\\"`:                            `name=~\"[^.]+[.](a[.]example[.]com|b[.]example[.]com)\"`,
			`/blob/main/`:                                 `/blob/` + chartVersion + `/`,
		} {
			text = regexp.MustCompile(pattern).ReplaceAll(text, []byte(replacement))
		}
		require.NoError(t, object.UnmarshalJSON(text))
	}
	return byIdentity(t, objects)
}

// byIdentity finds no object twice.
func byIdentity(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, object := range objects {
		text, err := object.MarshalJSON()
		require.NoError(t, err)
		require.NoError(t, object.UnmarshalJSON(text)) // Numbers have the same type then.
		require.NotContains(t, found, identity(object))
		found[identity(object)] = object.Object
	}
	return found
}

// TestChartUpgrade installs, upgrades and uninstalls by Helm. Stored objects stay.
func TestChartUpgrade(t *testing.T) {
	framework.Long(t, "Helm is built")
	chart := newChart(t, restaurantChart)
	before, err := framework.Inventory(t.Context(), cp)
	require.NoError(t, err)
	kubectl(t, "create", "namespace", systemNamespace)
	helm := func(args ...string) {
		t.Helper()
		program(t, chart.env, chart.helm, append(args, "--namespace="+systemNamespace)...)
	}
	t.Cleanup(func() { chart.remove(t, before, systemNamespace) })
	claims := framework.Kube(cp).CoreV1().PersistentVolumeClaims(systemNamespace)

	helm("install", "restaurant", chart.dir)
	claim, err := claims.Get(t.Context(), "apiserver-data", metav1.GetOptions{})
	require.NoError(t, err)
	// Servers write these two.
	kubectl(t, "patch", "secret", "apiserver-serving-ca", "--namespace="+systemNamespace, `--patch={"data":{"ca.crt":"eA=="}}`)
	kubectl(t, "patch", "apiservice", "v1.restaurant.programming-kubernetes.info", "--type=merge", `--patch={"spec":{"caBundle":"eA=="}}`)
	helm("upgrade", "restaurant", chart.dir, "--set=image.tag=later,server.resources.limits.memory=2Gi")
	require.Equal(t, "registry.example.org/a/apiserver:later", kubectl(t, "get", "deployment", "apiserver", "--namespace="+systemNamespace, "--output=jsonpath={.spec.template.spec.containers[0].image}"))
	require.Equal(t, "eA==", kubectl(t, "get", "secret", "apiserver-serving-ca", "--namespace="+systemNamespace, `--output=jsonpath={.data.ca\.crt}`))
	require.Equal(t, "eA==", kubectl(t, "get", "apiservice", "v1.restaurant.programming-kubernetes.info", "--output=jsonpath={.spec.caBundle}"))

	chart.uninstall(t, "restaurant", systemNamespace)
	helm("install", "restaurant", chart.dir)
	again, err := claims.Get(t.Context(), "apiserver-data", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, claim.UID, again.UID)
	require.Nil(t, again.DeletionTimestamp)

	// Another mode stores elsewhere, and leaves the data alone.
	helm("upgrade", "restaurant", chart.dir, "--set=mode=ha")
	_, err = claims.Get(t.Context(), "apiserver-data", metav1.GetOptions{})
	require.NoError(t, err)
	sets := framework.Kube(cp).AppsV1().StatefulSets(systemNamespace)
	set, err := sets.Get(t.Context(), "etcd", metav1.GetOptions{})
	require.NoError(t, err)
	helm("upgrade", "restaurant", chart.dir, "--set=mode=ha,image.tag=later,etcd.resources.limits.memory=3Gi")
	changed, err := sets.Get(t.Context(), "etcd", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, set.UID, changed.UID)
	require.Equal(t, "3Gi", changed.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String())
	require.Equal(t, set.Spec.VolumeClaimTemplates, changed.Spec.VolumeClaimTemplates)
}

// TestChartUpgradeReusesValues runs the image of the chart, and what the operator has chosen.
func TestChartUpgradeReusesValues(t *testing.T) {
	framework.Long(t, "Helm is built")
	digests := func(digit string) string {
		return "sha256:" + strings.Repeat(digit, 64)
	}
	release := func(version, digit string) *chart {
		return newChart(t, restaurantChart, "VERSION="+version, "DIGESTS="+framework.File(t, "apiserver="+digests(digit)+"\nwebhook="+digests("0")+"\n"))
	}
	older, newer := release("v0.37.0", "1"), release("v0.37.1", "2")
	for name, template := range podTemplates(t, older.templateAll(t, systemNamespace, "--set=mode=standalone,backup.enabled=true,webhook.enabled=true")) {
		require.Contains(t, template.Spec.Containers[0].Image, "@sha256:", name)
	}
	monitoringKinds(t)
	before, err := framework.Inventory(t.Context(), cp)
	require.NoError(t, err)
	kubectl(t, "create", "namespace", systemNamespace)
	t.Cleanup(func() { older.remove(t, before, systemNamespace) })
	const image = "registry.example.org/a/apiserver"
	requireImage := func(want string) {
		t.Helper()
		jsonpath := "--output=jsonpath={.spec.template.spec.containers[0].image} {.spec.replicas}"
		require.Equal(t, want+" 2", kubectl(t, "get", "deployment", "apiserver", "--namespace="+systemNamespace, jsonpath))
	}
	requireRunbook := func(version string) {
		t.Helper()
		rule := kubectl(t, "get", "prometheusrule", "apiserver", "--namespace="+systemNamespace, "--output=jsonpath={.spec.groups[0].rules[0].annotations.runbook_url}")
		require.Contains(t, rule, "/apiserver/blob/"+version+"/docs/operations/runbooks.md#")
	}
	program(t, older.env, older.helm, "install", "restaurant", older.dir, "--set=mode=ha,server.replicas=2,monitoring.enabled=true", "--namespace="+systemNamespace)
	requireImage(image + "@" + digests("1"))
	requireRunbook("v0.37.0")
	upgrade := func(set ...string) {
		t.Helper()
		program(t, newer.env, newer.helm, append([]string{"upgrade", "restaurant", newer.dir, "--namespace=" + systemNamespace}, set...)...)
	}
	upgrade("--reset-then-reuse-values")
	requireImage(image + "@" + digests("2"))
	requireRunbook("v0.37.1")
	program(t, older.env, older.helm, "rollback", "restaurant", "1", "--namespace="+systemNamespace)
	requireImage(image + "@" + digests("1"))
	upgrade("--reuse-values")
	requireImage(image + "@" + digests("2"))
	requireRunbook("v0.37.1")
	upgrade("--reuse-values", "--set=image.tag=patched")
	requireImage(image + ":patched")
	upgrade("--reuse-values", "--set=image.tag=,image.digest="+digests("3"))
	requireImage(image + "@" + digests("3"))
}

// uninstall uninstalls a release, and does for the pod of the hook what a node does.
func (c *chart) uninstall(t *testing.T, release, namespace string) {
	t.Helper()
	type result struct {
		stdout, stderr string
		err            error
	}
	ended := make(chan result, 1)
	go func() {
		stdout, stderr, err := tryProgram(t.Context(), c.env, c.helm, "uninstall", release, "--namespace="+namespace)
		ended <- result{stdout, stderr, err}
	}()
	var hook corev1.Pod
	controlplane.Eventually(t, func() error {
		list, err := framework.Kube(cp).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=unregister"})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("the hook has no pod")
		}
		if err == nil {
			hook = list.Items[0]
		}
		return err
	})
	container := hook.Spec.Containers[0]
	// The binary is called as its Service.
	service := strings.TrimPrefix(container.Args[1], "--service="+namespace+"/")
	// Without the server, namespaces would already hang.
	_, err := framework.Kube(cp).AppsV1().Deployments(namespace).Get(t.Context(), service, metav1.GetOptions{})
	require.NoError(t, err)
	code, stdout, stderr := framework.ToolOf(t, cp, service, append(container.Args, "--kubeconfig="+kubeconfigOf(t, hook))...)
	require.Zero(t, code, stdout+stderr)
	hook.Status.Phase = corev1.PodSucceeded
	_, err = framework.Kube(cp).CoreV1().Pods(namespace).UpdateStatus(t.Context(), &hook, metav1.UpdateOptions{})
	require.NoError(t, err)
	uninstalled := <-ended
	require.NoError(t, uninstalled.err, uninstalled.stdout+uninstalled.stderr)
}

// remove uninstalls what a test has installed in namespaces, and deletes these. Nothing is left.
func (c *chart) remove(t *testing.T, before map[string]string, namespaces ...string) {
	t.Helper()
	ctx := context.Background() // The test's own is over.
	for _, namespace := range namespaces {
		releases, stderr, err := tryProgram(ctx, c.env, c.helm, "list", "--short", "--namespace="+namespace)
		require.NoError(t, err, stderr)
		for release := range strings.FieldsSeq(releases) {
			stdout, stderr, err := tryProgram(ctx, c.env, c.helm, "uninstall", release, "--no-hooks", "--namespace="+namespace)
			require.NoError(t, err, stdout+stderr)
		}
		output, err := tryKubectl(ctx, "delete", "namespace", namespace, "--ignore-not-found", "--timeout="+controlplane.Patience.String())
		require.NoError(t, err, output)
	}
	controlplane.Eventually(t, func() error {
		after, err := framework.Inventory(ctx, cp)
		if left := framework.Difference(after, before); err == nil && len(left) > 0 {
			err = fmt.Errorf("it has left behind %v", left)
		}
		return err
	})
}

// TestChartUninstall takes the APIServices away that lead to the release, and no others, so that
// namespaces can be deleted though no server has ever run.
func TestChartUninstall(t *testing.T) {
	framework.Long(t, "Helm is built")
	chart := newChart(t, restaurantChart)
	before, err := framework.Inventory(t.Context(), cp)
	require.NoError(t, err)
	kubectl(t, "create", "namespace", systemNamespace)
	t.Cleanup(func() { chart.remove(t, before, systemNamespace) })
	program(t, chart.env, chart.helm, "install", "restaurant", chart.dir, "--set=registered=false", "--namespace="+systemNamespace)
	things := defineThings(t)
	// As "migrate" registers versions, which are not the chart's.
	for name, service := range map[string]string{
		"v1.migrated.example.com": systemNamespace + "/apiserver",
		"v1.another.example.com":  systemNamespace + "/another",
	} {
		group := strings.TrimPrefix(name, "v1.")
		namespace, serviceName, _ := strings.Cut(service, "/")
		file := framework.File(t, fmt.Sprintf(`{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": %q}, "spec": {
"group": %q, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "service": {"namespace": %q, "name": %q}}}`, name, group, namespace, serviceName))
		kubectl(t, "create", "--filename="+file)
	}
	t.Cleanup(func() {
		_, err := tryKubectl(context.Background(), "delete", "apiservice", "v1.another.example.com")
		require.NoError(t, err)
	})
	kubectl(t, "patch", "apiservice", "v1."+crdGroup, "--type=json", `--patch=[{"op": "remove", "path": "/metadata/labels"},
{"op": "add", "path": "/spec/service", "value": {"namespace": "`+systemNamespace+`", "name": "apiserver"}}]`)

	// Where no pod runs any more, operators find them by a runbook.
	document, err := os.ReadFile(filepath.Join(root, "docs", "operations", "runbooks.md"))
	require.NoError(t, err)
	path := regexp.MustCompile(`kubectl get apiservices --output=jsonpath="(.+)" \|`).FindSubmatch(document)
	require.NotNil(t, path)
	require.Equal(t, []string{"v1.another.example.com", "v1." + crdGroup, "v1.migrated.example.com"},
		strings.Fields(kubectl(t, "get", "apiservices", "--output=jsonpath="+strings.ReplaceAll(string(path[1]), "${NAMESPACE:?}", systemNamespace))))

	chart.uninstall(t, "restaurant", systemNamespace)
	found := kubectl(t, "get", "apiservices", "--output=name")
	require.NotContains(t, found, "v1.migrated.example.com")
	require.Contains(t, found, "v1.another.example.com")
	_, err = framework.Dynamic(cp).Resource(things).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
}
