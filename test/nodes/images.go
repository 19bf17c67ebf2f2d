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
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// pauseImage keeps the namespaces of a pod.
const pauseImage = "localhost/pause:test"

// importImages imports archives of images into the node's containerd, by the names that pods use.
// Nodes reach no registry.
func (n *Node) importImages(t testing.TB, images map[string]string) {
	t.Helper()
	for name, archive := range images {
		// The node's processes have another working directory.
		path, err := filepath.Abs(archive)
		require.NoError(t, err)
		// An archive that has the same name inside replaces the index, which may then be collected
		// before it is unpacked. The first container unpacks it.
		n.Do(t, "ctr", "--namespace=k8s.io", "images", "import", "--no-unpack", "--index-name="+name, path)
	}
}
