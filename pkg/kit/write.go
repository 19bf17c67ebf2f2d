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

func (f File) isChange() bool { return f.Change != Left }

// Result has the changes that a command has made, and the work that is left.
type Result struct {
	// Files are in the order of their changes, without files that needed none.
	Files []File
	// Todo has the steps to do by hand.
	Todo []string
	codegen.Originals
}

// Generate generates the code for the changes of a command, and compiles the module with its tests. If that fails, it
// undoes the changes. It writes progress to output.
func (r *Result) Generate(ctx context.Context, output io.Writer) error {
	if err := r.Remember("go.mod", "go.sum"); err != nil {
		return err
	}
	return r.TakeBack(generate(ctx, codegen.Config{Module: r.Dir, Output: output, Whole: true}))
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
	return slices.ContainsFunc(r.Files, File.isChange)
}

// writer writes files of a module. After its first error, it does nothing more, as a bufio.Writer, so that commands
// check the error once, in finish.
type writer struct {
	// lists are files that later commands change.
	lists []string
	// stopped returns an error once nothing may be written any more, such as the one of a canceled context.
	stopped func() error
	// err is the first error.
	err error
	Result
}

func newWriter(ctx context.Context, dir string) writer {
	return writer{stopped: ctx.Err, Result: Result{Originals: codegen.Originals{Dir: dir, Before: map[string][]byte{}}}}
}

// fail keeps the first error, and reports whether there is one.
func (w *writer) fail(err error) bool {
	if w.err == nil {
		w.err = err
	}
	return w.err != nil
}

// failf is fail with a formatted error.
func (w *writer) failf(format string, args ...any) { w.fail(fmt.Errorf(format, args...)) }

// finish returns the result of a command. After an error, it undoes all changes.
func (w *writer) finish() (*Result, error) {
	if w.err != nil {
		return nil, w.TakeBack(w.err)
	}
	return &w.Result, nil
}

func (w *writer) exists(name string) bool {
	_, err := os.Stat(w.File(name))
	return err == nil
}

// read returns the content of a file, or nil if there is none.
func (w *writer) read(name string) []byte {
	text, err := os.ReadFile(w.File(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.fail(err)
	}
	return text
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
func (w *writer) create(name string, data []byte) {
	if !w.exists(name) {
		w.write(Created, name, data)
	} else if current := w.read(name); !bytes.Equal(withoutSubresources(current), withoutSubresources(data)) && !slices.Contains(w.lists, name) {
		w.report(Left, name)
	}
}

// createOnce writes a file unless it exists. The file has lists, which other commands change.
func (w *writer) createOnce(name string, data []byte) {
	if !w.exists(name) {
		w.write(Created, name, data)
	}
}

func (w *writer) write(change Change, name string, data []byte) {
	if w.err != nil || w.fail(w.stopped()) || w.fail(w.Remember(name)) {
		return
	}
	w.report(change, name)
	w.fail(codegen.ReplaceFile(w.File(name), data))
}

// edit changes an existing file.
func (w *writer) edit(name string, change func([]byte) ([]byte, error)) {
	if w.err != nil {
		return
	}
	current, err := os.ReadFile(w.File(name))
	if w.fail(err) {
		return
	}
	edited, err := change(current)
	if err != nil {
		w.failf("%s: %w", name, err)
	} else if !bytes.Equal(current, edited) {
		w.write(Changed, name, edited)
	}
}

// render writes all files of a directory of templates.
func (w *writer) render(dir string, data *data) { w.renderFiles(dir, data, w.create) }

// renderOnce writes the files of a directory of templates that do not exist.
func (w *writer) renderOnce(dir string, data *data) { w.renderFiles(dir, data, w.createOnce) }

// renderFiles executes all templates of a directory.
func (w *writer) renderFiles(dir string, data *data, write func(name string, text []byte)) {
	root := path.Join("templates", dir)
	w.fail(fs.WalkDir(templates, root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || w.err != nil {
			return err
		}
		text, err := templates.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(file, root+"/"), ".tmpl")
		name = strings.NewReplacer("NAME", data.Group.Package, "PREFIX", data.Prefix(), "ROLES", data.Roles(), "PART", data.Part.File(), "KIND", data.Kind.Name.File(), "VERSION", data.Version).Replace(name)
		rendered, err := execute(name, string(text), data)
		if err == nil {
			write(name, rendered)
		}
		return err
	}))
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
