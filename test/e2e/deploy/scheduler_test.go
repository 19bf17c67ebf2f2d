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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const secondScheduler = "my-scheduler"

// TestSecondScheduler runs the cluster's scheduler and the component's, with the
// permissions that they have there. Each has to bind the pods that name it, and no
// others.
func TestSecondScheduler(t *testing.T) {
	framework.Long(t, "schedulers are run")
	install(t, kustomization(t, "overlays/external-etcd", []string{"../examples/second-scheduler"}, ""))
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		createNode(t, name)
	}
	startDefaultScheduler(t)
	// These name no scheduler, so the cluster's binds them.
	replicas := boundPods(t, secondScheduler, map[string]int{secondScheduler: 2}, secondScheduler)
	requirePending(t)

	machine := newMachine("second-")
	// Here its configuration, not its token, tells its identity.
	kubeconfig := kubeconfigOf(t, replicas[0])
	machine.changeFile = func(path string) { addKubeconfig(t, path, kubeconfig) }
	var schedulers []*controlplane.Component
	start := func(replica corev1.Pod) {
		machine.flags["kube-scheduler"] = []string{
			"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			fmt.Sprintf("--secure-port=%d", machine.port(t, replica.Name, "10259")),
		}
		schedulers = append(schedulers, machine.runAll(t, []corev1.Pod{replica})...)
	}
	// One of them leads.
	start(replicas[0])
	start(replicas[1])
	used := map[string]string{}
	for _, pod := range boundPods(t, systemNamespace, overlays()["external-etcd"], serverName) {
		require.NotContains(t, used, pod.Spec.NodeName, "Replicas share a node.")
		used[pod.Spec.NodeName] = pod.Name
	}
	requireScheduledBy(t, systemNamespace, secondScheduler, len(used))
	requireScheduledBy(t, secondScheduler, corev1.DefaultSchedulerName, len(replicas))

	// While it is down, the server's pods wait.
	for _, scheduler := range schedulers {
		require.NoError(t, scheduler.Stop())
	}
	for _, pod := range used {
		// No kubelet confirms its end.
		require.NoError(t, framework.Kube(cp).CoreV1().Pods(systemNamespace).Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	}
	requirePending(t)
	require.NoError(t, schedulers[1].Start(t.Context()))
	boundPods(t, systemNamespace, overlays()["external-etcd"], serverName)
	requireScheduledBy(t, systemNamespace, secondScheduler, 2*len(used))

	_, denied := audited(t, "system:serviceaccount:"+secondScheduler+":"+secondScheduler)
	require.Empty(t, denied)
}

// startDefaultScheduler starts the scheduler that every cluster has.
func startDefaultScheduler(t *testing.T) {
	t.Helper()
	kubeconfig, err := cp.KubeconfigFor("system:kube-scheduler")
	require.NoError(t, err)
	port, err := cp.FreePort("kube-scheduler")
	require.NoError(t, err)
	scheduler, err := cp.NewProgram("kube-scheduler", controlplane.Program{
		Binary: "kube-scheduler",
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		},
		Port:  port,
		Check: func(context.Context) error { return nil },
	})
	require.NoError(t, err)
	t.Cleanup(scheduler.Kill)
	require.NoError(t, scheduler.Start(t.Context()))
}

// boundPods waits until the pods of that name have nodes, and returns them.
func boundPods(t *testing.T, namespace string, want map[string]int, name string) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	controlplane.Eventually(t, func() error {
		found = pods(t, namespace, want)[name]
		for _, pod := range found {
			if pod.Spec.NodeName == "" {
				return fmt.Errorf("%s has no node yet: %v", pod.Name, pod.Status.Conditions)
			}
		}
		return nil
	})
	return found
}

// requirePending checks that the server's pods have no node, even after the cluster's
// scheduler has bound a pod that is younger.
func requirePending(t *testing.T) {
	t.Helper()
	servers := pods(t, systemNamespace, overlays()["external-etcd"])[serverName]
	witness := "witness-" + string(servers[0].UID)
	_, err := framework.Kube(cp).CoreV1().Pods(secondScheduler).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: witness},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "witness", Image: "witness",
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		pod, err := framework.Kube(cp).CoreV1().Pods(secondScheduler).Get(t.Context(), witness, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" {
			err = fmt.Errorf("%s has no node yet: %v", pod.Name, pod.Status.Conditions)
		}
		return err
	})
	require.NoError(t, framework.Kube(cp).CoreV1().Pods(secondScheduler).Delete(t.Context(), witness, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	for _, pod := range pods(t, systemNamespace, overlays()["external-etcd"])[serverName] {
		require.Equal(t, secondScheduler, pod.Spec.SchedulerName)
		require.Empty(t, pod.Spec.NodeName)
		require.Equal(t, corev1.PodPending, pod.Status.Phase)
	}
}

// requireScheduledBy waits for the events of a number of bindings, all by that scheduler.
// Witnesses are not counted.
func requireScheduledBy(t *testing.T, namespace, scheduler string, count int) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		events, err := framework.Kube(cp).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Scheduled"})
		if err != nil {
			return err
		}
		found := 0
		for _, event := range events.Items {
			if strings.HasPrefix(event.InvolvedObject.Name, "witness-") {
				continue
			}
			require.Equal(t, scheduler, event.ReportingController, "%s", event.Message)
			found++
		}
		if found != count {
			err = fmt.Errorf("there are %d events of %s in %s, not %d", found, scheduler, namespace, count)
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
	_, err := framework.Kube(cp).CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Capacity: allocatable, Allocatable: allocatable,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	// Without a sign of life for 40 seconds, a node is taken for lost.
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(10 * time.Second):
			}
			patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": %q}]}}`, time.Now().UTC().Format(time.RFC3339))
			// A failure shows in the pods.
			_, _ = framework.Kube(cp).CoreV1().Nodes().PatchStatus(t.Context(), name, []byte(patch))
		}
	}()
	t.Cleanup(func() {
		for _, namespace := range []string{systemNamespace, secondScheduler} {
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
