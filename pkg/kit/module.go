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
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/artifacts"
	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

const (
	// library is the path of the module that this package is part of.
	library = "restaurant.programming-kubernetes.info/apiserver"
	// lintVersion is the version of golangci-lint that new modules use.
	lintVersion = "v2.15.0"
	// base is the directory of the manifests that all installations share.
	base = "artifacts/deploy/base/"
)

// data has the values for templates.
type data struct {
	// Header begins Go files, HashHeader other files.
	Header, HashHeader string
	// Owner is the copyright holder.
	Owner string
	// Library and Module are the paths of the library and of the author's module.
	Library, Module string
	LintVersion     string
	// Group is the group that is written.
	Group apiGroup
	// Groups are all groups of the module. Server is the first one it had, and gives the server its name.
	Groups []apiGroup
	Server apiGroup
	// Namespace is the server's namespace.
	Namespace string
	// Protobuf is true if objects are stored as protobuf messages.
	Protobuf bool

	// Kind is the kind that is written.
	Kind KindOptions
	// Part is the part that CreatePart writes. Verb is its name in paths, with a capital. The others are features of its
	// kind.
	Part, Verb                                Name
	Conditions, ObservedGeneration, Described bool
	// Imported has the values for an imported kind.
	Imported *imported
	// Version is the version that is written.
	Version string
}

// ModuleRegexp matches the path of the module.
func (d *data) ModuleRegexp() string { return regexp.QuoteMeta(d.Module) }

// Prefix returns the beginning of shared names in other groups than the server's. With it, two groups may
// have kinds of the same name.
func (d *data) Prefix() string {
	if d.Group == d.Server {
		return ""
	}
	return d.Group.Package + "-"
}

// Roles returns the name of the manifest with the roles for the part, or for the kind. No other manifest has it.
func (d *data) Roles() string {
	name := "rbac-" + d.Prefix() + cmp.Or(d.Part, d.Kind.Name).File()
	if _, err := fs.Stat(artifacts.Deploy, "deploy/base/"+name+".yaml"); err == nil {
		return name + "-roles"
	}
	return name
}

// GoPrefix returns the prefix for names of functions.
func (d *data) GoPrefix() string {
	if d.Group == d.Server {
		return ""
	}
	return d.Group.Title()
}

// ModelPackage returns the group's name in OpenAPI documents: com.example.bakery.
func (d *data) ModelPackage() string { return codegen.ReverseDomain(d.Group.Name) }

// GoVersion returns the preferred version in the names of generated clients.
func (d *data) GoVersion() string { return title(d.Kind.Preferred()) }

// VersionPriority returns the priority of the version's APIService.
func (d *data) VersionPriority() int { return versionPriority(d.Version) }

// Target is the group of a module that a command changes.
type Target struct {
	// Dir is the directory of the module.
	Dir string
	// Group is the name of the group, or of its packages. It is optional in a module with one group.
	Group string
}

// module is an author's module.
type module struct {
	writer
	data
	// served are the versions of the group, the preferred one first. Messages are those whose types have
	// protobuf messages.
	served, messages []string
	apis             string
}

// open opens the module for a group.
func open(ctx context.Context, target Target) (*module, error) {
	m, err := openModule(ctx, target.Dir)
	if err == nil {
		m.choose(target.Group)
		err = m.err
	}
	return m, err
}

// openServer opens the module for the group that the server is named after.
func openServer(ctx context.Context, dir string) (*module, error) {
	m, err := openModule(ctx, dir)
	if err == nil {
		m.choose(m.Server.Name)
		err = m.err
	}
	return m, err
}

// openModule reads the module in a directory.
func openModule(ctx context.Context, dir string) (*module, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return nil, fmt.Errorf("there is no module in %s: run \"kit init\" there first, or name the directory of a go.mod by --dir", dir)
	}
	m := &module{writer: newWriter(ctx, dir), apis: "pkg/apis"}
	m.Library, m.LintVersion = library, lintVersion
	goMod, err := m.goMod(ctx)
	if err != nil {
		return nil, err
	}
	m.Module = goMod.Module.Path
	if err := m.checkWorkspace(ctx, m.Module); err != nil {
		return nil, err
	}
	m.setHeader(string(m.read("hack/boilerplate.go.txt")))
	if m.Groups = m.findGroups(); len(m.Groups) == 0 {
		m.failf("%s has no API group: run \"kit init\" there, or write pkg/apis/<group>/doc.go with the comment // +groupName=<name>", dir)
	}
	m.Server = m.findServer(m.Groups)
	return m, m.err
}

// choose selects one of the module's groups.
func (m *module) choose(group string) {
	found := slices.IndexFunc(m.Groups, func(g apiGroup) bool { return g.Name == group || g.Package == group })
	switch {
	case found >= 0:
		m.Group = m.Groups[found]
	case group != "":
		if err := checkGroup(group); err != nil && strings.Contains(group, ".") {
			m.fail(err)
		}
		m.failf("the module has no group %s, but %s: create it by \"kit create group\"", group, groupNames(m.Groups))
	case len(m.Groups) > 1:
		m.failf("the module has the groups %s: say by --group which one is meant", groupNames(m.Groups))
	default:
		m.Group = m.Groups[0]
	}
	m.served, m.messages = nil, nil
	for _, group := range m.findAPIs() {
		if group.Name == m.Group.Package {
			for _, version := range group.Versions {
				m.served = append(m.served, version.Name)
				if version.Protobuf {
					m.messages = append(m.messages, version.Name)
				}
			}
		}
	}
	// All versions of a group have messages, or none.
	m.Protobuf = len(m.messages) == len(m.served)
}

func (d *data) setHeader(text string) {
	text = strings.TrimSpace(text)
	if text == "" {
		d.Header, d.HashHeader = "", ""
		return
	}
	d.Header = text + "\n"
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "//"))
		if line == "/*" || line == "*/" {
			continue
		}
		lines = append(lines, strings.TrimSpace("# "+line))
	}
	d.HashHeader = strings.Join(lines, "\n") + "\n"
}

// internal returns the directory of the internal types.
func (m *module) internal() string { return m.apis + "/" + m.Group.Package }

func (m *module) packagePath(dir string) string { return m.Module + "/" + dir }

// versionPackage returns the directory of a version, and its alias in Go files.
func (m *module) versionPackage(version string) (dir, alias string) {
	return m.apis + "/" + m.Group.Package + "/" + version, m.Group.Package + version
}

// goCommand returns the output of a go command.
func (w *writer) goCommand(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = w.Dir
	var output, complaint bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaint
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return output.String(), nil
}

// checkWorkspace returns an error if go commands use a workspace without the module.
func (w *writer) checkWorkspace(ctx context.Context, module string) error {
	file, err := w.goCommand(ctx, "env", "GOWORK")
	if file = strings.TrimSpace(file); err != nil || file == "" || file == "off" {
		return err
	}
	modules, err := w.goCommand(ctx, "list", "-m")
	if err != nil || slices.Contains(strings.Fields(modules), module) {
		return err
	}
	return fmt.Errorf("the workspace %s does not have the module %s: run \"go work use %s\", or set GOWORK=off", file, module, w.Dir)
}
