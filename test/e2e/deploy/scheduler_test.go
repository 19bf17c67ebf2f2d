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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestSecondScheduler runs the scheduler of the component, with the rights that it has
// there, and sees it spread the replicas of the server over the nodes.
func TestSecondScheduler(t *testing.T) {
	const scheduler = "my-scheduler"
	install(t, kustomization(t, "overlays/external-etcd", []string{"components/second-scheduler"}, ""))
	nodes := []string{"node-a", "node-b", "node-c"}
	for _, name := range nodes {
		createNode(t, name)
	}
	servers := pods(t, systemNamespace, overlays()["external-etcd"])[serverName]
	for _, pod := range servers {
		require.Equal(t, scheduler, pod.Spec.SchedulerName)
		require.Empty(t, pod.Spec.NodeName)
	}
	replicas := pods(t, scheduler, map[string]int{scheduler: 2})[scheduler]

	machine := newMachine("second-")
	// Here it is told in its configuration, not by its token, who it is.
	machine.changeFile = func(path string) { addKubeconfig(t, path, kubeconfigOf(t, replicas[0])) }
	kubeconfig := kubeconfigOf(t, replicas[0])
	port := machine.port(t, replicas[0].Name, "10259")
	machine.flags["kube-scheduler"] = []string{
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig, fmt.Sprintf("--secure-port=%d", port),
	}
	machine.runAll(t, replicas[:1])

	eventually(t, func() error {
		used := map[string]string{}
		for _, pod := range pods(t, systemNamespace, overlays()["external-etcd"])[serverName] {
			if pod.Spec.NodeName == "" {
				return fmt.Errorf("%s has no node yet: %v", pod.Name, pod.Status.Conditions)
			}
			require.NotContains(t, used, pod.Spec.NodeName, "Replicas share a node.")
			used[pod.Spec.NodeName] = pod.Name
		}
		return nil
	})
	// The scheduler's own pods are for the cluster's, which does not run here.
	for _, pod := range pods(t, scheduler, map[string]int{scheduler: 2})[scheduler] {
		require.Empty(t, pod.Spec.NodeName)
	}
	eventually(t, func() error {
		_, denied := audited(t, "system:serviceaccount:"+scheduler+":"+scheduler)
		require.Empty(t, denied)
		events, err := kubeClient().CoreV1().Events(systemNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Scheduled"})
		if err == nil && (len(events.Items) != len(nodes) || events.Items[0].ReportingController != scheduler) {
			err = fmt.Errorf("there are %d events of %s", len(events.Items), scheduler)
		}
		return err
	})
}

// createNode makes a node that seems to run. Pods that are bound to it are its alone to
// end, so they are deleted before it.
func createNode(t *testing.T, name string) {
	t.Helper()
	allocatable := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("10"),
	}
	now := metav1.Now()
	_, err := kubeClient().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity: allocatable, Allocatable: allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, namespace := range []string{systemNamespace, "my-scheduler"} {
			kubectlCleanup(t, "delete", "pods", "--all", "--force", "--grace-period=0", "--namespace="+namespace)
		}
		kubectlCleanup(t, "delete", "node", name)
	})
}

// addKubeconfig tells the configuration of a scheduler how to reach the cluster.
func addKubeconfig(t *testing.T, path, kubeconfig string) {
	t.Helper()
	if filepath.Base(path) != "config.yaml" {
		return
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.NotContains(t, config, "clientConnection")
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig}
	content, err = yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o600))
}
