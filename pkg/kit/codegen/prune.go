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

package codegen

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// prune deletes the definitions of a generated file that those of the packages don't refer to, and those that a
// registry.Group adds. Other groups use few of the thousand types of Kubernetes' own groups.
func prune(file string, packages []string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pruned, err := pruneDefinitions(text, packages)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pruned, 0o600)
}

// span is a part of a file.
type span struct{ start, end int }

// definition is an entry in the map of all definitions, with the function that returns it.
type definition struct {
	entry, function span
	body            *ast.FuncDecl
	used            bool
	// added is true if a registry.Group adds the definition.
	added bool
}

func pruneDefinitions(text []byte, packages []string) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	at := func(node ast.Node) span {
		return span{files.Position(node.Pos()).Offset, files.Position(node.End()).Offset}
	}
	paths := map[string]string{}
	for _, imported := range file.Imports {
		if imported.Name != nil {
			paths[imported.Name.Name], _ = strconv.Unquote(imported.Path.Value)
		}
	}
	functions := map[string]*ast.FuncDecl{}
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok {
			functions[function.Name.Name] = function
		}
	}
	definitions := map[string]*definition{}
	var use func(name string)
	use = func(name string) {
		found := definitions[name]
		if found == nil || found.used || found.added {
			return
		}
		found.used = true
		ast.Inspect(found.body, func(node ast.Node) bool {
			switch node.(type) {
			case *ast.CallExpr, *ast.BasicLit:
				where := at(node)
				use(string(text[where.start:where.end]))
			}
			return true
		})
	}
	var roots []string
	ast.Inspect(functions["GetOpenAPIDefinitions"], func(node ast.Node) bool {
		pair, ok := node.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		call, ok := pair.Value.(*ast.CallExpr)
		if !ok {
			return false
		}
		function, ok := call.Fun.(*ast.Ident)
		if !ok || functions[function.Name] == nil {
			return false
		}
		where := at(pair.Key)
		name := string(text[where.start:where.end])
		body := functions[function.Name]
		definitions[name] = &definition{entry: at(pair), function: at(body), body: body}
		if of := packageOf(pair.Key, paths); slices.Contains(packages, of) {
			roots = append(roots, name)
		} else {
			definitions[name].added = slices.Contains(referredLibraries(), of)
		}
		return false
	})
	for _, name := range roots {
		use(name)
	}
	var unused []span
	for _, definition := range definitions {
		if !definition.used {
			// The comma goes, too.
			unused = append(unused, span{definition.entry.start, definition.entry.end + 1}, definition.function)
		}
	}
	return withoutUnusedImports(cut(text, unused))
}

// packageOf returns the package of a type from the key of its definition:
// "k8s.io/api/core/v1.Pod", or v1.Pod{}.OpenAPIModelName().
func packageOf(key ast.Expr, imports map[string]string) (path string) {
	if literal, ok := key.(*ast.BasicLit); ok {
		name, _ := strconv.Unquote(literal.Value)
		return name[:max(strings.LastIndexByte(name, '.'), 0)]
	}
	ast.Inspect(key, func(node ast.Node) bool {
		if literal, ok := node.(*ast.CompositeLit); ok {
			if selector, ok := literal.Type.(*ast.SelectorExpr); ok {
				if name, ok := selector.X.(*ast.Ident); ok {
					path = imports[name.Name]
				}
			}
		}
		return path == ""
	})
	return path
}

// cut returns the text without some of its parts.
func cut(text []byte, parts []span) []byte {
	slices.SortFunc(parts, func(a, b span) int { return a.start - b.start })
	var kept bytes.Buffer
	start := 0
	for _, part := range parts {
		kept.Write(text[start:part.start])
		start = part.end
		for start < len(text) && text[start] == '\n' {
			start++
		}
	}
	kept.Write(text[start:])
	return kept.Bytes()
}

// withoutUnusedImports returns a formatted file without its unused imports.
func withoutUnusedImports(text []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok {
				used[name.Name] = true
			}
		}
		return true
	})
	var unused []span
	for _, imported := range file.Imports {
		if imported.Name != nil && !used[imported.Name.Name] {
			unused = append(unused, span{files.Position(imported.Pos()).Offset, files.Position(imported.End()).Offset})
		}
	}
	return format.Source(cut(text, unused))
}
