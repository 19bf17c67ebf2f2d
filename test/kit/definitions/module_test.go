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

package definitions

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// module is one that serves imported definitions.
type module struct {
	// kit is the program that writes it.
	dir, kit string
}

// buildKit returns the path of the kit, which calls itself to generate code.
func buildKit(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kit")
	require.NoError(t, run(t, filepath.Join("..", "..", ".."), "go", "build", "-o", program, "./cmd/kit"))
	return program
}

// importAll writes the module with the kinds of the definitions.
func (m *module) importAll(t *testing.T, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	t.Helper()
	library, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	files := t.TempDir()
	initialized := map[string]bool{}
	all := []string{"import", "crd", "--clients=false", "--generate=false"}
	for _, definition := range definitions {
		group := definition.Spec.Group
		// Some first labels, such as "runtime", are no names for packages.
		label, _, _ := strings.Cut(group, ".")
		name := "--name=" + strings.ReplaceAll(label, "-", "") + "api"
		command := []string{"create", "group", group, name}
		if len(initialized) == 0 {
			command = []string{"init", "--group=" + group, "--module=example.com/imported", "--replace=" + library, name}
		}
		if !initialized[group] {
			if err := m.run(t, command...); err != nil {
				return err
			}
			initialized[group] = true
		}
		text, err := yaml.Marshal(definition)
		require.NoError(t, err)
		file := filepath.Join(files, definition.Name+".yaml")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		all = append(all, file)
	}
	return m.run(t, all...)
}

// build compiles the server.
func (m *module) build(t *testing.T) error {
	t.Helper()
	return run(t, m.dir, "go", "build", "-o", m.server(), "./cmd/apiserver")
}

// server is the program.
func (m *module) server() string { return filepath.Join(m.dir, "_output", "bin", "apiserver") }

// run runs the kit in the module.
func (m *module) run(t *testing.T, args ...string) error {
	t.Helper()
	return run(t, m.dir, m.kit, args...)
}

// run runs a program in a directory, with the compiler flags of all binaries.
func run(t *testing.T, dir, name string, args ...string) error {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, output)
	}
	return nil
}
