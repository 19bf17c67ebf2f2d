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

// Package kit builds a module from nothing with the kit, and tests and serves it.
package kit

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/kit"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestMain lets go-to-protobuf call the kit, which is part of this program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "protoc" {
		os.Exit(m.Run())
	}
	if err := kit.NewCommand(os.Args[0]).Execute(); err != nil {
		os.Exit(1)
	}
}

// TestModule is what an author does before writing a line, in one module, since a module takes minutes to compile. The
// bakery has one of everything that the kit writes. The kitchen is imported. The pastry has no protobuf messages, and
// names that mean something in Go. The tests that the kit has written serve all groups behind a real kube-apiserver.
func TestModule(t *testing.T) {
	dir := t.TempDir()
	definitions := inKitchen(t, "../../artifacts/crd/pizzas.yaml", "../../artifacts/crd/toppings.yaml", "testdata/prometheusrules.yaml")
	commands := [][]string{
		{"init", "--group=bakery.example.com", "--module=git.example-corp.com/my.team/the-bakery", "--replace=../.."},
		{"create", "kind", "Oven", "--group=bakery", "--versions=v1", "--field=site=string,required", "--field=heats=duration,immutable", "--field=doors=int32,required", "--generate=false"},
		{"create", "kind", "Bread", "--group=bakery", "--namespaced", "--versions=v1alpha1", "--scale", "--short=br", "--generate=false"},
		{"create", "action", "Bake", "--group=bakery", "--kind=Bread", "--generate=false"},
		{"create", "stream", "Track", "--group=bakery", "--kind=Bread", "--generate=false"},
		{"create", "version", "v1", "--group=bakery", "--kind=Bread", "--generate=false"},
		{"create", "review", "PriceReview", "--group=bakery", "--generate=false"},
		{"create", "plugin", "BreadProtection", "--group=bakery", "--kind=Bread", "--generate=false"},
		{"create", "webhook", "Bread", "--group=bakery", "--generate=false"},
		{"create", "controller", "Baking", "--group=bakery", "--kind=Bread", "--generate=false"},
		{"create", "group", "kitchen.example.com"},
		{"import", "crd", definitions[0], definitions[2], "--versions=v1", "--generate=false"},
		{"import", "crd", definitions[1], "--versions=v1,v1alpha1", "--generate=false"},
		{"create", "group", "2nd-pastry.example.com", "--name=pastry"},
		{"create", "kind", "Bread", "--group=pastry", "--namespaced", "--versions=v1", "--status", "--protobuf=false", "--generate=false"},
		{"create", "controller", "Baking", "--group=pastry", "--kind=Bread", "--generate=false"},
		{"create", "kind", "String", "--group=pastry", "--versions=v1", "--generate=false"},
		{"create", "kind", "Runtime", "--group=pastry", "--versions=v1", "--generate=false"},
		{"create", "kind", "Person", "--group=pastry", "--plural=people", "--versions=v1", "--generate=false",
			"--field=pen=string,required", "--field=born=time,required,immutable", "--field=naps=duration,required", "--field=budget=quantity,required",
			"--field=share=int-or-string", "--field=hobbies=strings,required", "--field=children=int32,required,immutable", "--field=steps=int64", "--field=married=bool,required"},
	}
	for _, args := range commands {
		run(t, dir, args...)
	}
	written := tree(t, dir)
	for _, args := range commands {
		require.Contains(t, run(t, dir, args...), "Everything is there already.", args)
	}
	require.Equal(t, written, tree(t, dir), "repeating the commands has changed something")

	writeExamples(t, dir)
	addCoreFields(t, dir)
	addReference(t, dir)
	run(t, dir, "generate")
	require.Empty(t, program(t, dir, "gofmt", "-l", "."))
	program(t, dir, "go", "mod", "tidy") // As "make generate" does.
	generated := tree(t, dir)
	program(t, dir, "go", "mod", "edit", "-droptool=restaurant.programming-kubernetes.info/apiserver/cmd/kit")
	run(t, dir, "upgrade")
	require.Equal(t, generated, tree(t, dir), "the upgrade did not lead to what this version writes")
	testExport(t, dir)

	output := program(t, dir, "make", "test")
	for _, tested := range []string{
		"/pkg/admission/plugin/bakery/breadprotection", "/pkg/apis/bakery/install", "/pkg/apis/bakery/validation",
		"/pkg/controller/bakery/baking", "/pkg/registry/bakery", "/pkg/webhook/bakery",
		"/pkg/apis/pastry/install", "/pkg/controller/pastry/baking", "/pkg/registry/pastry", "/pkg/registry/kitchen", "/test/e2e",
	} {
		require.Contains(t, output, "ok  \tgit.example-corp.com/my.team/the-bakery"+tested, output)
	}
	t.Run("deploy", func(t *testing.T) { testDeploy(t, dir) })
	t.Run("image", func(t *testing.T) {
		framework.Long(t, "images are built")
		testImage(t, dir)
	})
}

