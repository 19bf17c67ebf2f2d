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
	"context"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// library is a package of another module that has API types.
type library struct {
	path, dir string
	// protobuf is true if the package has messages, and openAPI if it can have OpenAPI definitions.
	protobuf, openAPI bool
}

// messages is the file with the messages of a package.
const messages = "generated.proto"

// referredLibraries returns the packages that all groups refer to. A registry.Group adds their definitions.
func referredLibraries() []string {
	return []string{
		"k8s.io/api/autoscaling/v1",
		"k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/apimachinery/pkg/apis/meta/v1",
		"k8s.io/apimachinery/pkg/runtime",
		"k8s.io/apimachinery/pkg/version",
	}
}

// findLibraries finds the packages that the types of the versions can refer to.
func (g *generation) findLibraries(ctx context.Context, apis []API) (found []library, err error) {
	roots := map[string]bool{}
	for _, name := range referredLibraries() {
		roots[name] = true
	}
	for dir := range versions(apis...) {
		if err := g.addImports(dir, roots); err != nil {
			return nil, err
		}
	}
	output, err := g.capture(ctx, slices.Concat([]string{"list", "-deps", "-f={{if not .Standard}}{{.ImportPath}}\t{{.Dir}}{{end}}"}, slices.Sorted(maps.Keys(roots)))...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(output)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if name == g.name || strings.HasPrefix(name, g.name+"/") {
			continue
		}
		_, err := os.Stat(filepath.Join(dir, messages))
		tags, failed := readTags(os.DirFS(dir), ".")
		if failed != nil {
			return nil, failed
		}
		library := library{path: name, dir: dir, protobuf: err == nil, openAPI: slices.Contains(tags, "k8s:openapi-gen=true")}
		if library.protobuf || library.openAPI {
			found = append(found, library)
		}
	}
	return found, nil
}

// addImports adds the imports of a package's files that are not generated.
func (g *generation) addImports(dir string, imports map[string]bool) error {
	files, err := filepath.Glob(g.file(dir) + "/*.go")
	if err != nil {
		return err
	}
	for _, name := range files {
		if generated, err := isGenerated(name); err != nil || generated || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imported := range file.Imports {
			if path, err := strconv.Unquote(imported.Path.Value); err == nil && strings.Contains(strings.Split(path, "/")[0], ".") {
				imports[path] = true
			}
		}
	}
	return nil
}

// configurationType matches the declaration of an apply configuration.
var configurationType = regexp.MustCompile(`(?m)^type (\w+)ApplyConfiguration struct`)

// externalConfigurations maps types of Kubernetes' own groups to their apply configurations in
// client-go.
func (g *generation) externalConfigurations(ctx context.Context) (external []string, err error) {
	const types, configurations = "k8s.io/api/", "k8s.io/client-go/applyconfigurations/"
	for _, library := range g.libraries {
		group, found := strings.CutPrefix(library.path, types)
		if !found || slices.Contains(referredLibraries(), library.path) {
			continue
		}
		dir, err := g.capture(ctx, "list", "-f={{.Dir}}", configurations+group)
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob(path.Join(strings.TrimSpace(string(dir)), "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for _, match := range configurationType.FindAllSubmatch(text, -1) {
				external = append(external, library.path+"."+string(match[1])+":"+configurations+group)
			}
		}
	}
	return external, nil
}
