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

package framework

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Remote reports whether E2E_BASTION=true asks for a control plane that only SSH reaches.
func Remote() bool { return os.Getenv("E2E_BASTION") == "true" }

// AlsoRemote marks a test for SelectRemote. Such a test covers users' work with kubectl and clients
// in Go. AlsoRemote has no effect on the test.
func AlsoRemote(t *testing.T) {
	t.Helper()
	// SelectRemote finds the mark in the source, so the call has to be in the body of the test.
	pc, _, _, _ := runtime.Caller(1)
	if name := runtime.FuncForPC(pc).Name(); !strings.HasSuffix(name, "."+t.Name()) {
		t.Fatalf("AlsoRemote is called by %s: call it in the body of %s itself", name, t.Name())
	}
}

// SelectRemote skips tests that AlsoRemote does not mark. It reads the package in the working
// directory. Call it in TestMain.
func SelectRemote() error {
	others, err := unmarked(".")
	if err != nil || len(others) == 0 {
		return err
	}
	flag.Parse()
	skip := flag.Lookup("test.skip").Value
	pattern := "^(" + strings.Join(others, "|") + ")$"
	if skip.String() != "" {
		pattern += "|" + skip.String()
	}
	return skip.Set(pattern)
}

// unmarked returns the tests of a directory that don't call AlsoRemote. At least one test has to
// call it.
func unmarked(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	some := false
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("looking for tests that are marked by AlsoRemote: %w", err)
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test") || function.Name.Name == "TestMain" {
				continue
			}
			if marked(function) {
				some = true
			} else {
				names = append(names, function.Name.Name)
			}
		}
	}
	if !some {
		return nil, errors.New("E2E_BASTION=true selects no test: none is marked by framework.AlsoRemote")
	}
	return names, nil
}

// marked reports whether AlsoRemote is one of the statements of a function.
func marked(function *ast.FuncDecl) bool {
	for _, statement := range function.Body.List {
		expression, ok := statement.(*ast.ExprStmt)
		if !ok {
			continue
		}
		call, ok := expression.X.(*ast.CallExpr)
		if !ok {
			continue
		}
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "AlsoRemote" {
			return true
		}
	}
	return false
}
