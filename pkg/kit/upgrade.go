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
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

// sums is a file with the checksums of the files that Init has written. With them, Upgrade recognizes unchanged files.
const sums = "hack/kit.sum"

func sum(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// readSums returns the checksums by the names of the files.
func (w *writer) readSums() (map[string]string, error) {
	text, err := os.ReadFile(w.file(sums))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	recorded := map[string]string{}
	for line := range strings.Lines(string(text)) {
		checksum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		recorded[name] = checksum
	}
	return recorded, nil
}

// writeSums writes the checksums in the format of sha256sum.
func (w *writer) writeSums(recorded map[string]string) error {
	if len(recorded) == 0 {
		return nil
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		fmt.Fprintf(&b, "%s  %s\n", recorded[name], name)
	}
	current, err := os.ReadFile(w.file(sums))
	if err == nil && string(current) == b.String() {
		return nil
	}
	if err == nil {
		w.report(Changed, sums)
	} else {
		w.report(Created, sums)
	}
	return w.write(sums, []byte(b.String()))
}

// UpgradeTo upgrades the module with the kit of another version of the library, such as latest, and returns true. It
// does nothing if the version is "current", which is the one in go.mod, or if a checkout replaces the library. If it
// fails before code is generated, go.mod stays as it was.
func UpgradeTo(ctx context.Context, dir, version string, generate bool, out, notes io.Writer) (done bool, err error) {
	if err := codegen.CheckVendor(dir); err != nil {
		return false, err
	}
	w := newWriter(ctx, dir)
	own, err := w.goMod(ctx)
	if err != nil || version == "current" || slices.ContainsFunc(own.Replace, func(r replacement) bool { return r.Old.Path == library }) {
		return false, err
	}
	if err := w.getLibrary(ctx, version, out, notes); err != nil || !generate {
		return true, err
	}
	return true, w.upgrade(ctx, io.Discard, notes)
}

// getLibrary requires a version of the library, and runs its upgrade without generating code.
func (w *writer) getLibrary(ctx context.Context, version string, out, notes io.Writer) (err error) {
	if err := w.remember("go.mod", "go.sum"); err != nil {
		return err
	}
	defer func() { err = w.takeBack(err) }()
	if _, err := w.goCommand(ctx, "get", library+"@"+version); err != nil {
		return err
	}
	return w.upgrade(ctx, out, notes, "--generate=false")
}

// upgrade runs the upgrade of the kit that go.mod requires.
func (w *writer) upgrade(ctx context.Context, out, notes io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{"tool", "kit", "upgrade", "--version=current"}, args)...)
	command.Dir, command.Stdout, command.Stderr = w.dir, out, notes
	return command.Run()
}

// Upgrade upgrades the files that Init has written, and the tools in go.mod, to the library of the running program.
func Upgrade(ctx context.Context, dir string) (result *Result, err error) {
	m, err := openServer(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := m.remember("go.mod", "go.sum"); err != nil {
		return nil, err
	}
	defer func() { err = m.takeBack(err) }()
	if err := m.refreshFiles(); err != nil {
		return nil, err
	}
	if _, err := m.goCommand(ctx, "mod", "edit", "-tool="+library+"/cmd/kit", "-tool="+library+"/test/controlplane/local"); err != nil {
		return nil, err
	}
	if err := tidy(ctx, dir); err != nil {
		return nil, err
	}
	ahead, err := m.ahead(ctx)
	m.Todo = append(m.Todo, ahead...)
	return &m.Result, err
}

// goModFile is the output of "go mod edit -json" for a go.mod.
type goModFile struct {
	Module  struct{ Path string }
	Require []struct{ Path, Version string }
	Replace []replacement
}

type replacement struct{ Old struct{ Path string } }

// goMod reads the module's go.mod, or another one. Other commands refuse a go.mod that needs "go mod tidy".
func (w *writer) goMod(ctx context.Context, file ...string) (read goModFile, err error) {
	text, err := w.goCommand(ctx, append([]string{"mod", "edit", "-json"}, file...)...)
	if err != nil {
		return read, err
	}
	err = json.Unmarshal([]byte(text), &read)
	return read, err
}

// ahead names the libraries of Kubernetes in other versions than the library was built with.
func (w *writer) ahead(ctx context.Context) (todo []string, err error) {
	goMod, err := w.goCommand(ctx, "list", "-m", "-f", "{{.GoMod}}", library)
	if err != nil {
		return nil, err
	}
	of, err := w.goMod(ctx, strings.TrimSpace(goMod))
	if err != nil {
		return nil, err
	}
	selected, err := w.goCommand(ctx, "list", "-m", "all")
	if err != nil {
		return nil, err
	}
	for _, required := range of.Require {
		// Others, such as k8s.io/utils, are not released with Kubernetes.
		if strings.HasPrefix(required.Path, "k8s.io/") && strings.HasPrefix(required.Version, "v0.") && !strings.Contains(required.Version, "-") &&
			!strings.Contains(selected, required.Path+" "+required.Version+"\n") {
			todo = append(todo, fmt.Sprintf("go.mod asks for another version of %s than the library's, which is %s: go get %[1]s@%[2]s", required.Path, required.Version))
		}
	}
	return todo, nil
}

// refreshFiles rewrites the unchanged files that Init has written, and writes those that are new in this version. A
// changed file is left alone, and named if this version would write it differently.
func (m *module) refreshFiles() error {
	if err := m.readNamespace(); err != nil {
		return err
	}
	recorded, err := m.readSums()
	if err != nil {
		return err
	}
	err = m.initial(&m.data, func(name string, text []byte) error {
		defer func() { recorded[name] = sum(text) }()
		return m.refresh(name, text, recorded[name])
	})
	if err != nil {
		return err
	}
	for _, file := range m.Files {
		if file.Change == Left {
			m.Todo = append(m.Todo, fmt.Sprintf("Compare %s, which you have changed, with what this version writes: kit init in an empty directory", file.Path))
		}
	}
	return m.writeSums(recorded)
}

// refresh writes a new file, or one that still has the recorded checksum.
func (w *writer) refresh(name string, text []byte, recorded string) error {
	current, err := os.ReadFile(w.file(name))
	switch {
	case errors.Is(err, fs.ErrNotExist) && recorded != "": // Somebody has deleted it.
		return nil
	case errors.Is(err, fs.ErrNotExist):
		w.report(Created, name)
		return w.write(name, text)
	case err != nil:
		return err
	case sum(current) == sum(text), sum(text) == recorded:
		return nil
	case sum(current) == recorded:
		w.report(Changed, name)
		return w.write(name, text)
	}
	w.report(Left, name)
	return nil
}
