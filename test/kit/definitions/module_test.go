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
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/kit"
)

// module is one that serves imported definitions.
type module struct {
	dir string
}

func newModule(t *testing.T) *module {
	t.Helper()
	return &module{dir: t.TempDir()}
}

// importAll writes the module with the kinds of the definitions.
func (m *module) importAll(t *testing.T, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	t.Helper()
	files := t.TempDir()
	initialized := map[string]bool{}
	for _, definition := range definitions {
		group := definition.Spec.Group
		// Some first labels, such as "runtime", are no names for packages.
		label, _, _ := strings.Cut(group, ".")
		name := "--name=" + strings.ReplaceAll(label, "-", "") + "api"
		command := []string{"create", "group", group, name}
		if len(initialized) == 0 {
			command = []string{"init", "--group=" + group, "--module=example.com/imported", "--replace=../../..", name}
		}
		if !initialized[group] {
			if err := m.kit(t, command...); err != nil {
				return err
			}
			initialized[group] = true
		}
		text, err := yaml.Marshal(definition)
		require.NoError(t, err)
		file := filepath.Join(files, definition.Name+".yaml")
		require.NoError(t, os.WriteFile(file, text, 0o600))
		if err := m.kit(t, "import", "crd", file, "--clients=false", "--generate=false"); err != nil {
			return fmt.Errorf("%s: %w", definition.Name, err)
		}
	}
	return nil
}

// build compiles the server.
func (m *module) build(t *testing.T) error {
	t.Helper()
	return m.program(t, "go", "build", "-gcflags=example.com/...=-e", "-o", m.server(), "./cmd/apiserver")
}

// server is the program.
func (m *module) server() string { return filepath.Join(m.dir, "_output", "bin", "apiserver") }

// kit runs the kit in the module.
func (m *module) kit(t *testing.T, args ...string) error {
	t.Helper()
	var output bytes.Buffer
	cmd := kit.NewCommand()
	cmd.SetArgs(append(args, "--dir="+m.dir))
	cmd.SetOut(&output)
	cmd.SetErr(&output)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return fmt.Errorf("kit %s: %w: %s", strings.Join(args, " "), err, &output)
	}
	return nil
}

// program runs one with the compiler flags of all binaries.
func (m *module) program(t *testing.T, name string, args ...string) error {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = m.dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, output)
	}
	return nil
}

// export returns the definitions of a group's kinds by name.
func (m *module) export(t *testing.T, group string) (map[string]*apiextensionsv1.CustomResourceDefinition, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "exported.yaml")
	if err := m.kit(t, "export", "crd", "--group="+group, "--file="+file); err != nil {
		return nil, err
	}
	text, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	definitions, err := decode(text)
	exported := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, definition := range definitions {
		exported[definition.Name] = definition
	}
	return exported, err
}
