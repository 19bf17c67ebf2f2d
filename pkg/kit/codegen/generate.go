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
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Config has the options of Generate.
type Config struct {
	// Module is the directory of a go.mod.
	Module string
	// Header is a file with the header of generated files. The default is hack/boilerplate.go.txt of the module if
	// that exists.
	Header string
	// NoProtobuf and NoClients leave out code that tags ask for: messages, and the clientset, listers, informers
	// and apply configurations.
	NoProtobuf, NoClients bool
	// Whole also compiles the code that is not generated, and the tests, before Generate succeeds.
	Whole bool
	// Output gets progress messages, also the generators'.
	Output io.Writer
}

const (
	// work has files that only the generators need. Go ignores its name.
	work = "_output/codegen"
	// protoWork has links to packages and to this program, for go-to-protobuf.
	protoWork = work + "/proto"
)

// Generate generates the code of all groups of a module, with the generators of the module's Kubernetes version. It
// first deletes the generated code of earlier runs, so that only code that tags ask for stays.
//
// If a generator fails, or its code does not compile, it restores the earlier code.
func Generate(ctx context.Context, config Config) error {
	g := &generation{Config: config}
	var err error
	if g.Module, err = filepath.Abs(g.Module); err != nil {
		return err
	}
	if err := checkVendor(g.Module); err != nil {
		return err
	}
	if g.Header, err = g.header(); err != nil {
		return err
	}
	apis, err := Find(os.DirFS(g.Module))
	if err != nil {
		return fmt.Errorf("finding the API groups of %s: %w", g.Module, err)
	}
	if len(g.packages(apis, nil)) == 0 {
		return fmt.Errorf("%s has no API groups: put types into directories such as pkg/apis/<group>/v1", g.Module)
	}
	if err := g.readVersions(ctx); err != nil {
		return err
	}
	if err := g.installTools(ctx); err != nil {
		return err
	}
	before := Originals{Dir: g.Module, Before: map[string][]byte{}}
	if err := g.eachGenerated(apis, func(name string) error { return before.Remember(name) }); err != nil {
		return err
	}
	if err := g.replaceAll(ctx, apis); err != nil {
		return before.TakeBack(errors.Join(err, g.clean(apis)))
	}
	return nil
}

// generation is one run for one module.
type generation struct {
	Config
	// name is the path of the module.
	name string
	// version is the version of the module's Kubernetes libraries, and of the generators.
	version string
	// tools is the directory of the generators.
	tools string
	// libraries are the packages with API types from other modules. The types of this module may contain them.
	libraries []library
	// printing is locked while output is written, since some generators run at the same time.
	printing sync.Mutex
}

// replaceAll deletes the generated code, and generates it again.
func (g *generation) replaceAll(ctx context.Context, apis []API) error {
	if err := g.clean(apis); err != nil {
		return err
	}
	if err := g.writeTags(apis); err != nil {
		return err
	}
	apis, err := Find(os.DirFS(g.Module))
	if err != nil {
		return err
	}
	if err := g.checkSources(apis); err != nil {
		return err
	}
	if g.libraries, err = g.findLibraries(ctx, apis); err != nil {
		return err
	}
	if err := g.generate(ctx, apis); err != nil {
		return err
	}
	return g.check(ctx, apis)
}

// step is a part of the generated code.
type step struct {
	name string
	do   func(context.Context, []API) error
}

func (g *generation) generate(ctx context.Context, apis []API) error {
	for _, step := range []step{
		{"registration, deep copies, defaults, conversions and validations", g.besideTypes},
		{"protobuf", g.protobuf},
		{"OpenAPI definitions", g.openAPI},
	} {
		if err := g.do(ctx, step, apis); err != nil {
			return err
		}
	}
	// These only read the types.
	clients, until := errgroup.WithContext(ctx)
	for _, step := range []step{
		{"apply configurations", g.applyConfigurations},
		{"clientset", g.clientset},
		{"listers and informers", g.informers},
	} {
		clients.Go(func() error { return g.do(until, step, apis) })
	}
	if err := clients.Wait(); err != nil {
		return err
	}
	return g.pruneOpenAPI(ctx, apis)
}

func (g *generation) do(ctx context.Context, step step, apis []API) error {
	g.progress(step.name)
	if err := step.do(ctx, apis); err != nil {
		return fmt.Errorf("generating %s: %w", step.name, err)
	}
	return nil
}

func (g *generation) progress(message string) { g.print([]byte("generate: " + message + "\n")) }

func (g *generation) print(text []byte) {
	g.printing.Lock()
	defer g.printing.Unlock()
	_, _ = g.Output.Write(text)
}

// check compiles the generated code or, if the configuration asks for it, the whole module with its tests.
func (g *generation) check(ctx context.Context, apis []API) error {
	if g.Whole {
		g.progress("compiling the module and its tests")
		return g.compile(ctx, "the module", "list", "-test", "-export", "./...")
	}
	g.progress("compiling what was generated")
	args := append([]string{"build"}, g.internal(apis)...)
	args = append(args, g.packages(apis, nil)...)
	for _, api := range apis {
		if _, err := os.Stat(g.file(api.generated())); err == nil {
			args = append(args, g.importPath(path.Join(api.generated(), "...")))
		}
	}
	return g.compile(ctx, "the generated code", args...)
}

// compile runs a go command that compiles packages.
func (g *generation) compile(ctx context.Context, what string, args ...string) error {
	command := g.newCommand(ctx, "go", args...)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s does not compile, so what was there before is left as it was:\n%s", what, strings.TrimSpace(complaints.String()))
	}
	return nil
}

// header returns the absolute path of the header, or an empty string.
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

// clean deletes the generated code.
func (g *generation) clean(apis []API) error {
	for _, api := range apis {
		if err := os.RemoveAll(g.file(api.generated())); err != nil {
			return err
		}
	}
	return g.eachGenerated(apis, func(name string) error { return os.Remove(g.file(name)) })
}

// eachGenerated calls a function for each generated file, beside the types and elsewhere.
func (g *generation) eachGenerated(apis []API, do func(name string) error) error {
	module := os.DirFS(g.Module)
	for _, api := range apis {
		for _, dir := range []string{api.Dir, api.generated()} {
			err := fs.WalkDir(module, dir, func(name string, entry fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				if err != nil || entry.IsDir() {
					return err
				}
				generated, err := isGenerated(module, name)
				if err != nil || !generated && dir == api.Dir {
					return err
				}
				return do(name)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// isGenerated reports whether a file beside the types is generated.
func isGenerated(module fs.FS, file string) (bool, error) {
	name := path.Base(file)
	if name == tagsFile {
		text, err := fs.ReadFile(module, file)
		return strings.Contains(string(text), generatedBy), err
	}
	return strings.HasPrefix(name, "zz_generated.") || name == "generated.pb.go" || name == "generated.proto", nil
}
