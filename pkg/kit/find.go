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
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// inPackage returns the first file of a package for which found is true, or an empty string.
func (m *module) inPackage(dir string, found func(name string, file *ast.File) bool) string {
	names, err := filepath.Glob(m.File(dir + "/*.go"))
	m.fail(err)
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if m.fail(err) {
			return ""
		}
		if name = filepath.Base(name); found(name, file) {
			return dir + "/" + name
		}
	}
	return ""
}

// fileWith returns the file of a package that has a function.
func (m *module) fileWith(dir, function string) string {
	file := m.inPackage(dir, func(_ string, file *ast.File) bool { return functionNamed(file, function) != nil })
	if file == "" {
		m.failf("%s has no function %s, which the kit would change", dir, function)
	}
	return file
}

// fileOfType returns the file of a package that has a type, or an empty string.
func (m *module) fileOfType(dir, name string) string {
	return m.inPackage(dir, func(_ string, file *ast.File) bool { return typeNamed(file, name) != nil })
}

// declares reports whether a package declares a type.
func (m *module) declares(dir, name string) bool { return m.fileOfType(dir, name) != "" }

// tagged reports whether a type has a tag with that beginning.
func (m *module) tagged(dir, name, tag string) bool {
	file := m.inPackage(dir, func(_ string, file *ast.File) bool {
		return slices.ContainsFunc(tags(file, name), func(comment *ast.Comment) bool {
			return strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")), "+"+tag)
		})
	})
	return file != ""
}

// hasField reports whether a struct of a package has a field.
func (m *module) hasField(dir, name, field string) bool {
	file := m.inPackage(dir, func(_ string, file *ast.File) bool {
		declared := typeNamed(file, name)
		if declared == nil {
			return false
		}
		fields, ok := declared.Type.(*ast.StructType)
		return ok && slices.ContainsFunc(fields.Fields.List, func(f *ast.Field) bool { return nameOfField(f) == field })
	})
	return file != ""
}

// nameOfField returns the name of a field, or of an embedded type.
func nameOfField(field *ast.Field) string {
	if len(field.Names) > 0 {
		return field.Names[0].Name
	}
	switch embedded := field.Type.(type) {
	case *ast.Ident:
		return embedded.Name
	case *ast.SelectorExpr:
		return embedded.Sel.Name
	}
	return ""
}

// fieldOf returns the value of a field in the literal that a function returns, or nil.
func (m *module) fieldOf(dir, function, field string) (value ast.Expr) {
	m.inPackage(dir, func(_ string, file *ast.File) bool {
		found := literal(file, function)
		if found != nil {
			value = valueOf(found, field)
		}
		return found != nil
	})
	return value
}

// declared returns the value of a field in the declaration of the kind, or nil.
func (m *module) declared(field string) ast.Expr {
	dir := "pkg/registry/" + m.Group.Package
	m.fileWith(dir, string(m.Kind.Name))
	return m.fieldOf(dir, string(m.Kind.Name), field)
}

// textOf returns the source of a name or of a basic value, or an empty string.
func textOf(value ast.Expr) string {
	switch value := value.(type) {
	case *ast.Ident:
		return value.Name
	case *ast.BasicLit:
		return strings.Trim(value.Value, `"`)
	}
	return ""
}

// subresources returns the names of the kind's own subresources in its declaration.
func (m *module) subresources() (names []string) {
	list, ok := m.fieldOf("pkg/registry/"+m.Group.Package, string(m.Kind.Name), "Subresources").(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, element := range list.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			names = append(names, textOf(pair.Key))
		}
	}
	return names
}
