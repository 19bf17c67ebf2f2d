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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// KindOptions are the options of CreateKind.
type KindOptions struct {
	// Name is the kind's name, such as Bread.
	Name Name
	// Resource is the plural in paths, by default derived from Name. Short are further names for
	// kubectl.
	Resource string
	Short    []string
	// Versions are the versions that serve the kind.
	Versions []string
	// Namespaced, Status and Scale say whether objects are in namespaces, and have the subresources
	// /status and /scale. Scale implies Status.
	Namespaced, Status, Scale bool
	// NoClients is for a kind without a clientset, listers and informers.
	NoClients bool
	// NoProtobuf is for the first kind of a group that stores objects as JSON.
	NoProtobuf bool
}

// OwnPlural reports whether Resource differs from the default.
func (k *KindOptions) OwnPlural() bool { return k.Resource != k.Name.Plural() }

// Preferred returns the version that clients prefer.
func (k *KindOptions) Preferred() string {
	if len(k.Versions) == 0 {
		return ""
	}
	return k.Versions[0]
}

// Clients reports whether the kind has clients.
func (k *KindOptions) Clients() bool { return !k.NoClients }

func (k *KindOptions) complete() error {
	if err := checkKind(k.Name, k.Clients()); err != nil {
		return err
	}
	if len(k.Versions) == 0 {
		return errors.New("name at least one version by --versions, such as v1")
	}
	for _, version := range k.Versions {
		if err := checkVersion(version); err != nil {
			return err
		}
	}
	slices.SortFunc(k.Versions, compareVersions)
	k.Versions = slices.Compact(k.Versions)
	if k.Resource == "" {
		k.Resource = k.Name.Plural()
	}
	for _, name := range append([]string{k.Resource}, k.Short...) {
		if errs := utilvalidation.IsDNS1035Label(name); len(errs) > 0 {
			return fmt.Errorf("%q can't be the name of a resource: use small letters and digits, and dashes between them", name)
		}
	}
	k.Status = k.Status || k.Scale
	return nil
}

// CreateKind writes a kind of a group: its types, declaration, validation, tests
// and permissions.
func CreateKind(ctx context.Context, target Target, kind KindOptions) (result *Result, err error) {
	if err := kind.complete(); err != nil {
		return nil, err
	}
	m, err := open(ctx, target)
	if err != nil {
		return nil, err
	}
	defer func() { err = m.takeBack(err) }()
	if err := m.readNamespace(); err != nil {
		return nil, err
	}
	m.Kind = kind
	if kind.NoProtobuf && len(m.messages) > 0 {
		return nil, fmt.Errorf("the group %s has protobuf messages, as its first kind: leave out --protobuf=false", m.Group.Name)
	}
	m.Protobuf = m.Protobuf && !kind.NoProtobuf
	if err := m.checkTypesOf(kind); err != nil {
		return nil, err
	}
	if err := m.checkVersionsOf(kind); err != nil {
		return nil, err
	}
	if err := m.renderOnce("group", &m.data); err != nil {
		return nil, err
	}
	if err := m.renderTypes("kind"); err != nil {
		return nil, err
	}
	if err := m.render("roles", &m.data); err != nil {
		return nil, err
	}
	for _, version := range kind.Versions {
		if err := m.writeVersion(version, func() error { return m.renderTypes("types") }); err != nil {
			return nil, err
		}
	}
	if err := m.addToLists(); err != nil {
		return nil, err
	}
	if m.changed() {
		m.Todo = append(m.Todo,
			fmt.Sprintf("Say what %s is, in pkg/apis/%s/%s_types.go and in each version; then: make generate", kind.Name.AWords(), m.Group.Package, kind.Name.File()),
			fmt.Sprintf("Write rules that tags can't express, and their test, in pkg/apis/%s/validation/%s.go", m.Group.Package, kind.Name.File()),
			fmt.Sprintf("Choose the columns of kubectl get in pkg/registry/%s/%s.go", m.Group.Package, kind.Name.File()),
			fmt.Sprintf("Describe an object in artifacts/examples/%s%s.yaml, which the tests create", m.Prefix(), kind.Name.File()))
	}
	return &m.Result, nil
}

