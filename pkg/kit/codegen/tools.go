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
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const codeGenerator = "k8s.io/code-generator"

// generators returns the programs that generate code, and the programs that those run.
func generators() []string {
	return []string{
		codeGenerator + "/cmd/applyconfiguration-gen",
		codeGenerator + "/cmd/client-gen",
		codeGenerator + "/cmd/conversion-gen",
		codeGenerator + "/cmd/deepcopy-gen",
		codeGenerator + "/cmd/defaulter-gen",
		codeGenerator + "/cmd/go-to-protobuf",
		codeGenerator + "/cmd/go-to-protobuf/protoc-gen-gogo",
		codeGenerator + "/cmd/informer-gen",
		codeGenerator + "/cmd/lister-gen",
		codeGenerator + "/cmd/register-gen",
		codeGenerator + "/cmd/validation-gen",
		"k8s.io/kube-openapi/cmd/openapi-gen",
	}
}

// installTools installs missing generators in the user's cache. Their versions follow from the
// module: k8s.io/code-generator has the version of its Kubernetes libraries, and pins everything
// else in its go.mod and go.sum.
func (g *generation) installTools(ctx context.Context) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("there is no directory for the generators, set XDG_CACHE_HOME: %w", err)
	}
	g.tools = filepath.Join(cache, "restaurant-apiserver", "codegen-"+g.version)
	if err := os.MkdirAll(g.tools, 0o750); err != nil {
		return fmt.Errorf("there is no directory for the generators, set XDG_CACHE_HOME to one that can be written to: %w", err)
	}
	source, err := g.download(ctx, codeGenerator, g.version)
	if err != nil {
		return err
	}
	if err := g.install(ctx, source.Dir, generators()...); err != nil {
		return err
	}
	// The go.sum of code-generator lacks checksums to build goimports.
	imports, err := g.outside(ctx, source.Dir, "list", "-m", "-f={{.Path}}/cmd/goimports@{{.Version}}", "golang.org/x/tools")
	if err != nil {
		return err
	}
	if err := g.install(ctx, g.tools, strings.TrimSpace(string(imports))); err != nil {
		return err
	}
	gogo, err := g.outside(ctx, source.Dir, "list", "-m", "-f={{.Version}}", "github.com/gogo/protobuf")
	if err != nil {
		return err
	}
	messages, err := g.download(ctx, "github.com/gogo/protobuf", strings.TrimSpace(string(gogo)))
	g.gogo = messages.Dir
	return err
}

// install installs missing programs, in the versions that a directory's go.mod has.
func (g *generation) install(ctx context.Context, dir string, packages ...string) error {
	var missing []string
	for _, command := range packages {
		name, _, _ := strings.Cut(path.Base(command), "@")
		if _, err := os.Stat(filepath.Join(g.tools, name)); err != nil {
			missing = append(missing, command)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	g.progress(fmt.Sprintf("building %d generators of Kubernetes %s, once, which takes minutes", len(missing), g.version))
	_, err := g.outside(ctx, dir, append([]string{"install", "-trimpath", "-ldflags=-s -w"}, missing...)...)
	return err
}

// outside runs a go command outside of the module, without the module's flags and files.
func (g *generation) outside(ctx context.Context, dir string, args ...string) ([]byte, error) {
	command := g.newCommand(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(command.Env, "GOBIN="+g.tools, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	output, err := command.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return output, err
}

// downloaded has the directory of a downloaded module.
type downloaded struct{ Dir, Error string }

func (g *generation) download(ctx context.Context, module, version string) (downloaded, error) {
	var files downloaded
	output, err := g.outside(ctx, g.tools, "mod", "download", "-json", module+"@"+version)
	if failed := json.Unmarshal(output, &files); failed != nil {
		return files, errors.Join(err, failed)
	}
	if files.Error != "" {
		return files, fmt.Errorf("%s %s can't be downloaded: %s", module, version, files.Error)
	}
	return files, err
}

// readGoMod reads the path of the module, and its version of Go. In a workspace, "go list" would
// answer for all of its modules.
func (g *generation) readGoMod(ctx context.Context) error {
	output, err := g.capture(ctx, "mod", "edit", "-json")
	if err != nil {
		return fmt.Errorf("%s is no Go module: %w", g.Module, err)
	}
	var file struct {
		Module struct{ Path string }
		Go     string
	}
	if err := json.Unmarshal(output, &file); err != nil {
		return err
	}
	g.name, g.goVersion = file.Module.Path, file.Go
	return nil
}

// list returns the output of "go list -m" for a module that this one needs.
func (g *generation) list(ctx context.Context, format, module string) (string, error) {
	output, err := g.capture(ctx, "list", "-m", "-f="+format, module)
	if err != nil {
		return "", fmt.Errorf("the module does not need %s: run \"go mod tidy\" in %s: %w", module, g.Module, err)
	}
	return strings.TrimSpace(string(output)), nil
}
