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

// The conformance command examines an API: see pkg/conformance.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/conformance"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "interrupted: what the run has created is being deleted; a second signal leaves it to --clean")
		cancel() // A second signal ends the process.
	})
	os.Exit(conformance.ExitCode(conformance.NewCommand("conformance").ExecuteContext(ctx)))
}
