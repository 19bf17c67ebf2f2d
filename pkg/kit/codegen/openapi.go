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
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	_ "embed"
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
	// Imports may be of packages that are not generated yet.
	args := []string{"list", "-e", "-deps", "-f={{if not .Standard}}{{.ImportPath}}\t{{.Dir}}{{end}}"}
	output, err := g.capture(ctx, slices.Concat(args, referredLibraries(), g.packages(apis, nil))...)
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

// openAPI generates the definitions of the types and of all libraries that they may use. Only the
// module's own violations of API rules are checked, not the libraries'.
func (g *generation) openAPI(ctx context.Context, apis []API) error {
	return g.forEach(apis, withOpenAPI, func(api API, packages []string) error {
		report := g.file(work + "/api-violations")
		args := []string{
			"--output-file=zz_generated.openapi.go", "--output-model-name-file=zz_generated.model_name.go", "--report-filename=" + report,
		}
		for _, library := range g.libraries {
			if library.openAPI {
				args = append(args, "--readonly-pkg="+library.path, library.path)
			}
		}
		if err := g.toGenerated(ctx, "openapi-gen", api, "openapi", slices.Concat(args, packages)...); err != nil {
			return err
		}
		return g.checkViolations(report)
	})
}

// withOpenAPI reports whether a version has OpenAPI definitions.
func withOpenAPI(v Version) bool { return v.OpenAPI }

// exceptions is a file with accepted violations of API rules, like the one of Kubernetes.
const exceptions = "hack/violation_exceptions.list"

func (g *generation) checkViolations(report string) error {
	text, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	accepted, err := os.ReadFile(g.file(exceptions))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var own []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, g.name+"/") && !slices.Contains(slices.Collect(strings.Lines(string(accepted))), line) {
			own = append(own, line)
		}
	}
	if len(own) > 0 {
		return fmt.Errorf("these break a rule for Kubernetes APIs; give the fields the names or list types that the rule asks for, or accept them in %s:\n%s", exceptions, strings.Join(own, ""))
	}
	return nil
}

// modelsProgram prints the OpenAPI definitions of the package that it imports.
//
//go:embed models.go.txt
var modelsProgram string

// models writes the OpenAPI definitions of an API to a file, under other names.
func (g *generation) models(ctx context.Context, api API, names *strings.Replacer) (file string, err error) {
	program := g.file(work + "/models/main.go")
	text := strings.ReplaceAll(modelsProgram, "OPENAPI", g.importPath(path.Join(api.generated(), "openapi")))
	if err := ReplaceFile(program, []byte(text)); err != nil {
		return "", err
	}
	models, err := g.capture(ctx, "run", program)
	if err != nil {
		return "", err
	}
	file = g.file(work + "/models.json")
	return file, os.WriteFile(file, []byte(names.Replace(string(models))), 0o600)
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

// pruneOpenAPI deletes the definitions that other generators need, and the server does not.
func (g *generation) pruneOpenAPI(ctx context.Context, apis []API) error {
	return g.forEach(apis, withOpenAPI, func(api API, packages []string) error {
		file := g.file(path.Join(api.generated(), "openapi/zz_generated.openapi.go"))
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, prune(text, packages), 0o600); err != nil {
			return err
		}
		// This deletes unused imports.
		return g.command(ctx, filepath.Join(g.tools, "goimports"), "-w", file)
	})
}

var (
	// namedImport, definitionEntry and definitionFunction match what openapi-gen writes: an import, and the entry
	// and the function of a definition.
	namedImport        = regexp.MustCompile(`(?m)^\t(\w+) "(.+)"$`)
	definitionEntry    = regexp.MustCompile(`(?m)^\t\t(.+?): +(schema_\w+)\(ref\),\n`)
	definitionFunction = regexp.MustCompile(`(?ms)^func (schema_\w+)\(.*?\n}\n+`)
	// definitionKey matches the name of a definition.
	definitionKey = regexp.MustCompile(`(\w+)\.\w+{}\.OpenAPIModelName\(\)|"([^"\n]+)\.\w+"`)
)

// prune returns definitions without those that the definitions of the packages don't refer to, and those that a
// registry.Group adds. Other groups use few of the thousand types of Kubernetes' own groups.
func prune(text []byte, packages []string) []byte {
	paths, functions, bodies := map[string]string{}, map[string]string{}, map[string]string{}
	for _, match := range namedImport.FindAllSubmatch(text, -1) {
		paths[string(match[1])] = string(match[2])
	}
	for _, match := range definitionFunction.FindAllSubmatch(text, -1) {
		bodies[string(match[1])] = string(match[0])
	}
	for _, match := range definitionEntry.FindAllSubmatch(text, -1) {
		functions[string(match[1])] = string(match[2])
	}
	packageOf := func(key string) string {
		if match := definitionKey.FindStringSubmatch(key); match != nil {
			return paths[match[1]] + match[2]
		}
		return ""
	}
	used := map[string]bool{}
	var use func(key string)
	use = func(key string) {
		function, found := functions[key]
		if !found || used[function] || slices.Contains(referredLibraries(), packageOf(key)) {
			return
		}
		used[function] = true
		for _, other := range definitionKey.FindAllString(bodies[function], -1) {
			use(other)
		}
	}
	for key := range functions {
		if slices.Contains(packages, packageOf(key)) {
			use(key)
		}
	}
	for _, part := range []*regexp.Regexp{definitionEntry, definitionFunction} {
		text = part.ReplaceAllFunc(text, func(match []byte) []byte {
			groups := part.FindSubmatch(match)
			if used[string(groups[len(groups)-1])] {
				return match
			}
			return nil
		})
	}
	return bytes.TrimRight(text, "\n")
}
