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

package codegen

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func (g *generation) importPath(dir string) string { return path.Join(g.name, dir) }

func (g *generation) file(dir string) string { return filepath.Join(g.Module, filepath.FromSlash(dir)) }

// replace changes all files in a directory.
func (g *generation) replace(dir string, replacer *strings.Replacer) error {
	return filepath.WalkDir(g.file(dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(replacer.Replace(string(text))), 0o600)
	})
}

// toGenerated runs a generator that writes a directory in "generated".
func (g *generation) toGenerated(ctx context.Context, generator string, api API, name string, args ...string) error {
	dir := path.Join(api.generated(), name)
	return g.run(ctx, generator, slices.Concat([]string{"--output-dir=" + g.file(dir), "--output-pkg=" + g.importPath(dir)}, args)...)
}

// run runs a generator.
func (g *generation) run(ctx context.Context, generator string, args ...string) error {
	return g.command(ctx, filepath.Join(g.tools, generator), slices.Concat([]string{"--go-header-file=" + g.Header}, args)...)
}

func (g *generation) command(ctx context.Context, name string, args ...string) error {
	command := g.newCommand(ctx, name, args...)
	command.Stdout = g.Output
	return command.Run()
}

// capture returns the output of a go command.
func (g *generation) capture(ctx context.Context, args ...string) ([]byte, error) {
	var output bytes.Buffer
	command := g.newCommand(ctx, "go", args...)
	command.Stdout = &output
	err := command.Run()
	return output.Bytes(), err
}

// newCommand returns a command in the module that finds the generators by name.
func (g *generation) newCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = g.Module
	path := []string{g.file(protoWork + "/bin"), g.tools, os.Getenv("PATH")}
	command.Env = append(os.Environ(), "PATH="+strings.Join(path, string(os.PathListSeparator)))
	command.Stderr = g.Output
	return command
}
