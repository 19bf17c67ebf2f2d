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

// Command codegen generates the code of all API groups of a module. hack/update-codegen.sh
// runs it with the tools that this repository pins.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"restaurant.programming-kubernetes.info/apiserver/pkg/codegen"
)

func main() {
	config := codegen.Config{Output: os.Stderr}
	flag.StringVar(&config.Module, "module", ".", "directory of the go.mod")
	flag.StringVar(&config.Tools, "tools", "", "directory with the generators")
	flag.StringVar(&config.Gogo, "gogo", "", "directory of the module github.com/gogo/protobuf")
	flag.StringVar(&config.Header, "header", "", "file with what all generated files begin with")
	flag.Parse()
	if err := codegen.Generate(context.Background(), config); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
