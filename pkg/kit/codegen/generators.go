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
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func (g *generation) importPath(dir string) string { return path.Join(g.name, dir) }

func (g *generation) file(dir string) string { return filepath.Join(g.Module, filepath.FromSlash(dir)) }

// run runs a generator.
func (g *generation) run(ctx context.Context, generator string, args ...string) error {
	return g.command(ctx, filepath.Join(g.tools, generator), slices.Concat([]string{"--go-header-file=" + g.Header}, args)...)
}

// toGenerated runs a generator that writes a directory in "generated".
func (g *generation) toGenerated(ctx context.Context, generator string, api API, name string, args ...string) error {
	dir := path.Join(api.generated(), name)
	return g.run(ctx, generator, slices.Concat([]string{"--output-dir=" + g.file(dir), "--output-pkg=" + g.importPath(dir)}, args)...)
}

// replace changes all files in a directory.
func (g *generation) replace(dir string, replacer *strings.Replacer) error {
	return filepath.WalkDir(g.file(dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(replacer.Replace(string(text))), 0o600)
	})
}

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
	return nil
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
	links := map[string]string{"out/" + g.name: g.Module, "bin/" + Protoc: program}
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
		"--output-dir="+filepath.Join(dir, "out"), "--proto-import="+filepath.Join(dir, "import"), "--proto-import="+g.tools,
		"--apimachinery-packages="+strings.Join(known, ","), "--packages="+strings.Join(packages, ","))
}

// applyConfigurations generates apply configurations. Their generator expects models with
// names that follow from import paths, and writes those names into its code.
func (g *generation) applyConfigurations(ctx context.Context, apis []API) error {
	return g.forEach(apis, g.withClients, func(api API, packages []string) error {
		var byPath, byModel []string
		for dir, version := range versions(api) {
			model, path := version.modelNames(g.importPath(dir))
			byPath, byModel = append(byPath, path, model), append(byModel, model, path)
		}
		models, err := g.models(ctx, api, strings.NewReplacer(byModel...))
		if err != nil {
			return err
		}
		args := []string{"--openapi-schema=" + models}
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
		return g.replace(path.Join(api.generated(), "applyconfiguration"), strings.NewReplacer(byPath...))
	})
}

func (g *generation) clientset(ctx context.Context, apis []API) error {
	return g.forEach(apis, g.withClients, func(api API, _ []string) error {
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
		// client-gen looks for the apply configuration of a subresource's kind in
		// the module. The one of Scale is in client-go.
		dir := path.Join(api.generated(), "clientset")
		if err := g.replace(dir, strings.NewReplacer(configurations+"/autoscaling/v1", "k8s.io/client-go/applyconfigurations/autoscaling/v1")); err != nil {
			return err
		}
		return g.command(ctx, "gofmt", "-w", g.file(dir))
	})
}

func (g *generation) informers(ctx context.Context, apis []API) error {
	return g.forEach(apis, g.withClients, func(api API, packages []string) error {
		if err := g.toGenerated(ctx, "lister-gen", api, "listers", packages...); err != nil {
			return err
		}
		return g.toGenerated(ctx, "informer-gen", api, "informers", slices.Concat([]string{
			"--versioned-clientset-package=" + g.importPath(path.Join(api.generated(), "clientset", "versioned")),
			"--listers-package=" + g.importPath(path.Join(api.generated(), "listers")),
		}, packages)...)
	})
}

// withClients reports whether a version has clients.
func (g *generation) withClients(v Version) bool { return v.Clients && !g.NoClients }

// forEach calls a function for each API with versions that match, with their packages.
func (g *generation) forEach(apis []API, match func(Version) bool, do func(API, []string) error) error {
	for _, api := range apis {
		if packages := g.packages([]API{api}, match); len(packages) > 0 {
			if err := do(api, packages); err != nil {
				return err
			}
		}
	}
	return nil
}

// internal returns the packages of internal types.
func (g *generation) internal(apis []API) (packages []string) {
	for _, api := range apis {
		for _, group := range api.Groups {
			if group.Internal && len(group.Versions) > 0 {
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
