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

// Package deploy tests the manifests in artifacts/deploy. A cluster admits them and gets
// rid of them again. They are right about flags, certificates, permissions, probes and
// metrics. There is no kubelet; the tests run what is in the pods as processes of this
// machine, see pods_test.go.
package deploy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// cp is the control plane that all tests share, without the server: it is installed by
// the tests. They run one after the other, since they install the same objects.
var cp *controlplane.ControlPlane

const (
	// pollInterval is how often it is looked at.
	pollInterval = 100 * time.Millisecond

	// systemNamespace is where the manifests install the server.
	systemNamespace = "restaurant-system"
	// root is the repository, seen from here.
	root = "../../.."
	// auditLog is in the directory of kube-apiserver.
	auditLog = "audit.log"
)

func TestMain(m *testing.M) {
	policy, err := filepath.Abs("testdata/audit-policy.yaml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	controlplane.Main(m, &cp, controlplane.Config{
		APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
		KubeAPIServer: controlplane.ComponentConfig{Flags: []string{
			"--audit-policy-file=" + policy,
			"--audit-log-path=" + auditLog,
		}},
	}, settle)
}

// settle waits until the controllers of a new cluster have made what every cluster has.
func settle(ctx context.Context, started *controlplane.ControlPlane) error {
	cp = started
	const calm = 5 * time.Second
	var last map[string]string
	since := time.Now()
	for deadline := since.Add(controlplane.Patience); time.Now().Before(deadline); time.Sleep(pollInterval) {
		current, err := framework.Inventory(ctx, cp)
		if err != nil {
			return err
		}
		if !maps.Equal(last, current) {
			last, since = current, time.Now()
		}
		if time.Since(since) > calm {
			return nil
		}
	}
	return fmt.Errorf("objects still change after %s", controlplane.Patience)
}

// kubectl runs kubectl as the administrator, which must succeed, and returns what it
// has printed. It must not warn of anything, such as of pods that would not be admitted.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	output, err := tryKubectl(t.Context(), args...)
	require.NoError(t, err)
	require.NotContains(t, output, "Warning")
	return output
}

func tryKubectl(ctx context.Context, args ...string) (string, error) {
	cmd := cp.Kubectl(ctx, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return output.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output.String())
	}
	return output.String(), nil
}

// kustomization writes one that builds on directories of artifacts/deploy, and returns its
// directory. The rest is in YAML.
func kustomization(t *testing.T, overlay string, components []string, rest string) string {
	t.Helper()
	dir := t.TempDir()
	content := "resources: [" + deployDirectory(t, dir, overlay) + "]\n"
	if len(components) > 0 {
		content += "components:\n"
	}
	for _, component := range components {
		content += "- " + deployDirectory(t, dir, component) + "\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content+rest), 0o600))
	return dir
}

// deployDirectory returns the path of a directory in artifacts/deploy as kustomize wants it.
func deployDirectory(t *testing.T, from, directory string) string {
	t.Helper()
	to, err := filepath.Abs(filepath.Join(root, "artifacts", "deploy", directory))
	require.NoError(t, err)
	// Temporary directories may be behind symbolic links.
	from, err = filepath.EvalSymlinks(from)
	require.NoError(t, err)
	relative, err := filepath.Rel(from, to)
	require.NoError(t, err)
	return relative
}

// render returns the objects of a kustomization.
func render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(kubectl(t, "kustomize", dir), "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
		objects = append(objects, object)
	}
	return objects
}

// install applies a kustomization, as the documentation says, and sees to it that
// nothing is left of it when the test is over.
func install(t *testing.T, dir string, flags ...string) {
	t.Helper()
	before, err := framework.Inventory(t.Context(), cp)
	require.NoError(t, err)
	t.Cleanup(func() { uninstall(t, dir, before) })
	kubectl(t, append([]string{"apply", "-k", dir}, flags...)...)
}

// uninstall deletes a kustomization and waits until there is nothing in the cluster that
// was not there before.
func uninstall(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	ctx := context.Background() // The test's own is over.
	output, err := tryKubectl(ctx, "delete", "-k", dir, "--ignore-not-found", "--timeout="+controlplane.Patience.String())
	require.NoError(t, err, output)
	controlplane.Eventually(t, func() error {
		after, err := framework.Inventory(ctx, cp)
		if err == nil && !maps.Equal(before, after) {
			err = fmt.Errorf("the uninstalled has taken away %v, and left behind %v", framework.Difference(before, after), framework.Difference(after, before))
		}
		return err
	})
}

// pods waits until a namespace has as many pods with each label app.kubernetes.io/name
// as are wanted, and returns them by that label.
func pods(t *testing.T, namespace string, want map[string]int) map[string][]corev1.Pod {
	t.Helper()
	var byName map[string][]corev1.Pod
	controlplane.Eventually(t, func() error {
		list, err := framework.Kube(cp).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		byName = map[string][]corev1.Pod{}
		got := map[string]int{}
		for _, pod := range list.Items {
			name := pod.Labels["app.kubernetes.io/name"]
			byName[name] = append(byName[name], pod)
			got[name]++
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("there are the pods %v, not %v", got, want)
		}
		return nil
	})
	return byName
}
