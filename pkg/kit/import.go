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
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// ImportOptions say what ImportCRD writes.
type ImportOptions struct {
	// Files have CustomResourceDefinitions, in YAML or JSON.
	Files []string
	// Versions are those that are imported, by default all that are served.
	Versions []string
	// NoClients is for kinds without a clientset, listers and informers.
	NoClients bool
}

// imported is what templates write of a kind besides its options.
type imported struct {
	Doc, Imports, RootFields, Types string
	Categories                      []string
	Columns, Fields                 []column
	Age                             bool
	Scaled                          *scaleCode
	// Fuzzers are functions that fill in what has a default, Fuzzed their names.
	Fuzzers                                                    string
	Fuzzed                                                     []string
	KeepSpec                                                   string
	UsesMeta, UsesMetaV1, UsesTime, UsesFmt, HasSpec, OnlySpec bool
	Rules                                                      []string
}

// CategoryList is the categories in Go.
func (i imported) CategoryList() string { return quoted(i.Categories) }

// DocComment is what the definition says about the kind.
func (i imported) DocComment(kind Name, group string) string {
	var b strings.Builder
	if i.Doc == "" {
		i.Doc = fmt.Sprintf("%s is %s of the %s.", kind, kind.AWords(), group)
	}
	comment(&b, "", i.Doc)
	return strings.TrimSuffix(b.String(), "\n")
}

// ImportCRD writes the kinds that CustomResourceDefinitions define, each in its group, and
// returns what the types can't express.
func ImportCRD(ctx context.Context, dir string, options ImportOptions) (result *Result, findings []string, err error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range options.Files {
		read, err := readCRDs(file)
		if err != nil {
			return nil, nil, err
		}
		crds = append(crds, read...)
	}
	var unwritable []string
	for _, crd := range crds {
		for name, version := range importedVersions(crd, options) {
			for _, problem := range unwritableNames(crd.Spec.Names.Kind, version.Schema.OpenAPIV3Schema) {
				unwritable = append(unwritable, fmt.Sprintf("%s: %s: %s", crd.Name, name, problem))
			}
		}
	}
	if len(unwritable) > 0 {
		slices.Sort(unwritable)
		return nil, nil, fmt.Errorf("nothing has been written, since these can't be written in Go:\n%s", strings.Join(unwritable, "\n"))
	}
	result = &Result{}
	for _, crd := range crds {
		one, found, err := importOne(ctx, dir, crd, options)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", crd.Name, err)
		}
		for _, file := range one.Files {
			if !slices.Contains(result.Files, file) {
				result.Files = append(result.Files, file)
			}
		}
		result.Todo = append(result.Todo, one.Todo...)
		findings = append(findings, found...)
	}
	return result, findings, nil
}

func readCRDs(file string) (crds []*apiextensionsv1.CustomResourceDefinition, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := decoder.Decode(crd); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if crd.Kind == "CustomResourceDefinition" && crd.APIVersion == apiextensionsv1.SchemeGroupVersion.String() {
			crds = append(crds, crd)
		}
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("%s has no CustomResourceDefinition of %s", file, apiextensionsv1.SchemeGroupVersion)
	}
	return crds, nil
}

// importedVersions are the versions of a definition that the options ask for, by name.
func importedVersions(crd *apiextensionsv1.CustomResourceDefinition, options ImportOptions) map[string]*apiextensionsv1.CustomResourceDefinitionVersion {
	versions := map[string]*apiextensionsv1.CustomResourceDefinitionVersion{}
	for i, version := range crd.Spec.Versions {
		if version.Served && version.Schema != nil && version.Schema.OpenAPIV3Schema != nil && (len(options.Versions) == 0 || slices.Contains(options.Versions, version.Name)) {
			versions[version.Name] = &crd.Spec.Versions[i]
		}
	}
	return versions
}

