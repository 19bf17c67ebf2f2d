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
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// TestBackupsOfCRDServer finds what the components for backups and restores add to the overlays of crd-apiserver. They
// have to save and restore what the server has.
func TestBackupsOfCRDServer(t *testing.T) {
	const (
		data    = "/var/lib/crd-apiserver in crd-apiserver-data"
		members = "https://etcd-0.etcd.$(POD_NAMESPACE).svc:2379,https://etcd-1.etcd.$(POD_NAMESPACE).svc:2379,https://etcd-2.etcd.$(POD_NAMESPACE).svc:2379"
	)
	added := map[string][]string{
		"backup-embedded": {
			"CronJob crd-apiserver backup", "PersistentVolumeClaim crd-apiserver backups",
			"backup/save: crd-apiserver, " + data, "backup/verify: crd-apiserver",
		},
		"backup-etcd": {
			"CronJob crd-apiserver backup", "PersistentVolumeClaim crd-apiserver backups",
			"NetworkPolicy crd-apiserver backup", "NetworkPolicy crd-apiserver etcd-backup",
			"backup/save: crd-apiserver, " + members, "backup/verify: crd-apiserver",
		},
		"backup-store": {
			"NetworkPolicy crd-apiserver backup-store",
			"backup/copy: rclone/rclone:1.76.0", "backup/prune: rclone/rclone:1.76.0",
		},
		"restore-embedded": {"crd-apiserver/restore: crd-apiserver, " + data},
		"restore-etcd":     {"etcd/restore: crd-apiserver, /var/lib/etcd/data in data"},
		"restore-store":    {"NetworkPolicy crd-apiserver restore-store"},
	}
	for overlay, want := range map[string]struct {
		server, fetch string
		combinations  []string
	}{
		"standalone": {data, "crd-apiserver/fetch: rclone/rclone:1.76.0", []string{
			"backup-embedded", "backup-embedded backup-store", "restore-embedded", "restore-embedded restore-store",
			"backup-embedded backup-store restore-embedded restore-store",
		}},
		"ha": {members, "etcd/fetch: rclone/rclone:1.76.0", []string{
			"backup-etcd", "backup-etcd backup-store", "restore-etcd", "restore-etcd restore-store",
			"backup-etcd backup-store restore-etcd restore-store",
		}},
	} {
		plain := contents(t, render(t, crdOverlay(overlay)))
		require.Contains(t, plain, "crd-apiserver/crd-apiserver: crd-apiserver, "+want.server)
		for _, combination := range want.combinations {
			t.Run(overlay+" "+combination, func(t *testing.T) {
				components := strings.Fields(combination)
				expected := slices.Clone(plain)
				for _, component := range components {
					expected = append(expected, added[component]...)
					if component == "restore-store" {
						expected = append(expected, want.fetch)
					}
				}
				objects := render(t, crdKustomization(t, overlay, components...))
				require.ElementsMatch(t, expected, contents(t, objects))
				for _, object := range objects {
					require.Equal(t, crdServer, object.GetLabels()["app.kubernetes.io/part-of"], identity(object))
				}
			})
		}
	}
}

// TestComponentsWithoutOthers has kustomizations refused whose components would match nothing.
func TestComponentsWithoutOthers(t *testing.T) {
	for name, test := range map[string]struct {
		overlay, components, want string
	}{
		"a store before its backups":  {"ha", "backup-store backup-etcd", "nothing selected by CronJob.[noVer].[noGrp]/backup"},
		"a store without backups":     {"standalone", "backup-store", "nothing selected by CronJob.[noVer].[noGrp]/backup"},
		"a store before the restore":  {"ha", "restore-store restore-etcd", "nothing selected by ConfigMap.[noVer].[noGrp]/restore-before-store"},
		"a restore of another's etcd": {"standalone", "restore-etcd", "nothing selected by StatefulSet.[noVer].[noGrp]/etcd"},
	} {
		for _, directory := range []string{"deploy", "crd-apiserver"} {
			t.Run(name+" "+directory, func(t *testing.T) {
				t.Parallel()
				components := strings.Fields(test.components)
				for i, component := range components {
					components[i] = "../" + directory + "/components/" + component
				}
				output, err := tryKubectl(t.Context(), "kustomize", kustomization(t, "../"+directory+"/overlays/"+test.overlay, components, ""))
				require.Error(t, err, output)
				require.Contains(t, output+err.Error(), test.want)
			})
		}
	}
}

// contents returns a line for each object, and one for each container. The latter has its image, and where
// crd-apiserver's data is, as its variables or a flag say.
func contents(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var lines []string
	for _, object := range objects {
		lines = append(lines, identity(object))
	}
	for name, template := range podTemplates(t, objects) {
		for _, container := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
			line := fmt.Sprintf("%s/%s: %s", name, container.Name, container.Image)
			for _, arg := range container.Args {
				if dir, found := strings.CutPrefix(arg, "--data-dir="); found {
					line += ", " + dir + " in " + claim(template.Spec, container, dir)
				}
			}
			for _, variable := range container.Env {
				switch variable.Name {
				case "CRD_APISERVER_DATA_DIR":
					line += ", " + variable.Value + " in " + claim(template.Spec, container, variable.Value)
				case "CRD_APISERVER_ETCD_SERVERS":
					line += ", " + variable.Value
				}
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// claim returns the name of the claim behind a directory, or of the template of claims.
func claim(spec corev1.PodSpec, container corev1.Container, dir string) string {
	for _, mount := range container.VolumeMounts {
		if !strings.HasPrefix(dir, mount.MountPath+"/") {
			continue
		}
		for _, volume := range spec.Volumes {
			if volume.Name == mount.Name && volume.PersistentVolumeClaim != nil {
				return volume.PersistentVolumeClaim.ClaimName
			}
		}
		return mount.Name
	}
	return ""
}
