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
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// literal finds the result of a function: the composite literal with the most elements that
// is not part of another one.
func literal(file *ast.File, function string) *ast.CompositeLit {
	var found *ast.CompositeLit
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Name.Name != function || f.Recv != nil {
			continue
		}
		ast.Inspect(f, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if ok && (found == nil || len(literal.Elts) > len(found.Elts)) {
				found = literal
			}
			return !ok
		})
	}
	return found
}

// valueOf finds the value of a field in a literal, or nil.
func valueOf(literal *ast.CompositeLit, field string) ast.Expr {
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == field {
				return pair.Value
			}
		}
	}
	return nil
}

// addToField adds an element to a field of a literal, and adds the field if necessary. A map
// keeps the element that it has for a key.
func (s *source) addToField(function, field, ofType, element string) error {
	files, file, err := s.parse()
	if err != nil {
		return err
	}
	found := literal(file, function)
	if found == nil {
		return fmt.Errorf("the function %s has no literal: add %s to its %s by hand", function, element, field)
	}
	value := valueOf(found, field)
	if value == nil {
		return s.add(elements(function), fmt.Sprintf("%s: %s{\n%s,\n}", field, ofType, element), nil)
	}
	values, ok := value.(*ast.CompositeLit)
	if !ok {
		return fmt.Errorf("%s of the function %s is not written as a list: add %s by hand", field, function, element)
	}
	if key, _, isPair := strings.Cut(element, ":"); isPair {
		for _, other := range values.Elts {
			text := string(s.text[files.Position(other.Pos()).Offset:files.Position(other.End()).Offset])
			if strings.HasPrefix(text, key+":") {
				return nil
			}
		}
	}
	return s.add(func(*ast.File) (list, error) { return list{values.Elts, values.Lbrace, values.Rbrace}, nil }, element, nil)
}

// tags returns the comments above the declaration of a type, also those that are not next to
// it.
func tags(file *ast.File, name string) (found []*ast.Comment) {
	after := file.Name.End()
	for _, declaration := range file.Decls {
		if types, ok := declaration.(*ast.GenDecl); ok && types.Tok == token.TYPE && types.Specs[0].(*ast.TypeSpec).Name.Name == name {
			for _, group := range file.Comments {
				if group.Pos() > after && group.End() < types.TokPos {
					found = append(found, group.List...)
				}
			}
		}
		after = declaration.End()
	}
	return found
}

// addTag adds a tag to a type, after those with the same beginning.
func (s *source) addTag(name, tag string) error {
	files, file, err := s.parse()
	if err != nil {
		return err
	}
	prefix, _, _ := strings.Cut(tag, ":")
	at := -1
	for _, comment := range tags(file, name) {
		text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
		if text == tag {
			return nil
		}
		if strings.HasPrefix(text, prefix) {
			at = files.Position(comment.End()).Offset
		}
	}
	if at < 0 {
		return fmt.Errorf("the type %s has no tag %s: add // %s by hand", name, prefix, tag)
	}
	return s.insert(at, "\n// "+tag)
}

// inPackage looks for something in the files of a package.
func (m *module) inPackage(dir string, found func(*token.FileSet, *ast.File) bool) (file string, err error) {
	names, err := filepath.Glob(m.file(dir + "/*.go"))
	if err != nil {
		return "", err
	}
	for _, name := range names {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		if found(files, parsed) {
			return dir + "/" + filepath.Base(name), nil
		}
	}
	return "", nil
}

// fileWith returns the file of a package that has a function.
func (m *module) fileWith(dir, function string) (string, error) {
	file, err := m.inPackage(dir, func(_ *token.FileSet, file *ast.File) bool {
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Name.Name == function && f.Recv == nil {
				return true
			}
		}
		return false
	})
	if err == nil && file == "" {
		err = fmt.Errorf("%s has no function %s, which the kit would change", dir, function)
	}
	return file, err
}

// fileOfType returns the file of a package that has a type.
func (m *module) fileOfType(dir, name string) (string, error) {
	return m.inPackage(dir, func(_ *token.FileSet, file *ast.File) bool { return declaresType(file, name) })
}

// tagged reports whether a type has a tag with that beginning.
func (m *module) tagged(dir, name, tag string) (tagged bool, err error) {
	_, err = m.inPackage(dir, func(_ *token.FileSet, file *ast.File) bool {
		for _, comment := range tags(file, name) {
			tagged = tagged || strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")), "+"+tag)
		}
		return tagged
	})
	return tagged, err
}

// hasField reports whether a struct of a package has a field.
func (m *module) hasField(dir, name, field string) (has bool, err error) {
	_, err = m.inPackage(dir, func(_ *token.FileSet, file *ast.File) bool {
		ast.Inspect(file, func(node ast.Node) bool {
			declared, ok := node.(*ast.TypeSpec)
			if !ok || declared.Name.Name != name {
				return true
			}
			if fields, ok := declared.Type.(*ast.StructType); ok {
				for _, f := range fields.Fields.List {
					has = has || nameOfField(f) == field
				}
			}
			return false
		})
		return has
	})
	return has, err
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

// declared returns the source of a field in the declaration of the kind.
func (m *module) declared(field string) (string, error) {
	dir := "pkg/registry/" + m.Group.Package
	if _, err := m.fileWith(dir, string(m.Kind.Name)); err != nil {
		return "", err
	}
	return m.fieldOf(dir, string(m.Kind.Name), field)
}

// fieldOf returns the source of a field in the literal that a function returns, or "".
func (m *module) fieldOf(dir, function, field string) (text string, err error) {
	_, err = m.inPackage(dir, func(_ *token.FileSet, file *ast.File) bool {
		found := literal(file, function)
		if found == nil {
			return false
		}
		switch value := valueOf(found, field).(type) {
		case *ast.Ident:
			text = value.Name
		case *ast.BasicLit:
			text = value.Value
		}
		return true
	})
	return text, err
}

// subresources returns the names of the kind's own subresources in its declaration.
func (m *module) subresources() (names []string, err error) {
	_, err = m.inPackage("pkg/registry/"+m.Group.Package, func(_ *token.FileSet, file *ast.File) bool {
		declaration := literal(file, string(m.Kind.Name))
		if declaration == nil {
			return false
		}
		if list, ok := valueOf(declaration, "Subresources").(*ast.CompositeLit); ok {
			for _, element := range list.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					if name, ok := pair.Key.(*ast.BasicLit); ok {
						names = append(names, strings.Trim(name.Value, `"`))
					}
				}
			}
		}
		return true
	})
	return names, err
}
