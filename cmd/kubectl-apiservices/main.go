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

// The plugin "kubectl apiservices" says what is wrong with the APIServices of a cluster. Called as
// kubectl_complete-apiservices, it completes their names.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/doctor"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command := doctor.NewPlugin()
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl_complete-") {
		command.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	err := command.ExecuteContext(ctx)
	cancel()
	if err != nil {
		os.Exit(1)
	}
}
