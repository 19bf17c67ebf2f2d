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
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// sums is a file with the checksums of the files that Init has written. With them, Upgrade recognizes unchanged files.
const sums = "hack/kit.sum"

func sum(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// readSums returns the checksums by the names of the files.
func (w *writer) readSums() map[string]string {
	recorded := map[string]string{}
	for line := range strings.Lines(string(w.read(sums))) {
		checksum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		recorded[name] = checksum
	}
	return recorded
}

// writeSums writes the checksums in the format of sha256sum.
func (w *writer) writeSums(recorded map[string]string) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		fmt.Fprintf(&b, "%s  %s\n", recorded[name], name)
	}
	switch current := string(w.read(sums)); current {
	case b.String():
	case "":
		w.write(Created, sums, []byte(b.String()))
	default:
		w.write(Changed, sums, []byte(b.String()))
	}
}

// UpgradeTo upgrades the module with the kit of another version of the library, such as latest, and returns true. It
// does nothing if the version is "current", which is the one in go.mod, or if a checkout replaces the library. If it
// fails before code is generated, go.mod stays as it was.
func UpgradeTo(ctx context.Context, dir, version string, generate bool, out, notes io.Writer) (done bool, err error) {
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
func (w *writer) getLibrary(ctx context.Context, version string, out, notes io.Writer) error {
	if err := w.Remember("go.mod", "go.sum"); err != nil {
		return err
	}
	_, err := w.goCommand(ctx, "get", library+"@"+version)
	if err == nil {
		err = w.upgrade(ctx, out, notes, "--generate=false")
	}
	return w.TakeBack(err)
}

// upgrade runs the upgrade of the kit that go.mod requires.
func (w *writer) upgrade(ctx context.Context, out, notes io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{"tool", "kit", "upgrade", "--version=current"}, args)...)
	command.Dir, command.Stdout, command.Stderr = w.Dir, out, notes
	return command.Run()
}

// Upgrade upgrades the files that Init has written, and the tools in go.mod, to the library of the running program.
func Upgrade(ctx context.Context, dir string) (*Result, error) {
	m, err := openServer(ctx, dir)
	if err != nil {
		return nil, err
	}
	m.fail(m.Remember("go.mod", "go.sum"))
	m.refreshFiles()
	if m.err == nil {
		if _, err := m.goCommand(ctx, "mod", "edit", "-tool="+library+"/cmd/kit", "-tool="+library+"/test/controlplane/local"); !m.fail(err) {
			m.fail(tidy(ctx, dir))
		}
	}
	return m.finish()
}

// goModFile is the output of "go mod edit -json" for a go.mod.
type goModFile struct {
	Module  struct{ Path string }
	Replace []replacement
}

type replacement struct{ Old struct{ Path string } }

// goMod reads the module's go.mod. Other commands refuse a go.mod that needs "go mod tidy".
func (w *writer) goMod(ctx context.Context) (read goModFile, err error) {
	text, err := w.goCommand(ctx, "mod", "edit", "-json")
	if err != nil {
		return read, err
	}
	err = json.Unmarshal([]byte(text), &read)
	return read, err
}

// refreshFiles rewrites the unchanged files that Init has written, and writes those that are new in this version. A
// changed file is left alone, and named if this version would write it differently.
func (m *module) refreshFiles() {
	m.readNamespace()
	recorded := m.readSums()
	m.initial(&m.data, func(name string, text []byte) {
		m.refresh(name, text, recorded[name])
		recorded[name] = sum(text)
	})
	for _, file := range m.Files {
		if file.Change == Left {
			m.Todo = append(m.Todo, fmt.Sprintf("Compare %s, which you have changed, with what this version writes: kit init in an empty directory", file.Path))
		}
	}
	m.writeSums(recorded)
}

// refresh writes a new file, or one that still has the recorded checksum.
func (w *writer) refresh(name string, text []byte, recorded string) {
	exists, current := w.exists(name), sum(w.read(name))
	switch {
	case !exists && recorded == "":
		w.write(Created, name, text)
	case !exists: // Somebody has deleted it.
	case current == sum(text), sum(text) == recorded:
	case current == recorded:
		w.write(Changed, name, text)
	default:
		w.report(Left, name)
	}
}
