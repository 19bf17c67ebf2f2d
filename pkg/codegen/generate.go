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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	_ "embed"
)

// Config says where code is generated, and what.
type Config struct {
	// Module is the directory of a go.mod.
	Module string
	// Header is a file with what all generated files begin with, by default
	// hack/boilerplate.go.txt of the module if that exists.
	Header string
	// NoProtobuf and NoClients leave out what tags ask for: messages, which need protoc,
	// and the clientset, listers, informers and apply configurations.
	NoProtobuf, NoClients bool
	// Output is told what is going on, by the generators too.
	Output io.Writer
}

// work is where files are kept that only the generators need. Go ignores it by its name.
const work = "_output/codegen"

// libraries returns the packages whose OpenAPI definitions are generated along, since all
// groups refer to them.
func libraries() []string {
	return []string{
		"k8s.io/api/autoscaling/v1",
		"k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/apimachinery/pkg/apis/meta/v1",
		"k8s.io/apimachinery/pkg/runtime",
		"k8s.io/apimachinery/pkg/version",
	}
}

// protobufLibraries returns the packages whose messages those of a group contain.
func protobufLibraries() []string {
	return []string{
		"k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/apimachinery/pkg/util/intstr",
		"k8s.io/apimachinery/pkg/runtime/schema",
		"k8s.io/apimachinery/pkg/runtime",
		"k8s.io/apimachinery/pkg/apis/meta/v1",
	}
}

// Generate generates the code of all groups of a module, with the generators of the
// Kubernetes version that the module is built with. What an earlier run has left is deleted
// first, so that nothing stays that no tag asks for. If neither the types nor what was
// generated have changed since the last run, nothing is done.
func Generate(ctx context.Context, config Config) error {
	g := &generation{Config: config}
	var err error
	if g.Module, err = filepath.Abs(g.Module); err != nil {
		return err
	}
	if g.Header, err = g.header(); err != nil {
		return err
	}
	apis, err := Find(os.DirFS(g.Module))
	if err != nil {
		return fmt.Errorf("finding the API groups of %s: %w", g.Module, err)
	}
	if len(apis) == 0 {
		return fmt.Errorf("%s has no API groups: put types into directories such as pkg/apis/<group>/v1", g.Module)
	}
	for list, value := range map[string]*string{"{{.Path}}": &g.name, "{{.GoVersion}}": &g.goVersion} {
		if *value, err = g.list(ctx, list); err != nil {
			return err
		}
	}
	if g.version, err = g.list(ctx, "{{.Version}}", "k8s.io/apimachinery"); err != nil {
		return err
	}
	current, err := g.fingerprint(apis)
	if err != nil {
		return err
	}
	if last, err := os.ReadFile(g.file(stamp)); err == nil && string(last) == current {
		g.progress("nothing has changed")
		return nil
	}
	if err := g.installTools(ctx); err != nil {
		return err
	}
	if err := g.clean(apis); err != nil {
		return err
	}
	if err := g.writeTags(apis); err != nil {
		return err
	}
	if apis, err = Find(os.DirFS(g.Module)); err != nil {
		return err
	}
	if err := g.generate(ctx, apis); err != nil {
		return err
	}
	return g.remember(apis)
}

// generation is one run for one module.
type generation struct {
	Config
	// name is the path of the module, goVersion that of its go.mod.
	name, goVersion string
	// version is that of the module's Kubernetes libraries, and of the generators.
	version string
	// tools is the directory of the generators.
	tools string
	// gogo is the directory of the module github.com/gogo/protobuf.
	gogo string
}

// usedLibraries returns those packages whose definitions are needed only if a type of the
// API refers to them.
func (g *generation) usedLibraries(api API) (used []string, err error) {
	const intstr = "k8s.io/apimachinery/pkg/util/intstr"
	err = filepath.WalkDir(g.file(api.Dir), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_types.go") || len(used) > 0 {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(strconv.Quote(intstr))) {
			used = append(used, intstr)
		}
		return err
	})
	return used, err
}

// header is the absolute path of the header, or empty.
func (g *generation) header() (string, error) {
	if g.Header != "" {
		return filepath.Abs(g.Header)
	}
	file := g.file("hack/boilerplate.go.txt")
	if _, err := os.Stat(file); err != nil {
		return "", nil //nolint:nilerr // The header is optional.
	}
	return file, nil
}

func (g *generation) progress(message string) { fmt.Fprintln(g.Output, "generate: "+message) }

