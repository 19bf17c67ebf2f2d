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

package nodes

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// volumesOfNode is how many volumes a node has for claims. None is used twice, and all overlays together, with their
// restores, need more than 30 of three nodes.
const volumesOfNode = 30

// addVolumes makes a default StorageClass with volumes. Each volume is a directory of a node.
func (c *Cluster) addVolumes(t testing.TB) {
	t.Helper()
	var manifests strings.Builder
	manifests.WriteString(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
`)
	for _, node := range c.Nodes {
		for i := range volumesOfNode {
			path := filepath.Join(node.dir, "volumes", fmt.Sprint(i))
			write(t, filepath.Join(path, "lost+found", "kept"), "")
			fmt.Fprintf(&manifests, `---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-%[2]d}
spec:
  storageClassName: local
  capacity: {storage: 32Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: {path: %[3]s}
  nodeAffinity:
    required:
      nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[1]s]}]}]
`, node.Name, i, path)
		}
	}
	c.apply(t, manifests.String())
}