// checkVersionsOf returns an error for a kind that exists in other versions, or with other capitals. A new version has
// to have the kind's fields, not those of the templates.
func (m *module) checkVersionsOf(kind KindOptions) error {
	types := m.apis + "/" + m.Group.Package + "/" + kind.Name.File() + "_types.go"
	if declared, err := m.declares(path.Dir(types), string(kind.Name)); err != nil || !declared && m.exists(types) {
		return cmp.Or(err, fmt.Errorf("the kind can't be called %s: its types would be in %s, which has others", kind.Name, types))
	}
	has, err := m.versionsWith(kind.Name)
	if err != nil {
		return err
	}
	// CreateKind lists the kind last. If it is not listed, an interrupted command is repeated.
	listed, err := os.ReadFile(m.file("pkg/registry/" + m.Group.Package + "/kinds.go"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Contains(listed, []byte(kind.Name+"()")) {
		return nil
	}
	for _, version := range kind.Versions {
		if len(has) > 0 && !slices.Contains(has, version) {
			return fmt.Errorf("%s exists already, in %s: add a version by \"kit create version %s --kind %[1]s\"", kind.Name, strings.Join(has, ", "), version)
		}
	}
	return nil
}

// checkTypesOf returns an error if other types have the name of the kind, or of one of its further
// types.
func (m *module) checkTypesOf(kind KindOptions) error {
	internal := m.apis + "/" + m.Group.Package
	file, err := m.fileOfType(internal, string(kind.Name))
	if err != nil {
		return err
	}
	if file != "" {
		isKind, err := m.hasField(internal, string(kind.Name), "ObjectMeta")
		if err != nil || isKind {
			return err
		}
		return fmt.Errorf("the kind can't be called %s: %s has a type of that name without metadata, so it is part of another kind", kind.Name, file)
	}
	for _, part := range []string{"Spec", "Status", "List"} {
		name := string(kind.Name) + part
		if file, err := m.fileOfType(internal, name); err != nil || file != "" {
			return cmp.Or(err, fmt.Errorf("the kind can't be called %s: its type %s would have the name of one in %s", kind.Name, name, file))
		}
	}
	return nil
}

// versionsWith returns the versions of the group that have a kind, the preferred one first.
func (m *module) versionsWith(kind Name) (versions []string, err error) {
	for _, version := range m.served {
		dir, _ := m.versionPackage(version)
		declared, err := m.declares(dir, string(kind))
		if err != nil {
			return nil, err
		}
		if declared {
			versions = append(versions, version)
		}
	}
	return versions, nil
}

// declares reports whether a package declares a type.
func (m *module) declares(dir, name string) (bool, error) {
	file, err := m.fileOfType(dir, name)
	return file != "", err
}

// renderTypes writes a directory of templates with types of the kind. It skips those that another
// file of the package has.
func (m *module) renderTypes(dir string) error {
	return m.renderFiles(dir, &m.data, func(name string, text []byte) error {
		if strings.HasSuffix(name, "_types.go") {
			if declared, err := m.declares(path.Dir(name), string(m.Kind.Name)); err != nil || declared && !m.exists(name) {
				return err
			}
		}
		return m.create(name, text)
	})
}

// writeVersion writes the package of a version, with types, and adds it to the lists.
func (m *module) writeVersion(version string, types func() error) error {
	m.Version = version
	defer func() { m.Version = "" }()
	dir, alias := m.versionPackage(version)
	if err := m.renderOnce("version", &m.data); err != nil {
		return err
	}
	if err := types(); err != nil {
		return err
	}
	install := m.apis + "/" + m.Group.Package + "/install/install.go"
	less := func(suffix string) func(string) bool {
		return func(element string) bool {
			other, found := strings.CutPrefix(strings.TrimSuffix(element, suffix), m.Group.Package)
			return found && versionName.MatchString(other) && compareVersions(version, other) < 0
		}
	}
	if err := m.edit(install, editGo(
		func(s *source) error { return s.use(alias, m.packagePath(dir)) },
		func(s *source) error { return s.add(elements("Install"), alias+".AddToScheme", nil) },
		func(s *source) error { return s.add(elements("Install"), alias+".RegisterDefaults", nil) },
		func(s *source) error {
			return s.add(arguments("SetVersionPriority"), alias+".SchemeGroupVersion", less(".SchemeGroupVersion"))
		},
	)); err != nil {
		return err
	}
	return m.addVersion()
}

// addToLists adds the kind to the lists of all kinds, and the group to the server.
func (m *module) addToLists() error {
	kind := string(m.Kind.Name)
	if err := m.edit(m.apis+"/"+m.Group.Package+"/register.go", editGo(
		func(s *source) error { return s.add(arguments("AddKnownTypes"), "&"+kind+"{}", nil) },
		func(s *source) error { return s.add(arguments("AddKnownTypes"), "&"+kind+"List{}", nil) },
	)); err != nil {
		return err
	}
	if m.Imported == nil {
		if err := m.edit(m.apis+"/"+m.Group.Package+"/fuzzer/fuzzer.go", editGo(
			func(s *source) error { return s.add(elements("Funcs"), m.Kind.Name.Lower()+"Spec", nil) },
		)); err != nil {
			return err
		}
	}
	if err := m.edit("cmd/apiserver/main.go", editGo(
		func(s *source) error { return s.use("", m.packagePath("pkg/groups/"+m.Group.Package)) },
		func(s *source) error { return s.add(arguments("NewCommand"), m.Group.Package+".Group()", nil) },
	)); err != nil {
		return err
	}
	return m.listKind()
}

// listKind adds the kind to those of the group, and its roles to the manifests.
func (m *module) listKind() error {
	if err := m.edit("pkg/registry/"+m.Group.Package+"/kinds.go", editGo(
		func(s *source) error { return s.add(elements("Kinds"), string(m.Kind.Name)+"()", nil) },
	)); err != nil {
		return err
	}
	return m.wireRole()
}
