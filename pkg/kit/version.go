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
	"fmt"
	"go/parser"
	"go/token"
	"slices"
)

// CreateVersion writes another version of a kind, with the types of the kind's preferred
// version.
func CreateVersion(ctx context.Context, target Target, version string, kind Name) (*Result, error) {
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	m, err := open(ctx, target)
	if err != nil {
		return nil, err
	}
	m.readNamespace()
	m.Kind.Name = kind
	others := slices.DeleteFunc(m.versionsWith(kind), func(other string) bool { return other == version })
	if len(others) == 0 {
		return nil, fmt.Errorf("no other version has the kind %s: create it by \"kit create kind %[1]s --versions %s\"", kind, version)
	}
	from := others[0]
	m.writeVersion(version, func() { m.copyTypes(from, version) })
	if m.changed() {
		m.Todo = append(m.Todo,
			fmt.Sprintf("Change the types in pkg/apis/%s/%s, which are those of %s; then: make generate", m.Group.Package, version, from),
			fmt.Sprintf("Write conversions that can't be generated in pkg/apis/%s/%s/conversion.go", m.Group.Package, version))
		if versions := slices.Concat(m.served, []string{version}); slices.MinFunc(versions, compareVersions) == version {
			m.Todo = append(m.Todo, fmt.Sprintf("While servers run that do not know %[1]s, set StorageVersion: %[2]q in pkg/registry/%[3]s/%[4]s.go: objects are stored in the preferred version, which is %[1]s now",
				version, from, m.Group.Package, m.Kind.Name.File()))
		}
	}
	return m.finish()
}

// copyTypes copies the types of a kind and of its subresources to a version that lacks
// them.
func (m *module) copyTypes(from, to string) {
	source, _ := m.versionPackage(from)
	target, _ := m.versionPackage(to)
	for _, subresource := range m.subresources() {
		if name := "/" + subresource + "_types.go"; m.exists(source+name) && !m.exists(target+name) {
			m.copyFile(source+name, target+name, to)
		}
	}
	name := "/" + m.Kind.Name.File() + "_types.go"
	switch {
	case m.declares(target, string(m.Kind.Name)):
	case m.exists(source + name):
		m.copyFile(source+name, target+name, to)
	default:
		m.failf("the types of %s are not in a file of their own: copy them from %s to %s%s yourself, then repeat the command", m.Kind.Name, source, target, name)
	}
}

// copyFile copies a Go file to another package.
func (m *module) copyFile(from, to, name string) {
	text := m.read(from)
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, from, text, parser.PackageClauseOnly)
	if !m.fail(err) {
		clause := files.Position(parsed.Name.Pos()).Offset
		m.create(to, slices.Concat(text[:clause], []byte(name), text[clause+len(parsed.Name.Name):]))
	}
}

// tidy runs "go mod tidy" in a module, with further arguments.
func tidy(ctx context.Context, dir string, args ...string) error {
	w := newWriter(ctx, dir)
	if _, err := w.goCommand(ctx, append([]string{"mod", "tidy"}, args...)...); err != nil {
		return fmt.Errorf("go.mod can't be tidied: %w", err)
	}
	return nil
}
