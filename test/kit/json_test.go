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

package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestModuleWithoutProtobuf has a module whose server stores JSON: its tests pass, its image can be
// built, and its manifests install it and delete it again.
func TestModuleWithoutProtobuf(t *testing.T) {
	dir := t.TempDir()
	runTwice(t, dir, [][]string{
		{"init", "--group=bakery.example.com", "--module=example.com/bakery", "--replace=../.."},
		{"create", "kind", "Bread", "--namespaced", "--versions=v1", "--status", "--protobuf=false", "--generate=false"},
		{"create", "controller", "Baking", "--kind=Bread"},
	})
	repairInterrupted(t, dir, "create", "controller", "Baking", "--kind=Bread")
	require.NoFileExists(t, filepath.Join(dir, "pkg", "apis", "bakery", "v1", "generated.pb.go"))
	require.Empty(t, program(t, dir, "gofmt", "-l", "."))
	if !testing.Short() { // It vets more than a thousand packages.
		program(t, dir, "go", "vet", "./...")
	}
	output := program(t, dir, "make", "test")
	for _, tested := range []string{"/pkg/apis/bakery/install", "/pkg/controller/bakery/baking", "/pkg/registry/bakery", "/test/e2e"} {
		require.Contains(t, output, "ok  \texample.com/bakery"+tested, output)
	}
	t.Run("image", func(t *testing.T) {
		framework.Long(t, "images are built")
		testImage(t, dir)
	})
	t.Run("deploy", func(t *testing.T) { testDeploy(t, dir) })
}

// repairInterrupted repeats a command whose generation was interrupted after it had deleted what
// was generated before.
func repairInterrupted(t *testing.T, dir string, command ...string) {
	t.Helper()
	complete := tree(t, dir)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "pkg", "generated")))
	run(t, dir, command...)
	require.Equal(t, complete, tree(t, dir))
}

func prependPath(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// testImage builds the image with buildah and storage of its own. The plain copying driver and
// isolation by chroot ask the least of the kernel.
func testImage(t *testing.T, dir string) {
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("buildah is not installed; Debian has a package of that name")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may build images everywhere")
	}
	storage := t.TempDir()
	config := filepath.Join(storage, "storage.conf")
	require.NoError(t, os.WriteFile(config, []byte("[storage]\ndriver = \"vfs\"\ngraphroot = \""+storage+"/root\"\nrunroot = \""+storage+"/run\"\n"), 0o600))
	t.Setenv("CONTAINERS_STORAGE_CONF", config)
	t.Setenv("BUILDAH_ISOLATION", "chroot")

	const image = "registry.example.com:5000/bakery-apiserver:v1"
	program(t, dir, "make", "image", "CONTAINER_TOOL=buildah", "IMAGE="+image)
	require.Equal(t, "[/apiserver] 65532:65532 linux\n",
		program(t, dir, "buildah", "inspect", "--type=image", "--format={{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}} {{.OCIv1.OS}}\n", image))
}

// testDeploy installs the server in a control plane without nodes. It runs as a process here, with
// no permissions but those that were installed.
func testDeploy(t *testing.T, dir string) {
	program(t, dir, "make", "build")
	cp := controlplane.ForTest(t, controlplane.Config{
		Manifests: filepath.Join(dir, "artifacts", "deploy", "base"),
		APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true, Binary: filepath.Join(dir, "_output", "bin", "apiserver")}},
	})
	prependPath(t, filepath.Dir(cp.Kubectl(t.Context()).Path))
	t.Setenv("KUBECONFIG", cp.Kubeconfig())

	const image = "registry.example.com:5000/bakery-apiserver:v1"
	program(t, dir, "make", "deploy", "IMAGE="+image)
	require.Equal(t, image, program(t, dir, "kubectl", "get", "deployment/apiserver", "--namespace=bakery-system", "--output=jsonpath={.spec.template.spec.containers[0].image}"))

	require.NoError(t, cp.APIServer.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), cp.APIServer))
	program(t, dir, "kubectl", "create", "--filename=artifacts/examples/bread.yaml")

	program(t, dir, "make", "undeploy", "IMAGE="+image)
	require.Empty(t, program(t, dir, "kubectl", "get", "--ignore-not-found", "namespace/bakery-system", "apiservice/v1.bakery.example.com", "clusterrole/bakery-apiserver"))
}
