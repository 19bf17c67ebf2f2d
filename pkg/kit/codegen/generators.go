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
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	_ "embed"
)

func (g *generation) besideTypes(ctx context.Context, apis []API) error {
	versioned := g.packages(apis, nil)
	for _, run := range []struct {
		generator string
		args      []string
		packages  []string
	}{
		{"register", nil, versioned},
		{"deepcopy", nil, slices.Concat(g.internal(apis), versioned)},
		{"defaulter", nil, versioned},
		{"conversion", nil, versioned},
		{"validation", []string{"--readonly-pkg=k8s.io/apimachinery/pkg/api/resource"}, versioned},
	} {
		args := slices.Concat([]string{"--output-file=" + outputFile(run.generator)}, run.args, run.packages)
		if err := g.run(ctx, run.generator+"-gen", args...); err != nil {
			return err
		}
	}
	return g.checkConversions(apis)
}

// outputFile returns the name of a generator's file, as Kubernetes has it.
func outputFile(generator string) string {
	what := map[string]string{"defaulter": "defaults", "validation": "validations"}
	return "zz_generated." + cmp.Or(what[generator], generator) + ".go"
}

// protobuf runs a generator that finds and writes files by import path below one directory.
// Imports in .proto files are resolved the same way. Links provide this layout for the module
// and the module cache. Another link makes the generator call this program as protoc.
func (g *generation) protobuf(ctx context.Context, apis []API) error {
	packages := g.packages(apis, func(v Version) bool { return v.Protobuf && !g.NoProtobuf })
	if len(packages) == 0 {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	dir := g.file(protoWork)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	links := map[string]string{
		"out/" + g.name:                   g.Module,
		"import/github.com/gogo/protobuf": g.gogo,
		"bin/" + Protoc:                   program,
	}
	var known []string
	for _, library := range g.libraries {
		if library.protobuf {
			known = append(known, "-"+library.path)
			links["import/"+library.path+"/"+messages] = filepath.Join(library.dir, messages)
		}
	}
	for link, target := range links {
		link = filepath.Join(dir, filepath.FromSlash(link))
		if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
			return err
		}
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	return g.run(ctx, "go-to-protobuf",
		"--output-dir="+filepath.Join(dir, "out"), "--proto-import="+filepath.Join(dir, "import"),
		"--apimachinery-packages="+strings.Join(known, ","),
		"--packages="+strings.Join(packages, ","))
}

// openAPI generates the definitions of the types and of all libraries that they may use. Only the
// module's own violations of API rules are checked, not those of the libraries.
func (g *generation) openAPI(ctx context.Context, apis []API) error {
	for _, api := range apis {
		packages := g.packages([]API{api}, func(v Version) bool { return v.OpenAPI })
		if len(packages) == 0 {
			continue
		}
		report := g.file(work + "/api-violations")
		dir := path.Join(api.generated(), "openapi")
		args := []string{
			"--output-file=zz_generated.openapi.go", "--output-model-name-file=zz_generated.model_name.go",
			"--output-dir=" + g.file(dir), "--output-pkg=" + g.importPath(dir), "--report-filename=" + report,
		}
		var libraries []string
		for _, library := range g.libraries {
			if library.openAPI {
				libraries = append(libraries, library.path)
				args = append(args, "--readonly-pkg="+library.path)
			}
		}
		if err := g.run(ctx, "openapi-gen", slices.Concat(args, libraries, packages)...); err != nil {
			return err
		}
		if err := g.checkViolations(report); err != nil {
			return err
		}
	}
	return nil
}

// pruneOpenAPI deletes the definitions that other generators need, and the server does not.
func (g *generation) pruneOpenAPI(_ context.Context, apis []API) error {
	for _, api := range apis {
		packages := g.packages([]API{api}, func(v Version) bool { return v.OpenAPI })
		if len(packages) == 0 {
			continue
		}
		if err := prune(g.file(path.Join(api.generated(), "openapi/zz_generated.openapi.go")), packages); err != nil {
			return err
		}
	}
	return nil
}

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

// applyConfigurations generates apply configurations. Their generator expects models with
// names that follow from import paths, and writes those names into its code.
func (g *generation) applyConfigurations(ctx context.Context, apis []API) error {
	return g.forClients(apis, func(api API, packages []string) error {
		if err := g.writeModels(ctx, api); err != nil {
			return err
		}
		args := []string{"--openapi-schema=" + g.file(work+"/models.json")}
		external, err := g.externalConfigurations(ctx)
		if err != nil {
			return err
		}
		if len(external) > 0 {
			args = append(args, "--external-applyconfigurations="+strings.Join(external, ","))
		}
		if err := g.toGenerated(ctx, "applyconfiguration-gen", api, "applyconfiguration", slices.Concat(args, packages)...); err != nil {
			return err
		}
		var byPath []string
		for _, names := range g.modelNames(api) {
			byPath = append(byPath, names.byPath, names.model)
		}
		return g.replace(path.Join(api.generated(), "applyconfiguration"), strings.NewReplacer(byPath...))
	})
}

// writeModels writes the OpenAPI definitions of an API under the names that generators
// expect.
func (g *generation) writeModels(ctx context.Context, api API) error {
	program := g.file(work + "/models/main.go")
	if err := os.MkdirAll(filepath.Dir(program), 0o750); err != nil {
		return err
	}
	text := strings.ReplaceAll(modelsProgram, "OPENAPI", g.importPath(path.Join(api.generated(), "openapi")))
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		return err
	}
	models, err := g.capture(ctx, "run", program)
	if err != nil {
		return err
	}
	var byModel []string
	for _, names := range g.modelNames(api) {
		byModel = append(byModel, names.model, names.byPath)
	}
	return os.WriteFile(g.file(work+"/models.json"), []byte(strings.NewReplacer(byModel...).Replace(string(models))), 0o600)
}

