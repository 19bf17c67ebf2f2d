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

package storage

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The package comment lists the decorators that are built, in the order of an object.
func TestDecoratorsAreListed(t *testing.T) {
	var built []string
	for _, from := range [][2]string{
		{"../../registry/errors.go", "GetRESTOptions"},
		{"watchcache.go", "decorate"},
		{"watchcache.go", "cacher"},
		{"references.go", "make"},
		{"checksum.go", "TransformerForResource"},
	} {
		found := decorators(t, from[0], from[1])
		require.NotEmpty(t, found, "%s in %s", from[1], from[0])
		built = append(built, found...)
	}
	doc, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^ {2}- (\w+) `).FindAllStringSubmatch(doc.Doc.Text(), -1) {
		listed = append(listed, match[1])
	}
	require.Equal(t, listed, built)
}

// decorators returns the decorators that a function makes, the last one first, and the library's Cacher where it makes
// one.
func decorators(t *testing.T, file, function string) (made []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	for _, declaration := range parsed.Decls {
		declared, ok := declaration.(*ast.FuncDecl)
		if !ok || declared.Name.Name != function {
			continue
		}
		ast.Inspect(declared.Body, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.CompositeLit:
				if of, ok := node.Type.(*ast.Ident); ok && regexp.MustCompile(`(Storage|Cache|Transformer)$`).MatchString(of.Name) {
					made = append(made, of.Name)
				}
			case *ast.SelectorExpr:
				if name, ok := strings.CutSuffix(node.Sel.Name, "FromConfig"); ok {
					made = append(made, strings.TrimPrefix(name, "New"))
				}
			}
			return true
		})
	}
	if function == "decorate" {
		slices.Reverse(made) // Each wraps those before.
	}
	return slices.Compact(made)
}
