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
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// chart is the Helm chart, and the program for it.
type chart struct {
	dir, helm string
	env       []string
}

// newChart builds the chart.
func newChart(t *testing.T) *chart {
	t.Helper()
	home := t.TempDir()
	c := &chart{dir: filepath.Join(home, "chart"), helm: framework.Helm(t, root), env: append(os.Environ(),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+cp.Kubeconfig())}
	program(t, append(os.Environ(), "VERSION="+chartVersion, "REGISTRY=registry.example.org/a"), filepath.Join(root, "hack", "build-chart.sh"), c.dir)
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

// template returns the objects of the chart.
func (c *chart) template(t *testing.T, namespace string, flags ...string) []*unstructured.Unstructured {
	t.Helper()
	args := append([]string{"template", "release", c.dir, "--namespace=" + namespace}, flags...)
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

// TestChart finds the same objects in the chart and in the overlays.
func TestChart(t *testing.T) {
	framework.Long(t, "Helm is built")
	chart := newChart(t)
	program(t, chart.env, chart.helm, "lint", "--strict", chart.dir)
	const plain = "createNamespace=true,storage.keep=false,backup.storage.keep=false"
	images := regexp.MustCompile(`"image":"(apiserver|webhook)"`)
	const more = plain + ",monitoring.enabled=true,backup.enabled=true,doctor.enabled=true"
	for name, test := range map[string]struct {
		kustomization, namespace string
		flags                    []string
	}{
		"standalone": {overlayDirectory("standalone"), systemNamespace, []string{"--set=" + plain}},
		"ha":         {overlayDirectory("ha"), systemNamespace, []string{"--set=mode=ha," + plain}},
		"external-etcd": {overlayDirectory("external-etcd"), systemNamespace, []string{
			"--set=mode=external-etcd,etcd.servers={https://etcd-0.example.com:2379,https://etcd-1.example.com:2379,https://etcd-2.example.com:2379}," + plain,
		}},
		"external-etcd with components": {
			kustomization(t, "overlays/external-etcd", []string{"components/monitoring", "components/doctor", "components/webhook"}, `
patches:
  - patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: apiserver, namespace: restaurant-system}
      spec: {template: {spec: {containers: [{name: apiserver, env: [{name: APISERVER_ETCD_SERVERS, value: "https://a:2379,https://b:2379"}]}]}}}
`),
			systemNamespace, []string{"--set=mode=external-etcd,etcd.servers={https://a:2379,https://b:2379},monitoring.enabled=true,doctor.enabled=true,webhook.enabled=true," + plain},
		},
		"standalone with components": {
			kustomization(t, "overlays/standalone", []string{"components/monitoring", "components/backup-embedded", "components/doctor"}, ""),
			systemNamespace, []string{"--set=" + more},
		},
		"ha with components": {
			kustomization(t, "overlays/ha", []string{"components/monitoring", "components/backup-etcd", "components/doctor"}, ""),
			systemNamespace, []string{"--set=mode=ha," + more},
		},
		"a second instance": {
			instance(t, "ha", "trattoria", "trattoria-system", "components/monitoring", "components/backup-etcd", "components/doctor", "components/unregistered"),
			"trattoria-system", []string{"--set=mode=ha,name=trattoria,registered=false," + more},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := map[string]any{}, map[string]any{}
			for _, object := range render(t, test.kustomization) {
				text, err := object.MarshalJSON()
				require.NoError(t, err)
				require.NoError(t, object.UnmarshalJSON(images.ReplaceAll(text, []byte(`"image":"registry.example.org/a/$1:`+chartVersion+`"`))))
				want[identity(object)] = object.Object
			}
			for _, object := range chart.template(t, test.namespace, test.flags...) {
				text, err := object.MarshalJSON()
				require.NoError(t, err)
				require.NoError(t, object.UnmarshalJSON(text)) // Numbers have the same type then.
				require.NotContains(t, got, identity(object))
				got[identity(object)] = object.Object
			}
			require.Equal(t, want, got)
		})
	}
}

// TestChartOfCRDServer finds the same objects in the chart and in the overlays of the server of custom resources.
func TestChartOfCRDServer(t *testing.T) {
	framework.Long(t, "Helm is built")
	chart := newChart(t)
	servers := regexp.MustCompile(`https://etcd-0\.example\.com:2379[^"]*`)
	flags := []string{"--set=mode=none,crdAPIServer.enabled=true,crdAPIServer.groups={a.example.com,b.example.com},crdAPIServer.storage.keep=false"}
	for mode, more := range map[string][]string{
		"standalone":    nil,
		"external-etcd": {"--set=crdAPIServer.mode=external-etcd,crdAPIServer.etcd.servers={https://a:2379,https://b:2379}"},
	} {
		t.Run(mode, func(t *testing.T) {
			want, got := map[string]any{}, map[string]any{}
			for _, object := range render(t, crdOverlay(mode)) {
				data, err := object.MarshalJSON()
				require.NoError(t, err)
				text := strings.ReplaceAll(string(data), `"image":"crd-apiserver"`, `"image":"registry.example.org/a/crd-apiserver:`+chartVersion+`"`)
				text = strings.ReplaceAll(text, `"value":"example.com"`, `"value":"a.example.com,b.example.com"`)
				text = servers.ReplaceAllString(text, "https://a:2379,https://b:2379")
				require.NoError(t, object.UnmarshalJSON([]byte(text)))
				want[identity(object)] = object.Object
			}
			for _, object := range chart.template(t, "default", append(flags, more...)...) {
				text, err := object.MarshalJSON()
				require.NoError(t, err)
				require.NoError(t, object.UnmarshalJSON(text))
				require.NotContains(t, got, identity(object))
				got[identity(object)] = object.Object
			}
			require.Equal(t, want, got)
		})
	}
	t.Run("beside the restaurant, which stays as it is", func(t *testing.T) {
		both := map[string]any{}
		for _, object := range chart.template(t, systemNamespace, append(flags, "--set=mode=ha,crdAPIServer.storage.keep=true")...) {
			both[identity(object)] = object.Object
		}
		for _, object := range chart.template(t, systemNamespace, "--set=mode=ha") {
			require.Equal(t, object.Object, both[identity(object)])
			delete(both, identity(object))
		}
		require.Len(t, both, len(render(t, crdOverlay("standalone"))))
		for _, kept := range []string{"Namespace  crd-apiserver", "PersistentVolumeClaim crd-apiserver crd-apiserver-data"} {
			annotations, _, err := unstructured.NestedStringMap(both[kept].(map[string]any), "metadata", "annotations")
			require.NoError(t, err)
			require.Equal(t, map[string]string{"helm.sh/resource-policy": "keep"}, annotations)
		}
	})
}

// TestChartValues puts values where they belong.
func TestChartValues(t *testing.T) {
	framework.Long(t, "Helm is built")
	chart := newChart(t)
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(`
mode: ha
image: {tag: v1, pullPolicy: Always}
imagePullSecrets: [{name: registry}]
priorityClassName: important
runAsUser: null
nodeSelector: {disk: fast}
tolerations: [{key: dedicated, operator: Exists}]
server:
  extraArgs: [--v=2]
  extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
  resources: {limits: {memory: 3Gi}}
etcd:
  image: {repository: registry.example.org/etcd}
  storage: {size: 16Gi, storageClassName: fast}
backup: {enabled: true, storage: {storageClassName: slow}}
`), 0o600))
	objects := chart.template(t, "elsewhere", "--values="+values)
	all := workloads(t, objects)
	require.Len(t, all, 3)
	for _, workload := range all {
		require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, workload.spec.ImagePullSecrets)
		require.Equal(t, map[string]string{"disk": "fast"}, workload.spec.NodeSelector)
		require.Equal(t, []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}, workload.spec.Tolerations)
		security := workload.spec.SecurityContext
		require.True(t, *security.RunAsNonRoot)
		require.Nil(t, security.RunAsUser)
		require.Nil(t, security.RunAsGroup)
		require.Nil(t, security.FSGroup)
		container := workload.spec.Containers[0]
		switch workload.name {
		case "etcd":
			require.Equal(t, "important", workload.spec.PriorityClassName)
			require.Equal(t, "registry.example.org/etcd:"+required(t, "go.mod", "go.etcd.io/etcd/server/v3"), container.Image)
		case "apiserver":
			require.Equal(t, "important", workload.spec.PriorityClassName)
			require.Equal(t, "registry.example.org/a/apiserver:v1", container.Image)
			require.Equal(t, corev1.PullAlways, container.ImagePullPolicy)
			require.Equal(t, []string{"--secure-port=8443", "--v=2"}, container.Args)
			require.Equal(t, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}, container.Env[len(container.Env)-1])
			require.Equal(t, "3Gi", container.Resources.Limits.Memory().String())
			require.Equal(t, "192Mi", container.Resources.Requests.Memory().String())
		}
	}
	classes := map[string]string{}
	for _, object := range objects {
		require.NotEqual(t, "Namespace", object.GetKind())
		switch object.GetKind() {
		case "StatefulSet":
			claims, _, err := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
			require.NoError(t, err)
			classes["etcd"] = fmt.Sprint(claims[0].(map[string]any)["spec"])
		case "PersistentVolumeClaim":
			classes[object.GetName()] = fmt.Sprint(object.Object["spec"])
			require.Equal(t, map[string]string{"helm.sh/resource-policy": "keep"}, object.GetAnnotations())
		case "ResourceQuota":
			require.Contains(t, fmt.Sprint(object.Object["spec"]), "values:[important]")
		}
	}
	require.Equal(t, map[string]string{
		"etcd":    "map[accessModes:[ReadWriteOnce] resources:map[requests:map[storage:16Gi]] storageClassName:fast volumeMode:Filesystem]",
		"backups": "map[accessModes:[ReadWriteOnce] resources:map[requests:map[storage:16Gi]] storageClassName:slow]",
	}, classes)

	for name, test := range map[string]struct{ set, want string }{
		"an unknown mode":  {"mode=single", "value must be one of 'standalone', 'ha', 'external-etcd', 'none'"},
		"an unknown value": {"server.replicas=2", "additional properties 'replicas' not allowed"},
		"no size":          {"storage.size=large", "'large' does not match pattern"},
		"root":             {"runAsUser=0", "minimum: got 0, want 1"},
		"no servers":       {"mode=external-etcd", "minItems: got 0, want 1"},
		"no backup":        {"mode=external-etcd,etcd.servers={https://a:2379},backup.enabled=true", "at '/backup/enabled': value must be false"},
		"no groups":        {"crdAPIServer.enabled=true", "minItems: got 0, want 1"},
		"a core group":     {"crdAPIServer.groups={apps}", "'apps' does not match pattern"},
		"no etcd":          {"crdAPIServer.enabled=true,crdAPIServer.mode=external-etcd,crdAPIServer.groups={example.com}", "minItems: got 0, want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, err := tryProgram(t.Context(), chart.env, chart.helm, "template", "release", chart.dir, "--set="+test.set)
			require.Error(t, err)
			require.Contains(t, stderr, test.want)
		})
	}
}