type modelNames struct{ model, byPath string }

func (g *generation) modelNames(api API) []modelNames {
	var all []modelNames
	for dir, version := range versions(api) {
		model, byPath := version.modelNames(g.importPath(dir))
		all = append(all, modelNames{model, byPath})
	}
	return all
}

func (g *generation) clientset(ctx context.Context, apis []API) error {
	return g.forClients(apis, func(api API, _ []string) error {
		configurations := g.importPath(path.Join(api.generated(), "applyconfiguration"))
		args := []string{
			"--clientset-name=versioned",
			"--apply-configuration-package=" + configurations, "--input-base=" + g.importPath(api.Dir),
		}
		prefersProtobuf := !g.NoProtobuf
		for _, group := range api.Groups {
			for _, version := range group.Versions {
				if version.Clients {
					args = append(args, "--input="+group.Name+"/"+version.Name)
					prefersProtobuf = prefersProtobuf && version.Protobuf
				}
			}
		}
		if prefersProtobuf {
			args = append(args, "--prefers-protobuf")
		}
		if err := g.toGenerated(ctx, "client-gen", api, "clientset", args...); err != nil {
			return err
		}
		// client-gen looks for the apply configuration of a subresource's kind among those of
		// the module. The one of Scale is in client-go.
		dir := path.Join(api.generated(), "clientset")
		if err := g.replace(dir, strings.NewReplacer(configurations+"/autoscaling/v1", "k8s.io/client-go/applyconfigurations/autoscaling/v1")); err != nil {
			return err
		}
		return g.command(ctx, "gofmt", "-w", g.file(dir))
	})
}

func (g *generation) informers(ctx context.Context, apis []API) error {
	return g.forClients(apis, func(api API, packages []string) error {
		if err := g.toGenerated(ctx, "lister-gen", api, "listers", packages...); err != nil {
			return err
		}
		return g.toGenerated(ctx, "informer-gen", api, "informers", slices.Concat([]string{
			"--versioned-clientset-package=" + g.importPath(path.Join(api.generated(), "clientset", "versioned")),
			"--listers-package=" + g.importPath(path.Join(api.generated(), "listers")),
		}, packages)...)
	})
}

// forClients calls generate for each API with clients, with the packages that ask for them.
func (g *generation) forClients(apis []API, generate func(API, []string) error) error {
	for _, api := range apis {
		packages := g.packages([]API{api}, func(v Version) bool { return v.Clients && !g.NoClients })
		if len(packages) == 0 {
			continue
		}
		if err := generate(api, packages); err != nil {
			return err
		}
	}
	return nil
}

// internal returns the packages of internal types.
func (g *generation) internal(apis []API) (packages []string) {
	for _, api := range apis {
		for _, group := range api.Groups {
			if group.Internal {
				packages = append(packages, g.importPath(path.Join(api.Dir, group.Name)))
			}
		}
	}
	return packages
}

// packages returns the packages of the versions that match, or of all.
func (g *generation) packages(apis []API, match func(Version) bool) (packages []string) {
	for dir, version := range versions(apis...) {
		if match == nil || match(version) {
			packages = append(packages, g.importPath(dir))
		}
	}
	return packages
}