// inKitchen returns copies of definitions, as definitions of the kitchen.
func inKitchen(t *testing.T, files ...string) (copies []string) {
	t.Helper()
	for _, file := range files {
		copied := filepath.Join(t.TempDir(), filepath.Base(file))
		replace(t, file, copied, kitchens)
		copies = append(copies, copied)
	}
	return copies
}

var kitchens = strings.NewReplacer("restaurant.programming-kubernetes.info", "kitchen.example.com", "monitoring.coreos.com", "kitchen.example.com")

// writeExamples writes those of the kinds that are imported.
func writeExamples(t *testing.T, dir string) {
	t.Helper()
	for file, example := range map[string]string{
		"kitchen-topping.yaml":        "../../artifacts/examples/1-toppings.yaml",
		"kitchen-pizza.yaml":          "testdata/pizza.yaml",
		"kitchen-prometheusrule.yaml": "testdata/prometheusrule.yaml",
	} {
		replace(t, example, filepath.Join(dir, "artifacts", "examples", file), kitchens)
	}
}

// addCoreFields adds a field of Kubernetes' own types, and a value to its example.
func addCoreFields(t *testing.T, dir string) {
	t.Helper()
	fields := strings.NewReplacer("import (\n", "import (\n\tcorev1 \"k8s.io/api/core/v1\"\n", "type PersonSpec struct {\n",
		"type PersonSpec struct {\n\t// +optional\n\t// +k8s:opaqueType\n\tTemplate *corev1.PodTemplateSpec `json:\"template,omitempty\"`\n")
	for _, version := range []string{"", "v1"} {
		file := filepath.Join(dir, "pkg", "apis", "pastry", version, "person_types.go")
		replace(t, file, file, fields)
	}
	// An empty list of a Pod is not told from none after a round trip.
	fuzzer := filepath.Join(dir, "pkg", "apis", "pastry", "fuzzer", "person_fuzzer.go")
	replace(t, fuzzer, fuzzer, strings.NewReplacer("c.FillNoCustom(spec)\n", "c.FillNoCustom(spec)\n\tspec.Template = nil\n"))
	example := filepath.Join(dir, "artifacts", "examples", "pastry-person.yaml")
	replace(t, example, example, strings.NewReplacer("spec:\n", "spec:\n  template: {spec: {containers: [{name: oven, image: oven:v1}]}}\n"))
}

// addReference makes a person refer to a string, whose example comes after the person's.
func addReference(t *testing.T, dir string) {
	t.Helper()
	declaration := filepath.Join(dir, "pkg", "registry", "pastry", "person.go")
	replace(t, declaration, declaration, strings.NewReplacer("\t\tSpec: ",
		"\t\tReferences: []registry.Reference[*pastry.Person]{{Resource: \"strings\", Field: \"spec.pen\", Names: func(p *pastry.Person) []string { return []string{p.Spec.Pen} }}},\n\n\t\tSpec: "))
	example := filepath.Join(dir, "artifacts", "examples", "pastry-person.yaml")
	replace(t, example, example, strings.NewReplacer("pen: an example", "pen: example"))
}

func replace(t *testing.T, from, to string, replacer *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	replaced := replacer.Replace(string(text))
	require.NoError(t, os.WriteFile(to, []byte(replaced), 0o600))
}

