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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// testQuickstart follows docs/quickstart.md from the section about the server to the last.
func (o *operations) testQuickstart(t *testing.T) {
	const server = "2. The server"
	step := o.quickstart(t, "quickstart.md", server, "restaurant")
	require.Contains(t, step(server), "\n0 failures, ")
	require.Contains(t, step("3. A pizza"), "margherita")
	step("4. Leave")
}

// testQuickstartOfCustomResources follows docs/crd-apiserver/quickstart.md. kube-apiserver serves
// an object, then crd-apiserver does, and then kube-apiserver again.
func (o *operations) testQuickstartOfCustomResources(t *testing.T) {
	const server, there = "3. The server", "4. There"
	step := o.quickstart(t, "crd-apiserver/quickstart.md", server, "crd-apiserver")
	step("2. A definition")
	const identity = "kubectl get widget first --output=jsonpath='{.metadata.uid} {.spec}'"
	first := o.Run(t, identity)
	step(server)
	require.Contains(t, o.Run(t, "kubectl get apiservice v1.example.com"), "Local")
	require.Contains(t, step(there), "crd-apiserver/crd-apiserver")
	require.Equal(t, first, o.Run(t, identity))
	function, _, _ := strings.Cut(Read(t, filepath.Join(root, "docs", "crd-apiserver", "quickstart.md")).Script(t, there), "\n")
	require.Contains(t, step("5. And back", function), "first")
}

// quickstart returns a function that executes the commands of a section, and returns their output.
// Shell functions of an earlier section may precede them. quickstart writes the kustomization of
// the section server into a directory. The image is on the nodes already. Nothing may be left at
// the end.
func (o *operations) quickstart(t *testing.T, path, server, directory string) (step func(section string, functions ...string) string) {
	t.Helper()
	before, err := framework.Inventory(t.Context(), o.cluster.ControlPlane)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			o.explain(t)
			return
		}
		o.requireInventory(t, before)
	})
	page := Read(t, filepath.Join(root, "docs", path))
	require.NoError(t, os.MkdirAll(filepath.Join(o.Dir, "_output"), 0o700))
	if err := os.Symlink(binDir(), filepath.Join(o.Dir, "_output", "bin")); !os.IsExist(err) {
		require.NoError(t, err)
	}
	write(t, filepath.Join(o.Dir, directory, "kustomization.yaml"), page.YAML(t, server, "kind: Kustomization"))
	return func(section string, functions ...string) string {
		t.Helper()
		began := time.Now()
		output := o.Run(t, strings.Join(append(functions, page.Script(t, section)), "\n"))
		t.Logf("%s: %s took %.0f s and printed\n%s", path, section, time.Since(began).Seconds(), output)
		return output
	}
}
