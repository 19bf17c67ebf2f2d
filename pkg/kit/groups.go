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
	"go/token"
	"os"
	"slices"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

// apiGroup is an API group of a module.
type apiGroup struct {
	// Name is the group's name, Package the name of its packages, and GoName the one in its clients.
	Name, Package, GoName string
}

// newGroup returns a group with this name for its packages. The default is the group's first label.
func newGroup(group, name string) (apiGroup, error) {
	if err := checkGroup(group); err != nil {
		return apiGroup{}, err
	}
	name = cmp.Or(name, strings.ReplaceAll(firstLabel(group), "-", ""))
	return apiGroup{group, name, title(name)}, checkName(name)
}

// OwnGoName reports whether clients need a tag to have the GoName. Without one, it is the group's first label.
func (g apiGroup) OwnGoName() bool { return g.GoName != title(firstLabel(g.Name)) }

// is reports whether two groups have the same name and packages.
func (g apiGroup) is(other apiGroup) bool { return g.Name == other.Name && g.Package == other.Package }

// Title returns the group's name for sentences.
func (g apiGroup) Title() string { return title(g.Package) }

// groupNames returns the names of groups for sentences.
func groupNames(groups []apiGroup) string {
	names := make([]string, len(groups))
	for i, group := range groups {
		names[i] = group.Name
	}
	return strings.Join(names, ", ")
}

func firstLabel(group string) string {
	label, _, _ := strings.Cut(group, ".")
	return label
}

// findAPIs finds the groups in pkg/apis.
func (w *writer) findAPIs() []codegen.Group {
	apis, err := codegen.Find(os.DirFS(w.Dir))
	w.fail(err)
	for _, api := range apis {
		if api.Dir == "pkg/apis" {
			return api.Groups
		}
	}
	return nil
}

// findGroups finds the groups of a module by their tags, also those without versions.
func (w *writer) findGroups() (groups []apiGroup) {
	for _, found := range w.findAPIs() {
		group := apiGroup{found.Domain, found.Name, cmp.Or(found.GoName, title(firstLabel(found.Domain)))}
		if !token.IsIdentifier(group.GoName) {
			group.GoName = title(group.Package)
		}
		groups = append(groups, group)
	}
	return groups
}

// findServer returns the group that the server is named after. Of several groups, it is the one in
// the label that the server's ClusterRole for parameters of policies selects.
func (w *writer) findServer(groups []apiGroup) apiGroup {
	if len(groups) == 1 {
		return groups[0]
	}
	const name = base + "rbac-policy-parameters.yaml"
	text := w.read(name)
	for _, group := range groups {
		if bytes.Contains(text, []byte(" "+group.Name+"/aggregate-to-policy-parameters:")) {
			return group
		}
	}
	w.failf("%s has no label GROUP/aggregate-to-policy-parameters with a group of this module: the server is named after that group", name)
	return apiGroup{}
}

// CreateGroup adds a group to a module. Like the one that Init writes, it has no kinds yet: the
// first one adds it to the server.
func CreateGroup(ctx context.Context, dir, group, name string) (*Result, error) {
	added, err := newGroup(group, name)
	if err != nil {
		return nil, err
	}
	m, err := openServer(ctx, dir)
	if err != nil {
		return nil, err
	}
	internal := m.data
	internal.Group = m.addGroup(added, name != "")
	m.lists = []string{"pkg/apis/" + internal.Group.Package + "/register.go"}
	m.render("internal", &internal)
	// Files that name all groups, such as alerts, change.
	m.refreshFiles()
	if m.changed() {
		m.Todo = append(m.Todo, fmt.Sprintf("Create a kind: go tool kit create kind NAME --group %s --versions v1", internal.Group.Package))
	}
	return m.finish()
}

// addGroup adds a group to the module, and returns it. An existing group keeps the name of
// its packages. Another given name is an error.
func (m *module) addGroup(added apiGroup, named bool) apiGroup {
	for _, other := range m.Groups {
		switch {
		case other.is(added), other.Name == added.Name && !named:
			return other
		case other.Name == added.Name:
			m.failf("the group %s exists already, in pkg/apis/%s: leave out --name", other.Name, other.Package)
		case other.Package == added.Package:
			m.failf("the packages of the group %s are called %s already: choose another name by --name", other.Name, other.Package)
		case strings.EqualFold(other.GoName, added.GoName):
			m.failf("the Go clients of the groups %s and %s would have the same name: choose another by --name", other.Name, added.Name)
		}
	}
	m.Groups = append(m.Groups, added)
	slices.SortFunc(m.Groups, func(a, b apiGroup) int { return cmp.Compare(a.Package, b.Package) })
	return added
}