func (g *generation) generate(ctx context.Context, apis []API) error {
	for _, step := range []struct {
		name string
		do   func(context.Context, []API) error
	}{
		{"registration, deep copies, defaults, conversions and validations", g.besideTypes},
		{"protobuf", g.protobuf},
		{"OpenAPI definitions", g.openAPI},
		{"apply configurations", g.applyConfigurations},
		{"clientset", g.clientset},
		{"listers and informers", g.informers},
	} {
		g.progress(step.name)
		if err := step.do(ctx, apis); err != nil {
			return fmt.Errorf("generating %s: %w", step.name, err)
		}
	}
	return nil
}

// clean deletes all that is generated.
func (g *generation) clean(apis []API) error {
	for _, api := range apis {
		if err := os.RemoveAll(g.file(api.generated())); err != nil {
			return err
		}
		if err := filepath.WalkDir(g.file(api.Dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			if generated, err := isGenerated(path); !generated || err != nil {
				return err
			}
			return os.Remove(path)
		}); err != nil {
			return err
		}
	}
	return nil
}

func isGenerated(path string) (bool, error) {
	name := filepath.Base(path)
	if name == tagsFile {
		text, err := os.ReadFile(path)
		return bytes.Contains(text, []byte(generatedBy)), err
	}
	return strings.HasPrefix(name, "zz_generated.") || name == "generated.pb.go" || name == "generated.proto", nil
}

const (
	// tagsFile is the only file in which generators look for the tags of a package.
	tagsFile    = "doc.go"
	generatedBy = "// Code generated by codegen. DO NOT EDIT."
)

// writeTags writes the tags of packages that have no file for them.
func (g *generation) writeTags(apis []API) error {
	for _, api := range apis {
		for _, group := range api.Groups {
			dir := path.Join(api.Dir, group.Name)
			if group.Internal {
				if err := g.writeTagsFile(dir, group.Domain, "k8s:deepcopy-gen=package"); err != nil {
					return err
				}
			}
			for _, version := range group.Versions {
				tags := []string{
					"k8s:openapi-gen=true",
					"k8s:openapi-model-package=" + reverse(group.Domain) + "." + version.Name,
					"k8s:deepcopy-gen=package",
					"k8s:protobuf-gen=package",
					"k8s:conversion-gen=" + g.importPath(dir),
					"k8s:defaulter-gen=TypeMeta",
					"k8s:validation-gen=TypesWithField=TypeMeta",
				}
				if g.NoProtobuf {
					tags = slices.DeleteFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "k8s:protobuf-gen") })
				}
				if err := g.writeTagsFile(path.Join(dir, version.Name), group.Domain, tags...); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (g *generation) writeTagsFile(dir, domain string, tags ...string) error {
	file := filepath.Join(g.file(dir), tagsFile)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		return err
	}
	var text bytes.Buffer
	if g.Header != "" {
		header, err := os.ReadFile(g.Header)
		if err != nil {
			return err
		}
		text.Write(header)
		text.WriteString("\n")
	}
	text.WriteString(generatedBy + "\n\n")
	for _, tag := range append(tags, "groupName="+domain) {
		text.WriteString("// +" + tag + "\n")
	}
	text.WriteString("\npackage " + path.Base(dir) + "\n")
	return os.WriteFile(file, text.Bytes(), 0o600)
}

