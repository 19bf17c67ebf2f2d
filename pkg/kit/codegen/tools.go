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
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const codeGenerator = "k8s.io/code-generator"

// checkVendor returns an error if go commands read a directory vendor instead of go.mod.
// That directory has no messages of libraries.
func checkVendor(module string) error {
	if _, err := os.Stat(filepath.Join(module, "vendor", "modules.txt")); err != nil || strings.Contains(os.Getenv("GOFLAGS"), "-mod=mod") {
		return nil //nolint:nilerr // Without that file, Go ignores the directory.
	}
	return fmt.Errorf("%s has a directory vendor, which Go would read instead of go.mod: set GOFLAGS=-mod=mod for this command, and run \"go mod vendor\" afterwards", module)
}

// readVersions reads the path of the module, and its version of the Kubernetes libraries.
func (g *generation) readVersions(ctx context.Context) error {
	// In a workspace, "go list" would answer for all of its modules.
	output, err := g.capture(ctx, "mod", "edit", "-json")
	if err != nil {
		return fmt.Errorf("%s is no Go module: %w", g.Module, err)
	}
	var file struct{ Module struct{ Path string } }
	if err := json.Unmarshal(output, &file); err != nil {
		return err
	}
	g.name = file.Module.Path
	output, err = g.capture(ctx, "list", "-m", "-f={{.Version}}", "k8s.io/apimachinery")
	if err != nil {
		return fmt.Errorf("the module does not need k8s.io/apimachinery: run \"go mod tidy\" in %s: %w", g.Module, err)
	}
	g.version = strings.TrimSpace(string(output))
	return nil
}

// generators returns the programs that generate code, and protoc-gen-gogo, which one of them runs.
func generators() []string {
	programs := []string{"k8s.io/kube-openapi/cmd/openapi-gen"}
	for _, name := range []string{
		"applyconfiguration-gen", "client-gen", "conversion-gen", "deepcopy-gen", "defaulter-gen", "go-to-protobuf",
		"go-to-protobuf/protoc-gen-gogo", "informer-gen", "lister-gen", "register-gen", "validation-gen",
	} {
		programs = append(programs, codeGenerator+"/cmd/"+name)
	}
	return programs
}

// installTools installs the generators in the user's cache, unless they are there. Their versions follow from the
// module: k8s.io/code-generator has the version of its Kubernetes libraries, and pins everything else in its go.mod.
func (g *generation) installTools(ctx context.Context) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("there is no directory for the generators, set XDG_CACHE_HOME: %w", err)
	}
	g.tools = filepath.Join(cache, "restaurant-apiserver", "generators-"+g.version)
	if _, err := os.Stat(g.tools); err == nil {
		return nil
	}
	g.progress(fmt.Sprintf("building the generators of Kubernetes %s, once, which takes minutes", g.version))
	err = os.MkdirAll(filepath.Dir(g.tools), 0o750)
	part := ""
	if err == nil {
		part, err = os.MkdirTemp(filepath.Dir(g.tools), "part-")
	}
	if err != nil {
		return fmt.Errorf("there is no directory for the generators, set XDG_CACHE_HOME to one that can be written to: %w", err)
	}
	defer func() { _ = os.RemoveAll(part) }()
	if err := g.installInto(ctx, part); err != nil {
		return err
	}
	// Another process may have been faster.
	if err := os.Rename(part, g.tools); err != nil && !os.IsExist(err) {
		return err
	}
	return nil
}

func (g *generation) installInto(ctx context.Context, dir string) error {
	source, err := g.download(ctx, dir, codeGenerator+"@"+g.version)
	if err != nil {
		return err
	}
	install := []string{"install", "-trimpath", "-ldflags=-s -w"}
	if _, err := g.outside(ctx, dir, source, slices.Concat(install, generators())...); err != nil {
		return err
	}
	pinned, err := g.outside(ctx, dir, source, "list", "-m", "-f={{.Version}}", "github.com/gogo/protobuf", "golang.org/x/tools")
	if err != nil {
		return err
	}
	gogoVersion, toolsVersion, _ := strings.Cut(strings.TrimSpace(string(pinned)), "\n")
	// The go.sum of code-generator lacks checksums to build goimports.
	if _, err := g.outside(ctx, dir, dir, append(install, "golang.org/x/tools/cmd/goimports@"+toolsVersion)...); err != nil {
		return err
	}
	messages, err := g.download(ctx, dir, "github.com/gogo/protobuf@"+gogoVersion)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(messages, "gogoproto", "gogo.proto"))
	if err != nil {
		return err
	}
	return ReplaceFile(filepath.Join(dir, filepath.FromSlash("github.com/gogo/protobuf/gogoproto/gogo.proto")), text)
}

// download returns the directory of a downloaded module.
func (g *generation) download(ctx context.Context, dir, module string) (string, error) {
	output, err := g.outside(ctx, dir, dir, "mod", "download", "-json", module)
	var files struct{ Dir, Error string }
	if json.Unmarshal(output, &files) == nil && files.Error != "" {
		err = fmt.Errorf("%s can't be downloaded: %s", module, files.Error)
	}
	return files.Dir, err
}

// outside runs a go command in a directory, without the module's flags and files. It installs programs in bin.
func (g *generation) outside(ctx context.Context, bin, dir string, args ...string) ([]byte, error) {
	command := g.newCommand(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(command.Env, "GOBIN="+bin, "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	output, err := g.output(command)
	if err != nil {
		err = fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return output, err
}

// capture returns the output of a go command in the module.
func (g *generation) capture(ctx context.Context, args ...string) ([]byte, error) {
	return g.output(g.newCommand(ctx, "go", args...))
}

// output returns the output of a command, and prints its messages.
func (g *generation) output(command *exec.Cmd) ([]byte, error) {
	var complaints bytes.Buffer
	command.Stderr = &complaints
	output, err := command.Output()
	g.print(complaints.Bytes())
	return output, err
}

// command runs a program in the module, and prints its output.
func (g *generation) command(ctx context.Context, name string, args ...string) error {
	output, err := g.newCommand(ctx, name, args...).CombinedOutput()
	g.print(output)
	return err
}

// newCommand returns a command in the module that finds the generators by name.
func (g *generation) newCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = g.Module
	path := []string{g.file(protoWork + "/bin"), g.tools, os.Getenv("PATH")}
	command.Env = append(os.Environ(), "PATH="+strings.Join(path, string(os.PathListSeparator)))
	return command
}
