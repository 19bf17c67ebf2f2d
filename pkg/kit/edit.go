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
// rest of the text stays as its author has written it. After the first error, edits do nothing.
type source struct {
	text []byte
	err  error
}

// list is a list of expressions in a Go file.
type list struct {
	elements    []ast.Expr
	open, close token.Pos
}

// tree is a parsed source.
type tree struct {
	text  []byte
	files *token.FileSet
	file  *ast.File
}

func (t *tree) offset(pos token.Pos) int { return t.files.Position(pos).Offset }

func (t *tree) textOf(node ast.Node) string {
	return string(t.text[t.offset(node.Pos()):t.offset(node.End())])
}

// editGo is an edit of a Go file by several steps.
func editGo(edit func(*source)) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		s := &source{text: text}
		edit(s)
		return s.text, s.err
	}
}

// insert inserts the text that locate returns with its offset. An empty text changes nothing.
func (s *source) insert(locate func(*tree) (at int, text string, err error)) {
	if s.err != nil {
		return
	}
	t := &tree{text: s.text, files: token.NewFileSet()}
	if t.file, s.err = parser.ParseFile(t.files, "", s.text, parser.ParseComments|parser.SkipObjectResolution); s.err != nil {
		return
	}
	at, text, err := locate(t)
	if err == nil && text != "" {
		var formatted []byte
		if formatted, err = format.Source(slices.Concat(s.text[:at], []byte(text), s.text[at:])); err == nil {
			s.text = formatted
		}
	}
	s.err = err
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
func (s *source) add(where func(*ast.File) (list, error), expression string, before func(element string) bool) {
	s.insert(func(t *tree) (int, string, error) {
		list, err := where(t.file)
		if err != nil {
			return 0, "", fmt.Errorf("%w: add %s by hand", err, expression)
		}
		return t.addition(list, expression, before)
	})
}

// addition returns the text to insert into a list.
func (t *tree) addition(list list, expression string, before func(element string) bool) (at int, text string, err error) {
	texts := make([]string, len(list.elements))
	for i, element := range list.elements {
		texts[i] = t.textOf(element)
	}
	if slices.Contains(texts, expression) {
		return 0, "", nil
	}
	if before != nil {
		if next := slices.IndexFunc(texts, before); next >= 0 {
			return t.offset(list.elements[next].Pos()), expression + ",\n", nil
		}
	}
	if len(texts) == 0 {
		return t.offset(list.open) + 1, "\n" + expression + ",\n", nil
	}
	at = t.offset(list.elements[len(texts)-1].End())
	if comma := bytes.IndexByte(t.text[at:t.offset(list.close)], ','); comma >= 0 {
		return at + comma + 1, "\n" + expression + ",", nil
	}
	return at, ", " + expression, nil
}

// addToField adds an element to a field of a literal, and adds the field if necessary. A map
// keeps the element that it has for a key.
func (s *source) addToField(function, field, ofType, element string) {
	s.insert(func(t *tree) (int, string, error) {
		found := literal(t.file, function)
		if found == nil {
			return 0, "", fmt.Errorf("the function %s has no literal: add %s to its %s by hand", function, element, field)
		}
		value := valueOf(found, field)
		if value == nil {
			return t.addition(list{found.Elts, found.Lbrace, found.Rbrace}, fmt.Sprintf("%s: %s{\n%s,\n}", field, ofType, element), nil)
		}
		values, ok := value.(*ast.CompositeLit)
		if !ok {
			return 0, "", fmt.Errorf("%s of the function %s is not written as a list: add %s by hand", field, function, element)
		}
		if key, _, isPair := strings.Cut(element, ":"); isPair && slices.ContainsFunc(values.Elts, func(other ast.Expr) bool { return strings.HasPrefix(t.textOf(other), key+":") }) {
			return 0, "", nil
		}
		return t.addition(list{values.Elts, values.Lbrace, values.Rbrace}, element, nil)
	})
}

// use adds an import, after those with the same beginning.
func (s *source) use(name, importPath string) {
	spec := strconv.Quote(importPath)
	if name != "" && name != path.Base(importPath) {
		spec = name + " " + spec
	}
	s.insert(func(t *tree) (int, string, error) {
		for _, declaration := range t.file.Decls {
			imports, ok := declaration.(*ast.GenDecl)
			if !ok || imports.Tok != token.IMPORT || !imports.Lparen.IsValid() {
				continue
			}
			// Without a common beginning, the import is a group of its own.
			at, text, best := imports.Rparen, "\n"+spec+"\n", 0
			for _, imported := range imports.Specs {
				other, _ := strconv.Unquote(imported.(*ast.ImportSpec).Path.Value)
				if other == importPath {
					return 0, "", nil
				}
				if common := commonElements(other, importPath); common >= max(best, 1) {
					at, text, best = imported.End(), "\n"+spec, common
				}
			}
			return t.offset(at), text, nil
		}
		return 0, "", fmt.Errorf("it has no list of imports: import %s by hand", spec)
	})
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

// addTag adds a tag to a type, after those with the same beginning.
func (s *source) addTag(name, tag string) {
	s.insert(func(t *tree) (at int, text string, err error) {
		prefix, _, _ := strings.Cut(tag, ":")
		err = fmt.Errorf("the type %s has no tag %s: add // %s by hand", name, prefix, tag)
		for _, comment := range tags(t.file, name) {
			switch text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")); {
			case text == tag:
				return 0, "", nil
			case strings.HasPrefix(text, prefix):
				at, err = t.offset(comment.End()), nil
			}
		}
		return at, "\n// " + tag, err
	})
}

// literal finds the result of a function: the composite literal with the most elements that
// is not part of another one.
func literal(file *ast.File, function string) (found *ast.CompositeLit) {
	if declared := functionNamed(file, function); declared != nil {
		ast.Inspect(declared, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if ok && (found == nil || len(literal.Elts) > len(found.Elts)) {
				found = literal
			}
			return !ok
		})
	}
	return found
}

func functionNamed(file *ast.File, name string) *ast.FuncDecl {
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Name.Name == name && function.Recv == nil {
			return function
		}
	}
	return nil
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

// typeNamed returns a type of a file, or nil.
func typeNamed(file *ast.File, name string) *ast.TypeSpec {
	for _, declaration := range file.Decls {
		if types, ok := declaration.(*ast.GenDecl); ok && types.Tok == token.TYPE {
			for _, spec := range types.Specs {
				if spec := spec.(*ast.TypeSpec); spec.Name.Name == name {
					return spec
				}
			}
		}
	}
	return nil
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
