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
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

//go:embed all:templates
var templates embed.FS

// Change is what a command did with a file.
type Change string

const (
	// Created is a new file.
	Created Change = "created"
	// Changed is an existing file with additions.
	Changed Change = "changed"
	// Left is a file that differs from the one that would be written, and was left alone.
	Left Change = "left"
)

// File is a file with the change that a command made.
type File struct {
	Change Change
	// Path is relative to the module, with slashes.
	Path string
}

// Result has the changes that a command has made, and the work that is left.
type Result struct {
	// Files are in the order of their changes, without files that needed none.
	Files []File
	// Todo has the steps to do by hand.
	Todo []string
	originals
}

// Generate generates the code for the changes of a command, and compiles the module with its tests. If that fails, it
// undoes the changes. It writes progress to output.
func (r *Result) Generate(ctx context.Context, output io.Writer) error {
	if err := r.remember("go.mod", "go.sum"); err != nil {
		return err
	}
	return r.takeBack(generate(ctx, codegen.Config{Module: r.dir, Output: output, Whole: true}))
}

// Generate generates the code of a module.
func Generate(ctx context.Context, dir string, output io.Writer) error {
	return generate(ctx, codegen.Config{Module: dir, Output: output})
}

// generate tidies go.mod before and after: types and generated code may need other modules.
func generate(ctx context.Context, config codegen.Config) error {
	// An interrupted generation may have deleted packages.
	if err := tidy(ctx, config.Module, "-e"); err != nil {
		return err
	}
	if err := codegen.Generate(ctx, config); err != nil {
		return err
	}
	return tidy(ctx, config.Module)
}

// changed reports whether the command has written a file.
func (r *Result) changed() bool {
	return slices.ContainsFunc(r.Files, func(f File) bool { return f.Change != Left })
}

// originals has the files of a module before a command changed them.
type originals struct {
	dir string
	// before has the content of changed files, or nil for new ones.
	before map[string][]byte
}

func (o *originals) file(name string) string { return filepath.Join(o.dir, filepath.FromSlash(name)) }

// remember keeps the content of files, so that takeBack can restore them.
func (o *originals) remember(names ...string) error {
	for _, name := range names {
		if _, remembered := o.before[name]; remembered {
			continue
		}
		text, err := os.ReadFile(o.file(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.before[name] = text
	}
	return nil
}

// takeBack undoes all changes if the command has failed.
func (o *originals) takeBack(failure error) error {
	if failure == nil {
		return nil
	}
	failures := []error{failure}
	for name, text := range o.before {
		if text != nil {
			continue
		}
		if err := os.Remove(o.file(name)); !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
		// The command made the directories that are empty now.
		for dir := path.Dir(name); dir != "." && os.Remove(o.file(dir)) == nil; {
			dir = path.Dir(dir)
		}
	}
	// Even on a full disk, the removed files make room for these.
	for name, text := range o.before {
		if text != nil {
			failures = append(failures, replaceFile(o.file(name), text))
		}
	}
	return errors.Join(failures...)
}

// writer writes files of a module.
type writer struct {
	// lists are files that later commands change.
	lists []string
	// stopped returns an error once nothing may be written any more, such as that of a canceled context.
	stopped func() error
	Result
}

func newWriter(ctx context.Context, dir string) writer {
	return writer{stopped: ctx.Err, Result: Result{originals: originals{dir, map[string][]byte{}}}}
}

func (w *writer) exists(name string) bool {
	_, err := os.Stat(w.file(name))
	return err == nil
}

func (w *writer) report(change Change, name string) {
	for i, file := range w.Files {
		if file.Path == name {
			if change == Changed && file.Change == Left {
				w.Files[i].Change = Changed
			}
			return
		}
	}
	w.Files = append(w.Files, File{change, name})
}

// create writes a file unless it exists.
func (w *writer) create(name string, data []byte) error {
	current, err := os.ReadFile(w.file(name))
	switch {
	case err == nil && (bytes.Equal(withoutSubresources(current), withoutSubresources(data)) || slices.Contains(w.lists, name)):
		return nil
	case err == nil:
		w.report(Left, name)
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	w.report(Created, name)
	return w.write(name, data)
}

func (w *writer) write(name string, data []byte) error {
	if err := w.stopped(); err != nil {
		return err
	}
	if err := w.remember(name); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(w.file(name)), 0o755); err != nil { //nolint:gosec // G301: sources of a module are for everybody.
		return err
	}
	return replaceFile(w.file(name), data)
}

// replaceFile writes a file as a whole. After a failure or a crash, the file is unchanged.
func replaceFile(name string, data []byte) error {
	mode := os.FileMode(0o644)
	if strings.HasSuffix(name, ".sh") {
		mode = 0o755
	}
	if file, err := os.Stat(name); err == nil {
		mode = file.Mode()
	}
	// Go ignores files that begin with a dot. The next attempt takes the same name.
	part := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".part")
	err := os.WriteFile(part, data, mode)
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// edit changes an existing file.
func (w *writer) edit(name string, change func([]byte) ([]byte, error)) error {
	current, err := os.ReadFile(w.file(name))
	if err != nil {
		return err
	}
	edited, err := change(current)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if bytes.Equal(current, edited) {
		return nil
	}
	w.report(Changed, name)
	return w.write(name, edited)
}

// render writes all files of a directory of templates.
func (w *writer) render(dir string, data *data) error {
	return w.renderFiles(dir, data, func(name string, text []byte) error { return w.create(name, text) })
}

// renderOnce writes the files of a directory of templates that do not exist. They hold lists, which other commands
// change.
func (w *writer) renderOnce(dir string, data *data) error {
	return w.renderFiles(dir, data, func(name string, text []byte) error {
		if w.exists(name) {
			return nil
		}
		return w.create(name, text)
	})
}

func (w *writer) renderFiles(dir string, data *data, write func(name string, text []byte) error) error {
	root := path.Join("templates", dir)
	return fs.WalkDir(templates, root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := templates.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, root+"/"), ".tmpl")
		name = strings.NewReplacer("NAME", data.Group.Package, "PREFIX", data.Prefix(), "ROLES", data.Roles(), "PART", data.Part.File(), "KIND", data.Kind.Name.File(), "VERSION", data.Version).Replace(name)
		rendered, err := execute(name, string(text), data)
		if err != nil {
			return err
		}
		return write(name, rendered)
	})
}

func execute(name, text string, data *data) ([]byte, error) {
	parsed, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, data); err != nil {
		return nil, err
	}
	if !strings.HasSuffix(name, ".go") {
		return out.Bytes(), nil
	}
	formatted, err := format.Source(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return formatted, nil
}
