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
	"go/ast"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// ImportOptions are the options of ImportCRD.
type ImportOptions struct {
	// Files have CustomResourceDefinitions, in YAML or JSON.
	Files []string
	// Versions are the versions to import, by default all served ones.
	Versions []string
	// NoClients is for kinds without a clientset, listers and informers.
	NoClients bool
	// Report, unless nil, is called for each feature of the definition that the kind loses, before the first file
	// is written.
	Report func(finding string)
}

// imported has the values for the templates of an imported kind, besides its options.
type imported struct {
	// Root is the kind's struct, and Structs are its fields' structs.
	Root    *goStruct
	Structs []*goStruct
	// Spec has the fields besides the metadata and the status.
	Spec              []*goField
	UsesFmt, OnlySpec bool
	Categories        []string
	Selectors         []selector
	// Definition is the CustomResourceDefinition in YAML.
	Definition string
}

// Uses reports whether the types of fields need a package.
func (i imported) Uses(name string) bool {
	return slices.ContainsFunc(append(i.Structs, i.Root), func(s *goStruct) bool {
		return slices.ContainsFunc(s.Fields, func(f *goField) bool { return strings.Contains(f.Type.String(), name+".") })
	})
}

// ImportCRD writes the kinds of CustomResourceDefinitions, each in its group. If one of them can't be written, none
// is.
func ImportCRD(ctx context.Context, dir string, options ImportOptions) (*Result, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range options.Files {
		read, err := readCRDs(file)
		if err != nil {
			return nil, err
		}
		crds = append(crds, read...)
	}
	for _, version := range options.Versions {
		if !slices.ContainsFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
			return importedVersions(crd, options)[version] != nil
		}) {
			return nil, fmt.Errorf("no definition serves the version %s with a schema: name others by --versions", version)
		}
	}
	if problems := unwritableNames(crds, options); len(problems) > 0 {
		return nil, fmt.Errorf("nothing has been written, since these can't be written in Go:\n%s", strings.Join(problems, "\n"))
	}
	m, err := openModule(ctx, dir)
	if err != nil {
		return nil, err
	}
	m.readNamespace()
	names := map[string]*identifiers{}
	var kinds []*importedKind
	for _, crd := range crds {
		kind, err := m.readDefinition(crd, crds, names, options)
		if err = cmp.Or(err, m.err); err != nil {
			return nil, fmt.Errorf("%s: %w", crd.Name, err)
		}
		kinds = append(kinds, kind)
	}
	if options.Report != nil {
		for _, kind := range kinds {
			for _, finding := range kind.findings {
				options.Report(kind.crd.Name + ": " + finding)
			}
		}
	}
	for _, kind := range kinds {
		if m.writeImported(kind); m.err != nil {
			m.err = fmt.Errorf("%s: %w", kind.crd.Name, m.err)
			break
		}
	}
	return m.finish()
}

// unwritableNames returns the problems in definitions that prevent the import of all of them.
func unwritableNames(crds []*apiextensionsv1.CustomResourceDefinition, options ImportOptions) (problems []string) {
	for i, crd := range crds {
		if slices.ContainsFunc(crds[:i], func(other *apiextensionsv1.CustomResourceDefinition) bool {
			return other.Spec.Group == crd.Spec.Group && other.Spec.Names.Kind == crd.Spec.Names.Kind
		}) {
			problems = append(problems, fmt.Sprintf("%s: the kind %s: it is defined twice, name one of the definitions", crd.Name, crd.Spec.Names.Kind))
		}
		if crd.Spec.PreserveUnknownFields {
			problems = append(problems, crd.Name+": preserveUnknownFields: a kind would drop what its schema lacks: set it to false, with a structural schema")
		}
		versions := importedVersions(crd, options)
		for _, name := range slices.Sorted(maps.Keys(versions)) {
			for _, problem := range unwritable(crd.Spec.Names.Kind, versions[name].Schema.OpenAPIV3Schema) {
				problems = append(problems, fmt.Sprintf("%s: %s: %s", crd.Name, name, problem))
			}
		}
	}
	return problems
}

