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
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestDoctorComponent has the pod of the CronJob admitted, and runs what it runs under its
// ServiceAccount, which may read what the doctor examines.
func TestDoctorComponent(t *testing.T) {
	framework.Long(t, "pods are run")
	dir := kustomization(t, "overlays/standalone", []string{"components/doctor"}, "patches:\n  - target: {kind: CronJob}\n    patch: |\n      - {op: add, path: /spec/suspend, value: true}\n")
	install(t, dir)
	want := map[string]int{"doctor": 1}
	for name, count := range overlays()["standalone"] {
		want[name] = count
	}
	kubectl(t, "create", "job", "trial", "--from=cronjob/doctor", "--namespace="+systemNamespace)
	admitted := pods(t, systemNamespace, want)
	pod := admitted["doctor"][0]
	machine := newMachine("doctor-")
	machine.claims["apiserver-data"] = shortDirectory(t)
	server := machine.runAll(t, admitted[serverName])[0]
	serve(t, server)

	var job batchv1.CronJob
	for _, object := range render(t, dir) {
		if object.GetKind() == "CronJob" {
			convert(t, object, &job)
		}
	}
	require.Equal(t, job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args, pod.Spec.Containers[0].Args)
	code, results := examine(t, pod.Namespace, "apiserver", pod.Spec)
	require.Zero(t, code, "%v", results)
	for _, result := range results {
		// The pod that serves is a process of this machine, without endpoints, and has the etcd.
		if !slices.Contains([]string{"etcd", "storage", "service", "certificate"}, result.Check) {
			require.Equal(t, "ok", result.Status, "%v", result)
		}
	}
}

// result is one of the doctor's.
type result struct{ Check, Status, Cause string }

// examine runs what a pod of the doctor runs. It may read all that it looks at.
func examine(t *testing.T, namespace, binary string, pod corev1.PodSpec) (code int, results []result) {
	t.Helper()
	kubeconfig, err := cp.KubeconfigFor(serviceaccount.MakeUsername(namespace, pod.ServiceAccountName), serviceaccount.MakeGroupNames(namespace)...)
	require.NoError(t, err)
	for _, variable := range pod.Containers[0].Env {
		t.Setenv(variable.Name, variable.Value)
	}
	args := append(slices.Clone(pod.Containers[0].Args), "--kubeconfig="+kubeconfig, "--namespace="+namespace, "--output=json")
	code, stdout, stderr := framework.ToolOf(t, cp, binary, args...)
	var output struct{ Results []result }
	require.NoError(t, json.Unmarshal([]byte(stdout), &output), stderr)
	require.NotEmpty(t, output.Results)
	for _, result := range output.Results {
		require.NotContains(t, result.Cause, "can't be read by this user")
	}
	return code, output.Results
}
