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
	"errors"
	"fmt"
	"go/ast"
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
	// Fields are the fields of the spec. By default, there is one as an example.
	Fields []Field
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
	if versions := slices.Compact(slices.Clone(k.Versions)); len(versions) < len(k.Versions) {
		return fmt.Errorf("a version is named twice: %s", strings.Join(k.Versions, ", "))
	}
	if k.Resource == "" {
		k.Resource = k.Name.Plural()
	}
	for _, name := range append([]string{k.Resource}, k.Short...) {
		if errs := utilvalidation.IsDNS1035Label(name); len(errs) > 0 {
			return fmt.Errorf("%q can't be the name of a resource: use small letters and digits, and dashes between them", name)
		}
	}
	k.Status = k.Status || k.Scale
	return k.checkFields()
}

// ReplicasNumber returns the number of the field spec.replicas in protobuf, the last one.
func (k *KindOptions) ReplicasNumber() int { return max(1, len(k.Fields)) + 1 }

// CreateKind writes a kind of a group: its types, declaration, validation, tests
// and permissions.
func CreateKind(ctx context.Context, target Target, kind KindOptions) (*Result, error) {
	if err := kind.complete(); err != nil {
		return nil, err
	}
	m, err := open(ctx, target)
	if err != nil {
		return nil, err
	}
	m.readNamespace()
	m.Kind = kind
	if kind.NoProtobuf && len(m.messages) > 0 {
		m.failf("the group %s has protobuf messages, as its first kind: leave out --protobuf=false", m.Group.Name)
	}
	m.Protobuf = m.Protobuf && !kind.NoProtobuf
	m.checkVersionsOf(kind)
	m.checkNamesOf(kind)
	m.renderOnce("group", &m.data)
	m.renderTypes("kind")
	m.render("roles", &m.data)
	for _, version := range kind.Versions {
		m.writeVersion(version, func() { m.renderTypes("types") })
	}
	m.addToLists()
	if m.changed() {
		m.Todo = append(m.Todo,
			fmt.Sprintf("Say what %s is, in pkg/apis/%s/%s_types.go and in each version; then: make generate", kind.Name.AWords(), m.Group.Package, kind.Name.File()),
			fmt.Sprintf("Write rules that tags can't express, and their test, in pkg/apis/%s/validation/%s.go", m.Group.Package, kind.Name.File()),
			fmt.Sprintf("Choose the columns of kubectl get in pkg/registry/%s/%s.go", m.Group.Package, kind.Name.File()),
			fmt.Sprintf("Describe an object in artifacts/examples/%s%s.yaml, which the tests create", m.Prefix(), kind.Name.File()))
	}
	return m.finish()
}

// checkVersionsOf refuses a kind that exists in other versions, or with other capitals. A new version has
// to have the kind's fields, not the templates'.
func (m *module) checkVersionsOf(kind KindOptions) {
	types := m.internal() + "/" + kind.Name.File() + "_types.go"
	if !m.declares(m.internal(), string(kind.Name)) && m.exists(types) {
		m.failf("the kind can't be called %s: its types would be in %s, which has others; choose another name, or import a CRD into a module of its own", kind.Name, types)
	}
	// CreateKind lists the kind last. If it is not listed, an interrupted command is repeated.
	if !bytes.Contains(m.read("pkg/registry/"+m.Group.Package+"/kinds.go"), []byte(kind.Name+"()")) {
		return
	}
	has := m.versionsWith(kind.Name)
	for _, version := range kind.Versions {
		if len(has) > 0 && !slices.Contains(has, version) {
			m.failf("%s exists already, in %s: add a version by \"kit create version %s --kind %[1]s\"", kind.Name, strings.Join(has, ", "), version)
		}
	}
}

// checkNamesOf refuses a kind with a name that another resource of the group has.
func (m *module) checkNamesOf(kind KindOptions) {
	own := append([]string{kind.Resource, kind.Name.File()}, kind.Short...)
	m.inPackage("pkg/registry/"+m.Group.Package, func(_ string, file *ast.File) bool {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Name.Name == string(kind.Name) {
				continue
			}
			other := literal(file, function.Name.Name)
			if other == nil {
				continue
			}
			names := []string{textOf(valueOf(other, "Resource")), textOf(valueOf(other, "Singular"))}
			if short, ok := valueOf(other, "ShortNames").(*ast.CompositeLit); ok {
				for _, name := range short.Elts {
					names = append(names, textOf(name))
				}
			}
			for _, name := range names {
				if name != "" && slices.Contains(own, name) {
					m.failf("%q is a name of %s already: choose another by --plural or --short, or another kind", name, function.Name.Name)
				}
			}
		}
		return false
	})
}

// versionsWith returns the versions of the group that have a kind, the preferred one first.
func (m *module) versionsWith(kind Name) (versions []string) {
	for _, version := range m.served {
		if dir, _ := m.versionPackage(version); m.declares(dir, string(kind)) {
			versions = append(versions, version)
		}
	}
	return versions
}

// renderTypes writes a directory of templates with types of the kind. It skips those that another
// file of the package has.
func (m *module) renderTypes(dir string) {
	m.renderFiles(dir, &m.data, func(name string, text []byte) {
		if !strings.HasSuffix(name, "_types.go") || m.exists(name) || !m.declares(path.Dir(name), string(m.Kind.Name)) {
			m.create(name, text)
		}
	})
}

// writeVersion writes the package of a version, with types, and adds it to the lists.
func (m *module) writeVersion(version string, types func()) {
	m.Version = version
	defer func() { m.Version = "" }()
	dir, alias := m.versionPackage(version)
	m.renderOnce("version", &m.data)
	types()
	isLess := func(element string) bool {
		other, found := strings.CutPrefix(strings.TrimSuffix(element, ".SchemeGroupVersion"), m.Group.Package)
		return found && versionName.MatchString(other) && compareVersions(version, other) < 0
	}
	m.edit(m.internal()+"/install/install.go", editGo(func(s *source) {
		s.use(alias, m.packagePath(dir))
		s.add(elements("Install"), alias+".AddToScheme", nil)
		s.add(elements("Install"), alias+".RegisterDefaults", nil)
		s.add(arguments("SetVersionPriority"), alias+".SchemeGroupVersion", isLess)
	}))
	m.addVersion()
}

// addToLists adds the kind to the lists of all kinds, and the group to the server.
func (m *module) addToLists() {
	kind := string(m.Kind.Name)
	m.edit(m.internal()+"/register.go", editGo(func(s *source) {
		s.add(arguments("AddKnownTypes"), "&"+kind+"{}", nil)
		s.add(arguments("AddKnownTypes"), "&"+kind+"List{}", nil)
	}))
	if m.Imported == nil {
		m.edit(m.internal()+"/fuzzer/fuzzer.go", editGo(func(s *source) { s.add(elements("Funcs"), m.Kind.Name.Lower()+"Spec", nil) }))
	}
	m.edit("cmd/apiserver/main.go", editGo(func(s *source) {
		s.use("", m.packagePath("pkg/groups/"+m.Group.Package))
		s.add(arguments("NewCommand"), m.Group.Package+".Group()", nil)
	}))
	m.listKind()
}

// listKind adds the kind to the kinds of the group, and its roles to the manifests.
func (m *module) listKind() {
	m.edit("pkg/registry/"+m.Group.Package+"/kinds.go", editGo(func(s *source) { s.add(elements("Kinds"), string(m.Kind.Name)+"()", nil) }))
	m.wireRole()
}
