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
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestUnusualModule has kinds that are called like packages, types and variables of Go, irregular plurals, a path
// with dashes and dots, and fields of the core group with and without protobuf messages. There is no home directory.
func TestUnusualModule(t *testing.T) {
	framework.Long(t, "TestModuleWithoutProtobuf is the short one")
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		t.Setenv(name, strings.TrimSpace(program(t, ".", "go", "env", name)))
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", "")

	dir := t.TempDir()
	commands := [][]string{{"init", "--group=bakery.example.com", "--module=git.example-corp.com/my.team/the-bakery", "--replace=../.."}}
	for _, kind := range []string{
		"Client", "Context", "Error", "Fmt", "Kind", "List", "Metav1", "Options", "Register", "Registry", "Runtime", "Scheme", "Spec",
		"Status", "String", "T", "Time", "V1", "Validation",
	} {
		commands = append(commands, []string{"create", "kind", kind, "--versions=v1", "--generate=false"})
	}
	runTwice(t, dir, append(commands,
		[]string{"create", "kind", "Sheep", "--plural=sheep", "--namespaced", "--versions=v1", "--scale", "--generate=false"},
		[]string{"create", "kind", "Person", "--plural=people", "--versions=v1", "--generate=false"},
	))
	runTwice(t, dir, [][]string{
		{"create", "group", "pastry.example.com"},
		{"create", "kind", "Cake", "--group=pastry", "--versions=v1", "--protobuf=false", "--generate=false"},
	})
	addCoreFields(t, dir, "bakery", "Person")
	addCoreFields(t, dir, "pastry", "Cake")
	run(t, dir, "generate")
	program(t, dir, "go", "build", "./...")
	program(t, dir, "go", "list", "-test", "-export", "-f=", "./...")

	exported := filepath.Join(t.TempDir(), "definitions.yaml")
	for _, group := range []string{"bakery", "pastry"} {
		run(t, dir, "export", "crd", "--group="+group, "--file="+exported)
		text, err := os.ReadFile(exported)
		require.NoError(t, err)
		for _, field := range []string{"initContainers:", "limits:", "optional:"} {
			require.Contains(t, string(text), field)
		}
	}

	program(t, dir, "make", "build")
	cp := controlplane.ForTest(t, controlplane.Config{
		Manifests:         filepath.Join(dir, "artifacts", "deploy", "base"),
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true, Binary: filepath.Join(dir, "_output", "bin", "apiserver")}},
	})
	require.NoError(t, cp.Install(t.Context()))
	require.NoError(t, cp.APIServer.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), cp.APIServer))
	kubectl := func(args ...string) string {
		output, err := cp.Kubectl(t.Context(), args...).CombinedOutput()
		require.NoError(t, err, "%s", output)
		return string(output)
	}
	const others = 3 // Sheep, Person and Cake.
	require.Equal(t, len(commands)-1+others, strings.Count(kubectl("create", "--filename="+filepath.Join(dir, "artifacts", "examples")), " created\n"))
	for _, resource := range []string{"people.bakery.example.com", "cakes.pastry.example.com"} {
		const spec = `{"spec": {
			"podTemplateSpec": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "oven", "image": "oven:v1"}]}},
			"resourceRequirements": {"limits": {"cpu": "500m"}},
			"secretKeySelector": {"name": "recipe", "key": "flour"}
		}}`
		kubectl("patch", resource, "example", "--type=merge", "--patch="+spec)
		require.Equal(t, "oven:v1 500m flour", kubectl("get", resource, "example",
			"--output=jsonpath={.spec.podTemplateSpec.spec.containers[0].image} {.spec.resourceRequirements.limits.cpu} {.spec.secretKeySelector.key}"))
	}
}

// addCoreFields adds fields to the spec of a kind.
func addCoreFields(t *testing.T, dir, group, kind string) {
	t.Helper()
	for _, version := range []string{"", "v1"} {
		file := filepath.Join(dir, "pkg", "apis", group, version, strings.ToLower(kind)+"_types.go")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		fields := "type " + kind + "Spec struct {\n"
		for _, of := range []string{"PodTemplateSpec", "ResourceRequirements", "SecretKeySelector"} {
			fields += "\t// +optional\n\t// +k8s:opaqueType\n\t" + of + " *corev1." + of + " `json:\"" + strings.ToLower(of[:1]) + of[1:] + ",omitempty\"`\n"
		}
		changed := strings.NewReplacer("import (\n", "import (\n\tcorev1 \"k8s.io/api/core/v1\"\n", "type "+kind+"Spec struct {\n", fields).Replace(string(text))
		require.Contains(t, changed, "corev1.PodTemplateSpec")
		require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
	}
}