func importOne(ctx context.Context, dir string, crd *apiextensionsv1.CustomResourceDefinition, options ImportOptions) (*Result, []string, error) {
	names := crd.Spec.Names
	kind := KindOptions{
		Kind: Name(names.Kind), Resource: names.Plural, Short: names.ShortNames, NoClients: options.NoClients,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	versions := importedVersions(crd, options)
	kind.Versions = slices.Collect(maps.Keys(versions))
	if len(versions) == 0 {
		return nil, nil, fmt.Errorf("it serves none of these versions: %s", strings.Join(options.Versions, ", "))
	}
	if err := kind.complete(); err != nil {
		return nil, nil, err
	}
	preferred := versions[kind.Versions[0]]
	kind.Status = preferred.Subresources != nil && preferred.Subresources.Status != nil
	kind.Scale = preferred.Subresources != nil && preferred.Subresources.Scale != nil

	m, err := open(ctx, Target{dir, crd.Spec.Group})
	if err != nil {
		return nil, nil, err
	}
	if err := m.readNamespace(); err != nil {
		return nil, nil, err
	}
	m.KindOptions = kind
	if err := m.checkVersionsOf(kind); err != nil {
		return nil, nil, err
	}
	findings, err := m.importVersions(crd, versions)
	if err != nil {
		return nil, nil, err
	}
	for i, finding := range findings {
		findings[i] = fmt.Sprintf("%s.%s: %s", names.Plural, crd.Spec.Group, finding)
	}
	if m.changed() {
		m.Todo = append(m.Todo,
			fmt.Sprintf("Write rules that tags can't express, and a test, in pkg/apis/%s/validation/%s.go", m.Name, kind.Kind.File()),
			fmt.Sprintf("Write an example in artifacts/examples/%s%s.yaml, which the tests create", m.Prefix(), kind.Kind.File()))
	}
	return &m.Result, findings, nil
}

// importVersions writes the internal types, which are those of the preferred version, and the
// types of each version.
func (m *module) importVersions(crd *apiextensionsv1.CustomResourceDefinition, versions map[string]*apiextensionsv1.CustomResourceDefinitionVersion) (findings []string, err error) {
	if err := m.renderOnce("group", &m.data); err != nil {
		return nil, err
	}
	for _, name := range m.Versions {
		version := versions[name]
		reader := &schemaReader{kind: string(m.Kind)}
		root := reader.readSchema(version.Schema.OpenAPIV3Schema)
		if name == m.Preferred() {
			findings = append(findings, m.importInternal(crd, version, reader, root)...)
			if err := m.renderTypes("import"); err != nil {
				return nil, err
			}
			if len(m.Imported.Fuzzed) > 0 {
				if err := m.render("import-fuzzer", &m.data); err != nil {
					return nil, err
				}
			}
			if err := m.render("roles", &m.data); err != nil {
				return nil, err
			}
		}
		if version.Deprecated {
			findings = append(findings, name+": the deprecation: say it as docs/adding-a-kind.md shows")
		}
		for _, finding := range reader.findings {
			// What is so in the preferred version is said once.
			if name == m.Preferred() || !slices.Contains(m.Imported.Rules, finding) {
				findings = append(findings, name+": "+finding)
			}
		}
		if err := m.acceptNames(name, append(reader.structs, root)); err != nil {
			return nil, err
		}
		types := reader.types(true)
		m.Imported.Doc, m.Imported.RootFields, m.Imported.Types = root.doc, versionedFields(root.fields, 2), types
		m.Imported.Imports = imports(m.Imported.RootFields + types)
		if err := m.writeVersion(name, func() error { return m.renderTypes("import-types") }); err != nil {
			return nil, err
		}
	}
	return findings, m.addToLists()
}

// importInternal fills in what the internal types and the declaration are made of.
func (m *module) importInternal(crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion, reader *schemaReader, root *goStruct) (findings []string) {
	made := imported{Doc: root.doc, Categories: crd.Spec.Names.Categories, Rules: reader.findings}
	var notes [3][]string
	made.Scaled, notes[0] = scaled(root, scaleOf(version))
	made.Columns, made.Age, notes[1] = columns(root, version.AdditionalPrinterColumns)
	made.Fields, notes[2] = selectable(root, version.SelectableFields)
	made.UsesMetaV1 = len(made.Columns) > 0
	code := ""
	if made.Scaled != nil {
		code = made.Scaled.StatusReplicas + made.Scaled.Selector
	}
	for _, column := range slices.Concat(made.Columns, made.Fields) {
		code += column.Value
	}
	for name, uses := range map[string]*bool{"meta.Find": &made.UsesMeta, "time.Since": &made.UsesTime, "fmt.Sprint": &made.UsesFmt} {
		*uses = strings.Contains(code, name)
	}
	for _, field := range root.fields {
		if field.json == "status" && m.Status {
			continue
		}
		made.KeepSpec += fmt.Sprintf("to.%s = from.%[1]s\n", field.name)
		made.HasSpec = made.HasSpec || field.json == "spec"
	}
	made.OnlySpec = made.KeepSpec == "to.Spec = from.Spec\n"
	functions, names := reader.fuzzed()
	for _, function := range functions {
		made.Fuzzers += "\n" + strings.ReplaceAll(function, "GROUP.", m.Name+".")
	}
	made.Fuzzed = names
	made.RootFields, made.Types = internalFields(root.fields), reader.types(false)
	made.Imports = imports(made.RootFields + made.Types)
	m.Imported = &made
	return slices.Concat(notes[0], notes[1], notes[2])
}

func scaleOf(version *apiextensionsv1.CustomResourceDefinitionVersion) *apiextensionsv1.CustomResourceSubresourceScale {
	if version.Subresources == nil {
		return nil
	}
	return version.Subresources.Scale
}

// fieldName is what the rules for Kubernetes APIs allow.
var fieldName = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

// acceptNames lists the fields whose names break a rule, but can't be changed any more.
func (m *module) acceptNames(version string, structs []*goStruct) error {
	const exceptions = "hack/violation_exceptions.list"
	dir, _ := m.versionPackage(version)
	var accepted []string
	for _, of := range structs {
		for _, field := range of.fields {
			if !fieldName.MatchString(field.json) {
				accepted = append(accepted, fmt.Sprintf("API rule violation: names_match,%s,%s,%s\n", m.packagePath(dir), of.name, field.name))
			}
		}
	}
	if len(accepted) == 0 {
		return nil
	}
	if !m.exists(exceptions) {
		return m.create(exceptions, []byte(strings.Join(accepted, "")))
	}
	return m.edit(exceptions, func(text []byte) ([]byte, error) {
		for _, line := range accepted {
			if !bytes.Contains(text, []byte(line)) {
				text = append(text, line...)
			}
		}
		return text, nil
	})
}
