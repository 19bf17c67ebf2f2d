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
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/kit"
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

// TestModule is what an author does before writing a line. One group has a cluster-scoped kind,
// and a namespaced one with a status and a scale, in two versions. It has one of everything else
// that the kit writes. Another group has a kind of the same name. The tests that the kit has
// written serve both behind a real kube-apiserver.
func TestModule(t *testing.T) {
	framework.Long(t, "TestModuleWithoutProtobuf is the short one")
	dir := t.TempDir()
	definitions := inKitchen(t, "../../artifacts/crd/pizzas.yaml", "../../artifacts/crd/toppings.yaml", "testdata/prometheusrules.yaml")
	runTwice(t, dir, [][]string{
		{"init", "--group=bakery.example.com", "--module=example.com/bakery", "--replace=../.."},
		{"create", "kind", "Oven", "--versions=v1", "--generate=false"},
		{"create", "kind", "Bread", "--namespaced", "--versions=v1alpha1", "--scale", "--short=br", "--generate=false"},
		{"create", "action", "Bake", "--kind=Bread", "--generate=false"},
		{"create", "stream", "Track", "--kind=Bread", "--generate=false"},
		{"create", "version", "v1", "--kind=Bread", "--generate=false"},
		{"create", "action", "Clean", "--kind=Oven", "--generate=false"},
		{"create", "review", "PriceReview", "--generate=false"},
		{"create", "plugin", "BreadProtection", "--kind=Bread", "--generate=false"},
		{"create", "webhook", "Bread", "--generate=false"},
		{"create", "controller", "Baking", "--kind=Bread", "--generate=false"},
	})
	// Those of the bakery's versions have messages.
	runTwice(t, dir, [][]string{
		{"create", "group", "kitchen.example.com"},
		{"import", "crd", definitions[0], definitions[2], "--versions=v1", "--generate=false"},
		{"import", "crd", definitions[1], "--versions=v1,v1alpha1", "--generate=false"},
	})
	runTwice(t, dir, [][]string{
		{"create", "group", "pastry.example.com"},
		{"create", "kind", "Bread", "--group=pastry", "--namespaced", "--versions=v1", "--status", "--generate=false"},
		{"create", "action", "Bake", "--group=pastry", "--kind=Bread", "--generate=false"},
		{"create", "controller", "Baking", "--group=pastry.example.com", "--kind=Bread"},
	})
	writeExamples(t, dir)
	written := tree(t, dir)

	dockerfile := makeOlder(t, dir)
	output := run(t, dir, "upgrade")
	require.Contains(t, output, "changed  .golangci.yaml\n")
	require.Contains(t, output, "left     Dockerfile (it exists, with other content)\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Dockerfile"), dockerfile, 0o600))
	require.Equal(t, written, tree(t, dir), "the upgrade did not lead to what this version writes")

	exported := filepath.Join(t.TempDir(), "definitions.yaml")
	run(t, dir, "export", "crd", "--group=pastry", "--file="+exported)
	require.Equal(t, map[string][]string{"breads.pastry.example.com": {"v1"}}, definedVersions(t, exported))
	run(t, dir, "export", "crd", "--group=bakery", "--file="+exported)
	require.Equal(t, map[string][]string{
		"breads.bakery.example.com": {"v1", "v1alpha1"},
		"ovens.bakery.example.com":  {"v1"},
	}, definedVersions(t, exported))
	run(t, dir, "export", "crd", "--group=kitchen", "--file="+exported)
	require.Equal(t, map[string][]string{
		"pizzas.kitchen.example.com":          {"v1"},
		"prometheusrules.kitchen.example.com": {"v1"},
		"toppings.kitchen.example.com":        {"v1", "v1alpha1"},
	}, definedVersions(t, exported))

	require.Empty(t, program(t, dir, "gofmt", "-l", "."))
	program(t, dir, "go", "mod", "tidy", "-diff")
	program(t, dir, "go", "vet", "./...")
	output = program(t, dir, "make", "test")
	for _, tested := range []string{
		"/pkg/admission/plugin/bakery/breadprotection", "/pkg/apis/bakery/install", "/pkg/apis/bakery/validation",
		"/pkg/controller/bakery/baking", "/pkg/registry/bakery", "/pkg/webhook/bakery",
		"/pkg/apis/pastry/install", "/pkg/apis/pastry/validation", "/pkg/controller/pastry/baking", "/pkg/registry/pastry", "/pkg/apis/kitchen/install", "/pkg/registry/kitchen", "/test/e2e",
	} {
		require.Contains(t, output, "ok  \texample.com/bakery"+tested, output)
	}
}

