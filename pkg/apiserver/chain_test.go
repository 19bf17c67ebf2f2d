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

package apiserver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The package comment lists the handlers that are built, in the order of a request.
func TestHandlersAreListed(t *testing.T) {
	var built []string
	config, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(config, func(node ast.Node) bool {
		function, ok := node.(*ast.FuncDecl)
		if !ok || function.Name.Name != "buildHandlerChain" {
			return true
		}
		for _, statement := range function.Body.List {
			assignment, ok := statement.(*ast.AssignStmt)
			if !ok || assignment.Lhs[0].(*ast.Ident).Name != "handler" {
				continue
			}
			built = append(built, assignment.Rhs[0].(*ast.CallExpr).Fun.(*ast.SelectorExpr).Sel.Name)
		}
		return false
	})
	slices.Reverse(built)

	doc, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^ {2}- (\w+) `).FindAllStringSubmatch(doc.Doc.Text(), -1) {
		listed = append(listed, match[1])
	}
	if len(listed) == 0 {
		t.Fatal("doc.go lists no handlers")
	}
	if diff := cmp.Diff(listed, built); diff != "" {
		t.Errorf("other handlers are built than doc.go lists (-listed +built):\n%s", diff)
	}
}