// TestChartUpgrade installs, upgrades and uninstalls by Helm. What is stored stays.
func TestChartUpgrade(t *testing.T) {
	framework.Long(t, "Helm is built")
	chart := newChart(t)
	before, err := framework.Inventory(t.Context(), cp)
	require.NoError(t, err)
	kubectl(t, "create", "namespace", systemNamespace)
	helm := func(args ...string) {
		t.Helper()
		program(t, chart.env, chart.helm, append(args, "--namespace="+systemNamespace)...)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		stdout, stderr, err := tryProgram(ctx, chart.env, chart.helm, "uninstall", "restaurant", "--ignore-not-found", "--namespace="+systemNamespace)
		require.NoError(t, err, stdout+stderr)
		output, err := tryKubectl(ctx, "delete", "namespace", systemNamespace, "--timeout="+controlplane.Patience.String())
		require.NoError(t, err, output)
		controlplane.Eventually(t, func() error {
			after, err := framework.Inventory(ctx, cp)
			if left := framework.Difference(after, before); err == nil && len(left) > 0 {
				err = fmt.Errorf("it has left behind %v", left)
			}
			return err
		})
	})
	claims := framework.Kube(cp).CoreV1().PersistentVolumeClaims(systemNamespace)

	helm("install", "restaurant", chart.dir)
	claim, err := claims.Get(t.Context(), "apiserver-data", metav1.GetOptions{})
	require.NoError(t, err)
	// What servers write.
	kubectl(t, "patch", "secret", "apiserver-serving-ca", "--namespace="+systemNamespace, `--patch={"data":{"ca.crt":"eA=="}}`)
	kubectl(t, "patch", "apiservice", "v1.restaurant.programming-kubernetes.info", "--type=merge", `--patch={"spec":{"caBundle":"eA=="}}`)
	helm("upgrade", "restaurant", chart.dir, "--set=image.tag=later,server.resources.limits.memory=2Gi")
	require.Equal(t, "registry.example.org/a/apiserver:later", kubectl(t, "get", "deployment", "apiserver", "--namespace="+systemNamespace, "--output=jsonpath={.spec.template.spec.containers[0].image}"))
	require.Equal(t, "eA==", kubectl(t, "get", "secret", "apiserver-serving-ca", "--namespace="+systemNamespace, `--output=jsonpath={.data.ca\.crt}`))
	require.Equal(t, "eA==", kubectl(t, "get", "apiservice", "v1.restaurant.programming-kubernetes.info", "--output=jsonpath={.spec.caBundle}"))

	helm("uninstall", "restaurant")
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

	_, stderr, err := tryProgram(t.Context(), chart.env, chart.helm, "upgrade", "restaurant", chart.dir, "--set=mode=ha,etcd.storage.size=16Gi", "--namespace="+systemNamespace)
	require.Error(t, err)
	require.Regexp(t, `StatefulSet.apps \W+etcd\W+ is invalid: spec.volumeClaimTemplates: .*: field is immutable`, stderr)
	unchanged, err := sets.Get(t.Context(), "etcd", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, changed.UID, unchanged.UID)
	require.Equal(t, changed.Generation, unchanged.Generation)
}