// runTwice runs commands of the kit, and again, which changes nothing.
func runTwice(t *testing.T, dir string, commands [][]string) {
	t.Helper()
	for _, args := range commands {
		run(t, dir, args...)
	}
	written := tree(t, dir)
	for _, args := range commands {
		require.Contains(t, run(t, dir, args...), "Everything is there already.", args)
	}
	require.Equal(t, written, tree(t, dir), "repeating the commands has changed something")
}

// definedVersions are those of each CustomResourceDefinition in a file.
func definedVersions(t *testing.T, file string) map[string][]string {
	t.Helper()
	text, err := os.Open(file)
	require.NoError(t, err)
	defer text.Close()
	versions := map[string][]string{}
	documents := utilyaml.NewYAMLOrJSONDecoder(text, 4096)
	for {
		var definition apiextensionsv1.CustomResourceDefinition
		err := documents.Decode(&definition)
		if errors.Is(err, io.EOF) {
			return versions
		}
		require.NoError(t, err)
		for _, version := range definition.Spec.Versions {
			versions[definition.Name] = append(versions[definition.Name], version.Name)
		}
	}
}

// inKitchen returns copies of definitions, as definitions of the kitchen.
func inKitchen(t *testing.T, files ...string) (copies []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		copied := filepath.Join(t.TempDir(), filepath.Base(file))
		require.NoError(t, os.WriteFile(copied, []byte(kitchens.Replace(string(text))), 0o600))
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
		text, err := os.ReadFile(example)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "artifacts", "examples", file), []byte(kitchens.Replace(string(text))), 0o600))
	}
}

// makeOlder makes the module what an earlier version of the kit, for an earlier Kubernetes, has
// written. It has other files, and a person has changed one of them.
func makeOlder(t *testing.T, dir string) (changed []byte) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(dir, "hack", "kit.sum"))
	require.NoError(t, err)
	for _, name := range []string{".golangci.yaml", "Dockerfile"} {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		older := append([]byte("# An earlier version.\n"), text...)
		sums = bytes.ReplaceAll(sums, fmt.Appendf(nil, "%x", sha256.Sum256(text)), fmt.Appendf(nil, "%x", sha256.Sum256(older)))
		if changed = text; name == "Dockerfile" {
			older = append(older, "# A person's.\n"...)
		}
		require.NoError(t, os.WriteFile(file, older, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hack", "kit.sum"), sums, 0o600))
	program(t, dir, "go", "mod", "edit", "-droptool=restaurant.programming-kubernetes.info/apiserver/cmd/kit", "-require=k8s.io/apimachinery@v0.36.0")
	return changed
}

// run runs the kit and returns what it says.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var output bytes.Buffer
	require.NoError(t, try(t, dir, &output, args...), "kit %s: %s", args, &output)
	return output.String()
}

// try runs the kit.
func try(t *testing.T, dir string, output io.Writer, args ...string) error {
	t.Helper()
	cmd := kit.NewCommand("kit")
	cmd.SetArgs(append(args, "--dir="+dir))
	cmd.SetOut(output)
	cmd.SetErr(output)
	return cmd.ExecuteContext(t.Context())
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
