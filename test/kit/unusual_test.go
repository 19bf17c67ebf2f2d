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
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestUnusualModule has kinds and groups that are called like packages, types, variables and keywords of Go. It has
// groups with the same first label, irregular plurals, and a path with dashes and dots. Fields are of the core
// group, with and without protobuf messages. There is no home directory.
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
		"Server", "Status", "String", "T", "Time", "V1", "Validation",
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
	// Groups of strangers.
	const keyword = "testdata/import.yaml"
	runTwice(t, dir, [][]string{
		{"create", "group", "crd.example.com"},
		{"create", "kind", "Server", "--group=crd", "--versions=v1", "--status", "--generate=false"},
		{"create", "controller", "Baking", "--group=crd", "--kind=Server", "--generate=false"},
		{"create", "webhook", "Server", "--group=crd", "--generate=false"},
		{"create", "group", "2nd-bakery.example.com", "--name=second"},
		{"create", "kind", "Server", "--group=second", "--versions=v1", "--generate=false"},
		{"create", "group", "bakery.example.org", "--name=other"},
		{"create", "kind", "Server", "--group=other", "--versions=v1", "--generate=false"},
		{"import", "crd", keyword, "--clients=false", "--generate=false"},
	})
	addCoreFields(t, dir, "bakery", "Person")
	addCoreFields(t, dir, "pastry", "Cake")
	run(t, dir, "generate")
	program(t, dir, "go", "list", "-test", "-export", "./...")

	// Code that does not compile with the rest of the module is taken back, and generated code as well.
	tests := filepath.Join(dir, "test", "e2e", "e2e_test.go")
	text, err := os.ReadFile(tests)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(tests, append(text, "\nvar TestBake int\n"...), 0o600))
	written := tree(t, dir)
	require.ErrorContains(t, try(t, dir, io.Discard, "create", "action", "Bake", "--group=bakery", "--kind=Sheep"), "TestBake redeclared in this block")
	require.Equal(t, written, tree(t, dir))
	require.NoError(t, os.WriteFile(tests, text, 0o600))

	exported := filepath.Join(t.TempDir(), "definitions.yaml")
	run(t, dir, "export", "crd", "--group=crd", "--file="+exported)
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
	const others = 6 // Sheep, Person, Cake, and a Server of each other group.
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
