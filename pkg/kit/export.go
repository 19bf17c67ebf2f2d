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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// ExportCRD writes the CustomResourceDefinitions of a group's kinds to out, and their limits
// to notes. It runs a program in the module, which reads the group like the server. See
// pkg/kit/crd.
func ExportCRD(ctx context.Context, target Target, out, notes io.Writer) (err error) {
	m, err := open(ctx, target)
	if err != nil {
		return err
	}
	m.readNamespace()
	output := m.File("_output")
	if err := os.MkdirAll(output, 0o755); err != nil { //nolint:gosec // G301: builds are for everybody.
		return err
	}
	temporary, err := os.MkdirTemp(output, "export-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	program := newWriter(ctx, temporary)
	program.render("export", &m.data)
	if err := cmp.Or(m.err, program.err); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "run", filepath.Join(temporary, "main.go"))
	command.Dir, command.Stdout, command.Stderr = m.Dir, out, notes
	if err := command.Run(); err != nil {
		return fmt.Errorf("the definitions could not be made, see above: %w", err)
	}
	return nil
}
