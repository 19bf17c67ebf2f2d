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
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

// Protoc is the program that go-to-protobuf calls to compile messages. Generate links it to
// the running program, which then has to call Compile.
const Protoc = "protoc"

// Compile translates a file of messages to Go, below the directory out, with the plugin
// protoc-gen-gogo. The file and its imports are below the directories of imports. The plugin's
// errors go to output.
func Compile(ctx context.Context, imports []string, out, file string, output io.Writer) error {
	name, err := importName(imports, file)
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: imports}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, name)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{name}}
	added := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if added[file.Path()] {
			return
		}
		added[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i))
		}
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(file))
	}
	add(compiled[0])
	response, err := translate(ctx, request, output)
	if err != nil {
		return err
	}
	for _, file := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(out, filepath.FromSlash(file.GetName())), []byte(file.GetContent()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// importName returns the path of a file in imports.
func importName(imports []string, file string) (string, error) {
	for _, dir := range imports {
		if name, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(name) {
			return filepath.ToSlash(name), nil
		}
	}
	return "", fmt.Errorf("%s is in none of the directories %s", file, strings.Join(imports, ", "))
}

// translate runs the plugin.
func translate(ctx context.Context, request *pluginpb.CodeGeneratorRequest, errOutput io.Writer) (*pluginpb.CodeGeneratorResponse, error) {
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "protoc-gen-gogo")
	command.Stdin, command.Stderr = bytes.NewReader(input), errOutput
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("running protoc-gen-gogo: %w", err)
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(output, response); err != nil {
		return nil, fmt.Errorf("the answer of protoc-gen-gogo: %w", err)
	}
	if response.GetError() != "" {
		return nil, errors.New(response.GetError())
	}
	return response, nil
}