// testExport exports the definitions of each group.
func testExport(t *testing.T, dir string) {
	exported := filepath.Join(t.TempDir(), "definitions.yaml")
	for group, names := range map[string][]string{
		"bakery":  {"breads.bakery.example.com", "ovens.bakery.example.com"},
		"kitchen": {"pizzas.kitchen.example.com", "prometheusrules.kitchen.example.com", "toppings.kitchen.example.com"},
		"pastry":  {"breads.2nd-pastry.example.com", "people.2nd-pastry.example.com", "initContainers:"},
	} {
		run(t, dir, "export", "crd", "--group="+group, "--file="+exported)
		text, err := os.ReadFile(exported)
		require.NoError(t, err)
		for _, name := range names {
			require.Contains(t, string(text), name)
		}
	}
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

	program(t, dir, "make", "image", "CONTAINER_TOOL=buildah", "IMAGE="+image)
	require.Equal(t, "[/apiserver] 65532:65532 linux\n",
		program(t, dir, "buildah", "inspect", "--type=image", "--format={{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}} {{.OCIv1.OS}}\n", image))
}

const image = "registry.example.com:5000/bakery-apiserver:v1"

// testDeploy installs the server in a control plane without nodes. It runs as a process here, with
// no permissions but those that were installed.
func testDeploy(t *testing.T, dir string) {
	program(t, dir, "make", "build")
	cp := controlplane.ForTest(t, controlplane.Config{
		Manifests: filepath.Join(dir, "artifacts", "deploy", "base"),
		APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true, Binary: filepath.Join(dir, "_output", "bin", "apiserver")}},
	})
	t.Setenv("PATH", filepath.Dir(cp.Kubectl(t.Context()).Path)+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("KUBECONFIG", cp.Kubeconfig())
	program(t, dir, "make", "deploy", "IMAGE="+image)
	require.Equal(t, image, program(t, dir, "kubectl", "get", "deployment/apiserver", "--namespace=bakery-system", "--output=jsonpath={.spec.template.spec.containers[0].image}"))

	require.NoError(t, cp.APIServer.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), cp.APIServer))
	program(t, dir, "kubectl", "create", "--filename=artifacts/examples/bread.yaml")
	const person, pen = "--filename=artifacts/examples/pastry-person.yaml", "--filename=artifacts/examples/pastry-string.yaml"
	requireRefused(t, dir, `spec.pen: Not found: "example"`, "create", person)
	program(t, dir, "kubectl", "create", pen)
	program(t, dir, "kubectl", "create", person)
	requireRefused(t, dir, "1 person refers to it by spec.pen: example", "delete", pen)

	program(t, dir, "make", "undeploy", "IMAGE="+image)
	require.Empty(t, program(t, dir, "kubectl", "get", "--ignore-not-found", "namespace/bakery-system", "apiservice/v1.bakery.example.com", "clusterrole/bakery-apiserver"))
}

// requireRefused runs kubectl, which has to fail with a text.
func requireRefused(t *testing.T, dir, text string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "kubectl", args...)
	command.Dir = dir
	output, err := command.CombinedOutput()
	require.Error(t, err, "%s", output)
	require.Contains(t, string(output), text)
}

// run runs the kit and returns what it says.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var output bytes.Buffer
	cmd := kit.NewCommand("kit")
	cmd.SetArgs(append(args, "--dir="+dir))
	cmd.SetOut(&output)
	cmd.SetErr(&output)
	require.NoError(t, cmd.ExecuteContext(t.Context()), "kit %s: %s", args, &output)
	return output.String()
}

// program runs a program with the compiler flags of all binaries, so that common packages
// are compiled once.
func program(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, args, output)
	return string(output)
}

// tree returns the checksums of all files in a directory, but for those that git ignores.
func tree(t *testing.T, dir string) map[string][sha256.Size]byte {
	t.Helper()
	sums := map[string][sha256.Size]byte{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(path, "_output/") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		sums[path] = sha256.Sum256(data)
		return err
	}))
	return sums
}