func readCRDs(file string) (crds []*apiextensionsv1.CustomResourceDefinition, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		// "kubectl get" writes several as a list.
		var read struct {
			apiextensionsv1.CustomResourceDefinition
			Items []apiextensionsv1.CustomResourceDefinition `json:"items"`
		}
		if err := decoder.Decode(&read); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, crd := range append(read.Items, read.CustomResourceDefinition) {
			if crd.Kind != "CustomResourceDefinition" {
				continue
			}
			if crd.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
				return nil, fmt.Errorf("%s: %s has the version %s: write it in %s", file, crd.Name, crd.APIVersion, apiextensionsv1.SchemeGroupVersion)
			}
			// Of a definition in a cluster where crd-apiserver serves its versions, see ServedAnnotation of pkg/cluster.
			hidden := strings.Split(crd.Annotations["crd-apiserver/served"], ",")
			for i := range crd.Spec.Versions {
				version := &crd.Spec.Versions[i]
				version.Served = version.Served || slices.Contains(hidden, version.Name)
			}
			crds = append(crds, &crd)
		}
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("%s has no CustomResourceDefinition of %s", file, apiextensionsv1.SchemeGroupVersion)
	}
	return crds, nil
}

// importedVersions returns the versions of a definition that the options select, by name.
func importedVersions(crd *apiextensionsv1.CustomResourceDefinition, options ImportOptions) map[string]*apiextensionsv1.CustomResourceDefinitionVersion {
	versions := map[string]*apiextensionsv1.CustomResourceDefinitionVersion{}
	for i, version := range crd.Spec.Versions {
		if version.Served && version.Schema != nil && version.Schema.OpenAPIV3Schema != nil && (len(options.Versions) == 0 || slices.Contains(options.Versions, version.Name)) {
			versions[version.Name] = &crd.Spec.Versions[i]
		}
	}
	return versions
}

// importedKind is a kind to write.
type importedKind struct {
	crd     *apiextensionsv1.CustomResourceDefinition
	options KindOptions
	// versions has the types of each version.
	versions map[string]*importedVersion
	made     imported
	// findings are the features of the definition that the kind loses.
	findings []string
}

// importedVersion has the types of a version.
type importedVersion struct {
	definition *apiextensionsv1.CustomResourceDefinitionVersion
	reader     *schemaReader
	root       *goStruct
}

// readDefinition reads a definition, and names its types. It returns an error if a part of it can't be written.
func (m *module) readDefinition(crd *apiextensionsv1.CustomResourceDefinition, all []*apiextensionsv1.CustomResourceDefinition, names map[string]*identifiers, options ImportOptions) (*importedKind, error) {
	kind := &importedKind{crd: crd, versions: map[string]*importedVersion{}, options: KindOptions{
		Name: Name(crd.Spec.Names.Kind), Resource: crd.Spec.Names.Plural, Short: crd.Spec.Names.ShortNames, NoClients: options.NoClients,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}}
	definitions := importedVersions(crd, options)
	kind.options.Versions = slices.Collect(maps.Keys(definitions))
	if len(definitions) == 0 {
		return nil, fmt.Errorf("it serves no version with a schema%s: name others by --versions, or serve one", among(options.Versions))
	}
	if err := kind.options.complete(); err != nil {
		return nil, err
	}
	m.choose(crd.Spec.Group)
	m.checkVersionsOf(kind.options)
	for _, version := range kind.options.Versions {
		m.refuseMessages(version)
	}
	if names[crd.Spec.Group] == nil {
		names[crd.Spec.Group] = m.identifiers(all)
	}
	for _, name := range kind.options.Versions {
		version := &importedVersion{definition: definitions[name], reader: &schemaReader{kind: string(kind.options.Name), names: names[crd.Spec.Group]}}
		version.root = version.reader.readSchema(version.definition.Schema.OpenAPIV3Schema, version.hasStatus())
		kind.versions[name] = version
	}
	kind.options.Status = kind.versions[kind.options.Preferred()].hasStatus()
	err := kind.find()
	return kind, err
}

// among returns the part of a sentence that names the selected versions.
func among(versions []string) string {
	if len(versions) == 0 {
		return ""
	}
	return " among " + strings.Join(versions, ", ")
}

// refuseMessages refuses a version with protobuf messages, which can't hold all that a definition
// accepts.
func (m *module) refuseMessages(version string) {
	if slices.Contains(m.messages, version) {
		dir, _ := m.versionPackage(version)
		m.failf("the types of version %s have protobuf messages, which have no null in lists, and no empty lists: "+
			"remove +k8s:protobuf-gen=package from %s/doc.go, or import into a group that \"kit create group\" makes for it", version, dir)
	}
}

