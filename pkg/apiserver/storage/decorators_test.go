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
	"testing"

	"github.com/stretchr/testify/require"
)

// The package comment lists the decorators that are built, in the order of an object.
func TestDecoratorsAreListed(t *testing.T) {
	var built []string
	file, err := parser.ParseFile(token.NewFileSet(), "watchcache.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		function, ok := node.(*ast.FuncDecl)
		if !ok {
			return true
		}
		if function.Name.Name == "decorate" {
			ast.Inspect(function.Body, func(node ast.Node) bool {
				if literal, ok := node.(*ast.CompositeLit); ok {
					built = append(built, literal.Type.(*ast.Ident).Name)
				}
				return true
			})
		}
		return false
	})
	slices.Reverse(built)
	require.Len(t, built, 3)

	doc, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	require.NoError(t, err)
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^ {2}- (\w+) `).FindAllStringSubmatch(doc.Doc.Text(), -1) {
		listed = append(listed, match[1])
	}
	first := slices.Index(listed, built[0])
	require.GreaterOrEqual(t, first, 0, listed)
	require.Equal(t, listed[first:first+len(built)], built)
	require.Equal(t, []string{"statusErrorStorage", "boundedStorage", "awaitedCache", "movedStorage", "Cacher", "historicStorage", "writingStorage", "checksumTransformer"}, listed)
}
