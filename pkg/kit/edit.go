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
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// source is a Go file that is edited. The syntax tree only locates the edits, so that the
// rest of the text stays as its author has written it.
type source struct {
	text []byte
}

// list is a list of expressions in a Go file.
type list struct {
	elements    []ast.Expr
	open, close token.Pos
}

func (s *source) parse() (*token.FileSet, *ast.File, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", s.text, parser.ParseComments|parser.SkipObjectResolution)
	return files, file, err
}

// arguments finds the arguments of the first call of a function in another function.
func arguments(of string) func(*ast.File) (list, error) {
	return func(file *ast.File) (found list, err error) {
		err = fmt.Errorf("no call of %s was found", of)
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || err == nil {
				return err != nil
			}
			name := ""
			switch function := call.Fun.(type) {
			case *ast.Ident:
				name = function.Name
			case *ast.SelectorExpr:
				name = function.Sel.Name
			}
			if name == of {
				found, err = list{call.Args, call.Lparen, call.Rparen}, nil
			}
			return err != nil
		})
		return found, err
	}
}

// elements finds the elements of the literal that a function returns.
func elements(function string) func(*ast.File) (list, error) {
	return func(file *ast.File) (list, error) {
		if found := literal(file, function); found != nil {
			return list{found.Elts, found.Lbrace, found.Rbrace}, nil
		}
		return list{}, fmt.Errorf("no function %s with a list was found", function)
	}
}

// add adds an expression to a list that does not have it. It goes before the first element
// that satisfies before, or to the end.
func (s *source) add(where func(*ast.File) (list, error), expression string, before func(element string) bool) error {
	files, file, err := s.parse()
	if err != nil {
		return err
	}
	list, err := where(file)
	if err != nil {
		return fmt.Errorf("%w: add %s by hand", err, expression)
	}
	offset := func(pos token.Pos) int { return files.Position(pos).Offset }
	texts := make([]string, len(list.elements))
	for i, element := range list.elements {
		texts[i] = string(s.text[offset(element.Pos()):offset(element.End())])
	}
	if slices.Contains(texts, expression) {
		return nil
	}
	at := offset(list.open) + 1
	next := -1
	if before != nil {
		next = slices.IndexFunc(texts, before)
	}
	switch {
	case next >= 0:
		at = offset(list.elements[next].Pos())
		expression += ",\n"
	case len(texts) == 0:
		expression = "\n" + expression + ",\n"
	default:
		last := list.elements[len(texts)-1].End()
		at = offset(last)
		if comma := bytes.IndexByte(s.text[at:offset(list.close)], ','); comma >= 0 {
			at += comma + 1
			expression = "\n" + expression + ","
		} else {
			expression = ", " + expression
		}
	}
	return s.insert(at, expression)
}

// use adds an import, after those with the same beginning.
func (s *source) use(name, importPath string) error {
	files, file, err := s.parse()
	if err != nil {
		return err
	}
	spec := strconv.Quote(importPath)
	if name != "" && name != path.Base(importPath) {
		spec = name + " " + spec
	}
	at, best := 0, -1
	for _, declaration := range file.Decls {
		imports, ok := declaration.(*ast.GenDecl)
		if !ok || imports.Tok != token.IMPORT || !imports.Lparen.IsValid() {
			continue
		}
		for _, imported := range imports.Specs {
			imported := imported.(*ast.ImportSpec)
			other, _ := strconv.Unquote(imported.Path.Value)
			if other == importPath {
				return nil
			}
			if common := commonElements(other, importPath); common >= max(best, 1) {
				at, best = files.Position(imported.End()).Offset, common
			}
		}
		if best < 1 {
			// A group of its own.
			at, spec = files.Position(imports.Rparen).Offset, "\n"+spec+"\n"
		} else {
			spec = "\n" + spec
		}
		return s.insert(at, spec)
	}
	return fmt.Errorf("it has no list of imports: import %s by hand", spec)
}

// commonElements returns how many leading elements two import paths share.
func commonElements(a, b string) int {
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	n := 0
	for n < min(len(as), len(bs)) && as[n] == bs[n] {
		n++
	}
	return n
}

func (s *source) insert(at int, text string) error {
	edited := slices.Concat(s.text[:at], []byte(text), s.text[at:])
	formatted, err := format.Source(edited)
	if err != nil {
		return err
	}
	s.text = formatted
	return nil
}

// editGo is an edit of a Go file by several steps.
func editGo(steps ...func(*source) error) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		s := &source{text: text}
		for _, step := range steps {
			if err := step(s); err != nil {
				return nil, err
			}
		}
		return s.text, nil
	}
}

// addLine adds an element to a list in a YAML file, below the first line with this key.
func addLine(key, element string) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		lines := strings.SplitAfter(string(text), "\n")
		start := slices.IndexFunc(lines, func(line string) bool { return strings.TrimSpace(line) == key+":" })
		if start < 0 {
			return nil, fmt.Errorf("no line %q was found: add %s to that list by hand", key+":", element)
		}
		indent, _, _ := strings.Cut(lines[start], key)
		indent += "  "
		end := start + 1
		for end < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[end]), "- ") {
			indent, _, _ = strings.Cut(lines[end], "-")
			if strings.TrimSpace(lines[end]) == "- "+element {
				return text, nil
			}
			end++
		}
		return []byte(strings.Join(slices.Insert(lines, end, indent+"- "+element+"\n"), "")), nil
	}
}

// ofSubresources matches the text that CreatePart adds to the files of a kind.
var ofSubresources = regexp.MustCompile(`(?s)\n// \+genclient:method=\w+,verb=create,subresource=[^\n]*|\n\t\tSubresources: map\[string\]registry\.Subresource\[[^\n]*\{\n.*?\n\t\t\},`)

// withoutSubresources returns a file of a kind as CreateKind writes it.
func withoutSubresources(text []byte) []byte { return ofSubresources.ReplaceAll(text, nil) }

// declaresType reports whether a file declares a type.
func declaresType(file *ast.File, name string) bool {
	for _, declaration := range file.Decls {
		types, ok := declaration.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			if spec.(*ast.TypeSpec).Name.Name == name {
				return true
			}
		}
	}
	return false
}
