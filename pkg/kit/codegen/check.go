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
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// checkTypes compiles the packages with generated code.
func (g *generation) checkTypes(ctx context.Context, apis []API) error {
	args := append([]string{"build"}, g.internal(apis)...)
	args = append(args, g.packages(apis, nil)...)
	for _, api := range apis {
		if _, err := os.Stat(g.file(api.generated())); err == nil {
			args = append(args, g.importPath(path.Join(api.generated(), "...")))
		}
	}
	return g.compile(ctx, "the generated code", args...)
}

// checkModule compiles all packages with their tests, if the configuration asks for it.
func (g *generation) checkModule(ctx context.Context) error {
	if !g.Whole {
		return nil
	}
	g.progress("compiling the module and its tests")
	return g.compile(ctx, "the module", "list", "-test", "-export", "./...")
}

// compile runs a command that compiles packages. Its error names the types whose generated code does not compile.
func (g *generation) compile(ctx context.Context, what string, args ...string) error {
	command := g.newCommand(ctx, "go", args...)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s does not compile, so what was there before is left as it was:\n%s", what, blame(g.Module, complaints.String()))
	}
	return nil
}

// complaint matches an error of the compiler.
var complaint = regexp.MustCompile(`^(\S+\.go):(\d+):\d+: `)

// blame adds the types to errors about their generated code.
func blame(module, complaints string) string {
	var b strings.Builder
	lines := bufio.NewScanner(strings.NewReader(complaints))
	for lines.Scan() {
		b.WriteString(lines.Text())
		if match := complaint.FindStringSubmatch(lines.Text()); match != nil {
			line, _ := strconv.Atoi(match[2])
			if name := typeAt(filepath.Join(module, match[1]), line); name != "" {
				fmt.Fprintf(&b, " (for the type %s)", name)
			}
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

// typeAt returns the type at a line of a generated file: the receiver of the method, or a parameter
// of the function.
func typeAt(name string, line int) (found string) {
	if generated, err := isGenerated(name); err != nil || !generated {
		return ""
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return ""
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || line < files.Position(function.Pos()).Line || line > files.Position(function.End()).Line {
			continue
		}
		fields := function.Type.Params.List
		if function.Recv != nil {
			fields = function.Recv.List
		}
		if len(fields) == 0 {
			return ""
		}
		of := fields[0].Type
		if pointer, ok := of.(*ast.StarExpr); ok {
			of = pointer.X
		}
		if name, ok := of.(*ast.Ident); ok {
			return name.Name
		}
	}
	return ""
}

// generatedFiles returns the generated files by their paths.
func (g *generation) generatedFiles(apis []API) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := g.eachFile(apis, func(name string, generated bool) (err error) {
		if generated {
			files[name], err = os.ReadFile(name)
		}
		return err
	})
	return files, err
}

// restore replaces the generated files by the earlier ones.
func (g *generation) restore(apis []API, files map[string][]byte) error {
	if err := g.clean(apis); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // G301: sources of a module are for everybody.
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // G306: like the directories.
			return err
		}
	}
	return nil
}
