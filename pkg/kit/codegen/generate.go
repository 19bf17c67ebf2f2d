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
	"path/filepath"
	"slices"
	"strings"
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
	// Output gets progress messages, also those of the generators.
	Output io.Writer
}

// work has files that only the generators need. Go ignores its name.
const work = "_output/codegen"

// protoWork has links to packages and to this program, for go-to-protobuf.
const protoWork = work + "/proto"

// Generate generates the code of all groups of a module, with the generators of the module's Kubernetes version. It
// first deletes the generated code of earlier runs, so that only code that tags ask for stays.
//
// If neither the types nor the generated code have changed since the last run, it does nothing. If only fields have
// changed, it keeps clientset, listers and informers. If a generator fails, or its code does not compile, it
// restores the earlier code.
func Generate(ctx context.Context, config Config) error {
	g := &generation{Config: config}
	var err error
	if g.Module, err = filepath.Abs(g.Module); err != nil {
		return err
	}
	if err := CheckVendor(g.Module); err != nil {
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
	if err := g.readGoMod(ctx); err != nil {
		return err
	}
	if g.version, err = g.list(ctx, "{{.Version}}", "k8s.io/apimachinery"); err != nil {
		return err
	}
	current, err := g.fingerprint(apis)
	if err != nil {
		return err
	}
	if g.isLast(stamp, current) {
		g.progress("nothing has changed")
		return g.checkModule(ctx)
	}
	// The generators report files that do not parse.
	clients, err := g.clientFingerprint(apis)
	g.keepClients = err == nil && g.isLast(clientStamp, clients)
	if err := os.MkdirAll(g.file(work), 0o750); err != nil {
		return err
	}
	if err := g.installTools(ctx); err != nil {
		return err
	}
	before, err := g.generatedFiles(apis)
	if err != nil {
		return err
	}
	if err := g.replaceAll(ctx, apis); err != nil {
		g.keepClients = false
		return errors.Join(err, g.restore(apis, before))
	}
	return nil
}

// generation is one run for one module.
type generation struct {
	Config
	// name is the path of the module, goVersion that of its go.mod.
	name, goVersion string
	// version is the version of the module's Kubernetes libraries, and of the generators.
	version string
	// keepClients is true if generating clientset, listers and informers would not change them.
	keepClients bool
	// tools is the directory of the generators.
	tools string
	// libraries are the packages with API types from other modules. The types of this module may contain them.
	libraries []library
	// gogo is the directory of the module github.com/gogo/protobuf.
	gogo string
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
	if g.libraries, err = g.findLibraries(ctx, apis); err != nil {
		return err
	}
	if err := g.generate(ctx, apis); err != nil {
		return err
	}
	g.progress("compiling what was generated")
	if err := g.checkTypes(ctx, apis); err != nil {
		return err
	}
	if err := g.checkModule(ctx); err != nil {
		return err
	}
	return g.remember(apis)
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

func (g *generation) progress(message string) { fmt.Fprintln(g.Output, "generate: "+message) }

func (g *generation) generate(ctx context.Context, apis []API) error {
	for _, step := range []struct {
		name    string
		do      func(context.Context, []API) error
		clients bool
	}{
		{"registration, deep copies, defaults, conversions and validations", g.besideTypes, false},
		{"protobuf", g.protobuf, false},
		{"OpenAPI definitions", g.openAPI, false},
		{"apply configurations", g.applyConfigurations, false},
		{"OpenAPI definitions without those of Kubernetes", g.pruneOpenAPI, false},
		{"clientset", g.clientset, true},
		{"listers and informers", g.informers, true},
	} {
		if step.clients && g.keepClients {
			g.progress(step.name + ": kept, since only fields have changed")
			continue
		}
		g.progress(step.name)
		if err := step.do(ctx, apis); err != nil {
			return fmt.Errorf("generating %s: %w", step.name, err)
		}
	}
	return nil
}

// clean deletes the generated code, but for clients that are kept.
func (g *generation) clean(apis []API) error {
	for _, api := range apis {
		entries, err := os.ReadDir(g.file(api.generated()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, entry := range entries {
			if g.keepClients && slices.Contains(clientDirs(), entry.Name()) {
				continue
			}
			if err := os.RemoveAll(filepath.Join(g.file(api.generated()), entry.Name())); err != nil {
				return err
			}
		}
	}
	// Clients are kept here, since their files have other names.
	return g.eachFile(apis, func(name string, _ bool) error {
		if generated, err := isGenerated(name); err != nil || !generated {
			return err
		}
		return os.Remove(name)
	})
}

// eachFile calls a function for each file of the APIs and of their generated code. It reports whether the file is
// generated.
func (g *generation) eachFile(apis []API, do func(name string, generated bool) error) error {
	for _, api := range apis {
		for _, dir := range []string{api.Dir, api.generated()} {
			err := filepath.WalkDir(g.file(dir), func(name string, entry fs.DirEntry, err error) error {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				if err != nil || entry.IsDir() {
					return err
				}
				generated, err := isGenerated(name)
				if err != nil {
					return err
				}
				return do(name, generated || dir != api.Dir)
			})
			if err != nil {
				return err
			}
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
