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

package codegen_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

const plugin = "protoc-gen-gogo"

// TestMain lets this program be the plugin.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != plugin {
		os.Exit(m.Run())
	}
	if err := describe(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// describe answers a request with a file that lists the files of the request and the comments of
// the last one.
func describe(in io.Reader, out io.Writer) error {
	input, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	var request pluginpb.CodeGeneratorRequest
	if err := proto.Unmarshal(input, &request); err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	var description strings.Builder
	for _, file := range request.GetProtoFile() {
		fmt.Fprintln(&description, file.GetName())
	}
	last := request.GetProtoFile()[len(request.GetProtoFile())-1]
	for _, location := range last.GetSourceCodeInfo().GetLocation() {
		description.WriteString(location.GetLeadingComments())
	}
	for _, message := range last.GetMessageType() {
		for _, field := range message.GetField() {
			fmt.Fprintln(&description, field.GetTypeName(), field.GetJsonName())
		}
		if message.GetName() == "Refused" {
			response.Error = proto.String("it is refused")
		}
		if message.GetName() == "Broken" {
			return errors.New("it is broken")
		}
	}
	for _, name := range request.GetFileToGenerate() {
		response.File = append(response.File, &pluginpb.CodeGeneratorResponse_File{
			Name: proto.String(strings.TrimSuffix(name, "proto") + "pb.go"), Content: proto.String(description.String()),
		})
	}
	output, err := proto.Marshal(&response)
	if err != nil {
		return err
	}
	_, err = out.Write(output)
	return err
}

func TestCompile(t *testing.T) {
	bin := t.TempDir()
	program, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(program, filepath.Join(bin, plugin)))
	t.Setenv("PATH", bin)

	for name, test := range map[string]struct {
		text, want, err, output string
	}{
		"imports come first": {
			text: "syntax = \"proto2\";\npackage bakery;\nimport \"example.com/flour/generated.proto\";\nimport \"google/protobuf/descriptor.proto\";\n" +
				"// Bread is baked.\nmessage Bread { optional flour.Flour flour_used = 1; }\n",
			want: "example.com/flour/generated.proto\ngoogle/protobuf/descriptor.proto\nexample.com/bakery/generated.proto\n Bread is baked.\n.flour.Flour flourUsed\n",
		},
		"the plugin refuses it": {text: "syntax = \"proto2\";\nmessage Refused {}\n", err: "it is refused"},
		"the plugin fails": {
			text: "syntax = \"proto2\";\nmessage Broken {}\n",
			err:  "running protoc-gen-gogo: exit status 1", output: "it is broken\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) string {
				file := filepath.Join(dir, "example.com", name, "generated.proto")
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
				require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
				return file
			}
			write("flour", "syntax = \"proto2\";\npackage flour;\nmessage Flour {}\n")
			file := write("bakery", test.text)
			var output strings.Builder
			err := codegen.Compile(t.Context(), []string{".", dir}, dir, file, &output)
			require.Equal(t, test.output, output.String())
			generated := filepath.Join(dir, "example.com", "bakery", "generated.pb.go")
			if test.err != "" {
				require.EqualError(t, err, strings.ReplaceAll(test.err, "DIR", dir))
				require.NoFileExists(t, generated)
				return
			}
			require.NoError(t, err)
			got, err := os.ReadFile(generated)
			require.NoError(t, err)
			require.Equal(t, test.want, string(got))
		})
	}

	require.EqualError(t, codegen.Compile(t.Context(), []string{".", "/import"}, "/out", "/elsewhere/generated.proto", io.Discard),
		"/elsewhere/generated.proto is in none of the directories ., /import")
}
