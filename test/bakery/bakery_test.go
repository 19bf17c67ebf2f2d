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

// Package bakery shows that another team can serve a group of its own on this module, from
// nothing but the files in testdata/module.
package bakery

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	root       = "../.."
	restaurant = "restaurant.programming-kubernetes.info"
	module     = restaurant + "/apiserver"
	group      = "bakery.example.com"
)

// TestAGroupIsEightFilesAndALine counts what a person writes for another group of a server.
// The group has two versions, protobuf, clients, an admission plugin and a controller.
func TestAGroupIsEightFilesAndALine(t *testing.T) {
	var files []string
	require.NoError(t, fs.WalkDir(os.DirFS("testdata/module"), ".", func(path string, entry fs.DirEntry, err error) error {
		if !entry.IsDir() && path != "main.go" && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	}))
	require.LessOrEqual(t, len(files), 8, files)

	main, err := os.ReadFile("testdata/module/main.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(main), "\npackage main\n")
	require.True(t, found)
	require.Equal(t, []string{"\t\tbakeryGroup(),\n"}, linesWith(code, "akery"))
}

func linesWith(text, part string) []string {
	return slices.DeleteFunc(slices.Collect(strings.Lines(text)), func(line string) bool { return !strings.Contains(line, part) })
}

// TestModule generates the code of the other module, and runs its own tests, which serve the bakery beside the
// restaurant behind a real kube-apiserver.
func TestModule(t *testing.T) {
	framework.Long(t, "test/kit is the short one")
	dir := writeModule(t)
	run(t, exec.CommandContext(t.Context(), filepath.Join(root, "hack", "update-codegen.sh"), dir))
	// They find what they need without knowing where this repository is.
	writeManifests(t, filepath.Join(dir, "artifacts", "deploy", "base"))
	test := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "./e2e")
	test.Dir = dir
	run(t, test)
}

// writeModule returns the directory of the module, with what "go mod init" and "go mod
// tidy" would write. It requires the versions that this module has, so that nothing is
// downloaded.
func writeModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/module")))
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	_, requirements, found := strings.Cut(string(goMod), "\nrequire (")
	require.True(t, found)
	checkout, err := filepath.Abs(root)
	require.NoError(t, err)
	write := fmt.Sprintf("module example.com/bakery\n\ngo 1.26.0\n\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n\nrequire (%[3]s", module, checkout, requirements)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(write), 0o600))
	goSum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), goSum, 0o600))
	return dir
}

// run runs a command with the compiler flags of all binaries, so that common packages
// are compiled once.
func run(t *testing.T, command *exec.Cmd) {
	t.Helper()
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// writeManifests fills a directory with those of the restaurant, and the APIServices of the bakery, which has no v1beta1.
func writeManifests(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "artifacts", "deploy", "base"))))
	path := filepath.Join(dir, "apiservices.yaml")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	documents := strings.Split(string(text), "\n---\n")
	for _, document := range documents {
		if !strings.Contains(document, "v1beta1") {
			documents = append(documents, strings.ReplaceAll(document, restaurant, group))
		}
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(documents, "\n---\n")), 0o600))
}