// identifiers returns the names in the packages of a group that other kinds than the imported ones have taken.
func (m *module) identifiers(crds []*apiextensionsv1.CustomResourceDefinition) *identifiers {
	var kinds []Name
	own := map[string]bool{}
	for _, crd := range crds {
		if kind := Name(crd.Spec.Names.Kind); crd.Spec.Group == m.Group.Name {
			kinds = append(kinds, kind)
			own[kind.File()+"_types.go"] = true
		}
	}
	var declared, nested []string
	for _, dir := range append([]string{""}, m.served...) {
		m.inPackage(path.Join(m.internal(), dir), func(name string, file *ast.File) bool {
			if !own[name] && !strings.HasPrefix(name, "zz_generated.") && name != "generated.pb.go" {
				declared = append(declared, declaredNames(file, func(*ast.TypeSpec) bool { return true })...)
				nested = append(nested, declaredNames(file, func(t *ast.TypeSpec) bool { return !isKind(t) })...)
			}
			return false
		})
	}
	for _, kind := range kinds {
		if slices.Contains(nested, string(kind)) {
			m.failf("the packages of the group have something else that is called %s: rename that, or import the CRD into a module of its own", kind)
		}
	}
	return newIdentifiers(kinds, declared...)
}

// declaredNames returns the exported names that a file declares, without some types.
func declaredNames(file *ast.File, with func(*ast.TypeSpec) bool) (names []string) {
	for _, declaration := range file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			if declaration.Recv == nil {
				names = append(names, declaration.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if with(spec) {
						names = append(names, spec.Name.Name)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !ast.IsExported(name) })
}

// isKind reports whether a type embeds its kind and version.
func isKind(t *ast.TypeSpec) bool {
	fields, ok := t.Type.(*ast.StructType)
	return ok && slices.ContainsFunc(fields.Fields.List, func(field *ast.Field) bool {
		embedded, ok := field.Type.(*ast.SelectorExpr)
		return ok && len(field.Names) == 0 && embedded.Sel.Name == "TypeMeta"
	})
}

// find collects the declarations of the preferred version, and the features of the definition that the kind loses.
func (k *importedKind) find() (err error) {
	names, preferred := k.crd.Spec.Names, k.versions[k.options.Preferred()]
	for _, name := range []struct{ what, defined, usual string }{
		{"the singular name", names.Singular, k.options.Name.File()}, {"the name of lists", names.ListKind, string(k.options.Name) + "List"},
	} {
		if name.defined != "" && name.defined != name.usual {
			k.findings = append(k.findings, fmt.Sprintf("%s %s, which becomes %s", name.what, name.defined, name.usual))
		}
	}
	made := imported{Root: preferred.root, Structs: preferred.reader.structs}
	for _, category := range names.Categories {
		if category != "all" {
			made.Categories = append(made.Categories, category)
			continue
		}
		k.findings = append(k.findings, "the category all, which is left out: \"kubectl get all\" would fail for users without permission to list "+names.Plural)
	}
	if conversion := k.crd.Spec.Conversion; conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter {
		k.findings = append(k.findings, "the conversion webhook: write its conversions in Go")
	}
	fields := k.selectableFields()
	var notes []string
	made.Selectors, notes = selectable(made.Root, fields)
	k.options.Scale = slices.ContainsFunc(slices.Collect(maps.Values(k.versions)), (*importedVersion).hasScale)
	made.UsesFmt = slices.ContainsFunc(made.Selectors, func(s selector) bool { return strings.HasPrefix(s.Value, "fmt.") })
	for _, field := range made.Root.Fields {
		if field.JSON != "status" || !k.options.Status {
			made.Spec = append(made.Spec, field)
		}
	}
	made.OnlySpec = len(made.Spec) == 1 && made.Spec[0].Name == "Spec"
	made.Definition, err = k.definition()
	k.made = made
	k.findings = append(k.findings, notes...)
	for _, version := range k.crd.Spec.Versions {
		if !version.Served {
			k.findings = append(k.findings, "the version "+version.Name+", which is not served")
		}
	}
	for _, name := range k.options.Versions {
		version := k.versions[name]
		if version.definition.Deprecated {
			k.findings = append(k.findings, name+": the deprecation: write the methods that https://"+library+"/blob/main/docs/adding-a-kind.md#adding-a-version shows")
		}
		for _, finding := range k.differences(version, fields) {
			k.findings = append(k.findings, name+": "+finding)
		}
		// A finding of the preferred version is not repeated for others.
		own := slices.DeleteFunc(slices.Clone(version.reader.findings), func(finding string) bool {
			return version != preferred && slices.Contains(preferred.reader.findings, finding)
		})
		for _, finding := range together(own) {
			k.findings = append(k.findings, name+": "+finding)
		}
	}
	return err
}

// together puts equal findings about many fields into one.
func together(findings []string) (lines []string) {
	const shown = 3
	paths := map[string][]string{}
	var texts []string
	for _, finding := range findings {
		path, text, _ := strings.Cut(finding, ": ")
		if paths[text] == nil {
			texts = append(texts, text)
		}
		paths[text] = append(paths[text], path)
	}
	for _, text := range texts {
		switch fields := paths[text]; {
		case len(fields) == 1:
			lines = append(lines, fields[0]+": "+text)
		case len(fields) <= shown:
			lines = append(lines, fmt.Sprintf("%s: %s", strings.Join(fields, ", "), text))
		default:
			lines = append(lines, fmt.Sprintf("%s and %d more: %s", strings.Join(fields[:shown], ", "), len(fields)-shown, text))
		}
	}
	return lines
}

// selectableFields returns the fields that clients can select in one of the versions.
func (k *importedKind) selectableFields() (all []apiextensionsv1.SelectableField) {
	for _, name := range k.options.Versions {
		for _, field := range k.versions[name].definition.SelectableFields {
			if !slices.Contains(all, field) {
				all = append(all, field)
			}
		}
	}
	return all
}

// differences says how a version becomes like the others, in what a kind has in all of its versions.
func (k *importedKind) differences(version *importedVersion, fields []apiextensionsv1.SelectableField) (findings []string) {
	preferred := k.options.Preferred()
	switch {
	case version.hasStatus() && !k.options.Status:
		findings = append(findings, "the subresource status, which "+preferred+" lacks")
	case !version.hasStatus() && k.options.Status:
		findings = append(findings, "the subresource status of "+preferred+" is added")
	}
	if k.options.Scale && !version.hasScale() {
		findings = append(findings, "the subresource scale is in discovery, and answers 404")
	}
	for _, field := range fields {
		if !slices.Contains(version.definition.SelectableFields, field) {
			findings = append(findings, "the field selector "+field.JSONPath+" of another version is added")
		}
	}
	return findings
}

func (v *importedVersion) hasStatus() bool {
	return v.definition.Subresources != nil && v.definition.Subresources.Status != nil
}

func (v *importedVersion) hasScale() bool {
	return v.definition.Subresources != nil && v.definition.Subresources.Scale != nil
}

// writeImported writes the types of each version, and the internal types, which equal the preferred version's.
func (m *module) writeImported(k *importedKind) {
	m.choose(k.crd.Spec.Group)
	m.Kind, m.Imported = k.options, &k.made
	before := len(m.Files)
	m.renderOnce("group", &m.data)
	// Messages can't hold null in lists, and can't distinguish an empty list from a missing one.
	m.Protobuf = false
	m.renderTypes("import")
	m.render("roles", &m.data)
	for _, name := range k.options.Versions {
		version := k.versions[name]
		m.acceptNames(name, append(version.reader.structs, version.root))
		m.Imported.Root, m.Imported.Structs = version.root, version.reader.structs
		m.writeVersion(name, func() { m.renderTypes("import-types") })
	}
	m.addToLists()
	if slices.ContainsFunc(m.Files[before:], File.isChange) {
		m.Todo = append(m.Todo,
			fmt.Sprintf("pkg/registry/%s/%s.yaml decides what objects may be; write rules beyond it in pkg/apis/%[1]s/validation/%[2]s.go", m.Group.Package, k.options.Name.File()),
			fmt.Sprintf("Write an example in artifacts/examples/%s%s.yaml, which the tests create", m.Prefix(), k.options.Name.File()))
	}
}

// definition returns the CustomResourceDefinition with the imported versions, and without fields that a cluster
// adds.
func (k *importedKind) definition() (string, error) {
	crd := k.crd.DeepCopy()
	crd.ObjectMeta = metav1.ObjectMeta{Name: crd.Name}
	crd.Spec.Conversion = nil
	crd.Spec.Versions = slices.DeleteFunc(crd.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return !slices.Contains(k.options.Versions, version.Name)
	})
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return "", err
	}
	delete(fields, "status")
	text, err := yaml.Marshal(fields)
	return string(text), err
}

// fieldName matches the names that the API conventions of Kubernetes allow.
var fieldName = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// acceptNames lists the fields whose names break a rule, but can't be changed any more.
func (m *module) acceptNames(version string, structs []*goStruct) {
	const exceptions = "hack/violation_exceptions.list"
	dir, _ := m.versionPackage(version)
	accepted := ""
	current := string(m.read(exceptions))
	for _, of := range structs {
		for _, field := range of.Fields {
			line := fmt.Sprintf("API rule violation: names_match,%s,%s,%s\n", m.packagePath(dir), of.Name, field.Name)
			if (!fieldName.MatchString(field.JSON) || field.Name != strings.ToUpper(field.JSON[:1])+field.JSON[1:]) && !strings.Contains(current, line) {
				accepted += line
			}
		}
	}
	switch {
	case accepted == "":
	case current == "":
		m.write(Created, exceptions, []byte(accepted))
	default:
		m.write(Changed, exceptions, []byte(current+accepted))
	}
}
