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
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestBackupComponents starts a backup of each kind, whose pod is admitted. It looks whether
// the backup saves what the server stores. Both must agree on where that is.
func TestBackupComponents(t *testing.T) {
	framework.Long(t, "pods are run")
	for overlay, component := range map[string]string{"standalone": "components/backup-embedded", "ha": "components/backup-etcd"} {
		t.Run(overlay, func(t *testing.T) {
			// Another backup would begin if the time of the day is that of the schedule.
			dir := kustomization(t, "overlays/"+overlay, []string{component}, "patches:\n  - target: {kind: CronJob}\n    patch: |\n      - {op: add, path: /spec/suspend, value: true}\n")
			objects := render(t, dir)
			var server workload
			for _, found := range workloads(t, objects) {
				if found.name == "apiserver" {
					server = found
				}
			}
			var save *corev1.Container
			for _, object := range objects {
				if object.GetKind() == "CronJob" {
					var job batchv1.CronJob
					convert(t, object, &job)
					save = &job.Spec.JobTemplate.Spec.Template.Spec.InitContainers[0]
				}
			}
			require.NotNil(t, save)
			require.NotEmpty(t, save.Env)
			for _, flag := range save.Env {
				require.Equal(t, variable(t, server, flag.Name), flag.Value, flag.Name)
			}
			for _, mount := range save.VolumeMounts {
				if mount.Name != "backups" {
					require.Contains(t, server.spec.Containers[0].VolumeMounts, mount)
				}
			}

			install(t, dir)
			kubectl(t, "create", "job", "trial", "--from=cronjob/backup", "--namespace="+systemNamespace)
			want := map[string]int{"backup": 1}
			for name, count := range overlays()[overlay] {
				want[name] = count
			}
			pods(t, systemNamespace, want)
		})
	}
}