// reverse turns bakery.example.com into com.example.bakery.
func reverse(domain string) string {
	labels := strings.Split(domain, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
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
	return g.checkConversions(apis)
}

// outputFile is the file of a generator, by the name that Kubernetes gives it.
func outputFile(generator string) string {
	what := map[string]string{"defaulter": "defaults", "validation": "validations"}
	return "zz_generated." + cmp.Or(what[generator], generator) + ".go"
}

// protobuf runs a generator that finds and writes files by import path below one directory,
// and so do the imports in .proto files; links make the module and the module cache look
// that way.
func (g *generation) protobuf(ctx context.Context, apis []API) error {
	packages := g.packages(apis, func(v Version) bool { return v.Protobuf && !g.NoProtobuf })
	if len(packages) == 0 {
		return nil
	}
	if _, err := exec.LookPath("protoc"); err != nil {
		return errors.New("protoc, which translates the messages, is not installed: install it (Debian: protobuf-compiler; macOS: brew install protobuf), " +
			"or do without protobuf by removing the tag +k8s:protobuf-gen from the files doc.go")
	}
	apimachinery, err := g.list(ctx, "{{.Dir}}", "k8s.io/apimachinery")
	if err != nil {
		return err
	}
	if apimachinery == "" {
		downloaded, err := g.download(ctx, "k8s.io/apimachinery", g.version)
		if err != nil {
			return err
		}
		apimachinery = downloaded.Dir
	}
	dir := g.file(work + "/proto")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for link, target := range map[string]string{
		"out/" + g.name:              g.Module,
		"import/k8s.io/apimachinery": apimachinery,
		// Debian has descriptor.proto in a package that protoc only recommends.
		"import/github.com/gogo/protobuf": g.gogo,
		"import/google":                   filepath.Join(g.gogo, "protobuf", "google"),
	} {
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
		"--apimachinery-packages=-"+strings.Join(protobufLibraries(), ",-"),
		"--packages="+strings.Join(packages, ","))
}

// openAPI generates the definitions of the types and of the libraries that they use. The
// rules about names are about the module's types; the libraries' exceptions to them are
// not ours to list.
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
		used, err := g.usedLibraries(api)
		if err != nil {
			return err
		}
		libraries := append(libraries(), used...)
		for _, library := range libraries {
			args = append(args, "--readonly-pkg="+library)
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

// exceptions is a file with violations of API rules that are accepted, as Kubernetes has one.
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

// applyConfigurations runs a generator that expects models under names that follow from
// import paths, and writes those names into its code.
func (g *generation) applyConfigurations(ctx context.Context, apis []API) error {
	return g.forClients(apis, func(api API, packages []string) error {
		if err := g.writeModels(ctx, api); err != nil {
			return err
		}
		if err := g.toGenerated(ctx, "applyconfiguration-gen", api, "applyconfiguration",
			slices.Concat([]string{"--openapi-schema=" + g.file(work+"/models.json")}, packages)...); err != nil {
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
	models, err := g.capture(ctx, "go", "run", program)
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
	for _, group := range api.Groups {
		for _, version := range group.Versions {
			model, byPath := version.modelNames(g.importPath(path.Join(api.Dir, group.Name, version.Name)))
			all = append(all, modelNames{model, byPath})
		}
	}
	return all
}

func (g *generation) clientset(ctx context.Context, apis []API) error {
	return g.forClients(apis, func(api API, _ []string) error {
		configurations := g.importPath(path.Join(api.generated(), "applyconfiguration"))
		args := []string{
			"--clientset-name=versioned", "--prefers-protobuf",
			"--apply-configuration-package=" + configurations, "--input-base=" + g.importPath(api.Dir),
		}
		for _, group := range api.Groups {
			for _, version := range group.Versions {
				if version.Clients {
					args = append(args, "--input="+group.Name+"/"+version.Name)
				}
			}
		}
		if err := g.toGenerated(ctx, "client-gen", api, "clientset", args...); err != nil {
			return err
		}
		// client-gen looks for the apply configuration of a subresource's kind among those
		// of the module; that of Scale is in client-go.
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

// internal are the packages of internal types.
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

// packages are those of the versions that match, or of all.
func (g *generation) packages(apis []API, match func(Version) bool) (packages []string) {
	for _, api := range apis {
		for _, group := range api.Groups {
			for _, version := range group.Versions {
				if match == nil || match(version) {
					packages = append(packages, g.importPath(path.Join(api.Dir, group.Name, version.Name)))
				}
			}
		}
	}
	return packages
}

func (g *generation) importPath(dir string) string { return path.Join(g.name, dir) }

func (g *generation) file(dir string) string { return filepath.Join(g.Module, filepath.FromSlash(dir)) }

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

// toGenerated runs a generator of a directory in "generated".
func (g *generation) toGenerated(ctx context.Context, generator string, api API, name string, args ...string) error {
	dir := path.Join(api.generated(), name)
	return g.run(ctx, generator, slices.Concat([]string{"--output-dir=" + g.file(dir), "--output-pkg=" + g.importPath(dir)}, args)...)
}

// run runs a generator.
func (g *generation) run(ctx context.Context, generator string, args ...string) error {
	return g.command(ctx, filepath.Join(g.tools, generator), slices.Concat([]string{"--go-header-file=" + g.Header}, args)...)
}

func (g *generation) command(ctx context.Context, name string, args ...string) error {
	command := g.newCommand(ctx, name, args...)
	command.Stdout = g.Output
	return command.Run()
}

// capture returns what a command prints.
func (g *generation) capture(ctx context.Context, name string, args ...string) ([]byte, error) {
	var output bytes.Buffer
	command := g.newCommand(ctx, name, args...)
	command.Stdout = &output
	err := command.Run()
	return output.Bytes(), err
}

// newCommand returns a command in the module that finds the generators by name.
func (g *generation) newCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = g.Module
	command.Env = append(os.Environ(), "PATH="+g.tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.Stderr = g.Output
	return command
}
