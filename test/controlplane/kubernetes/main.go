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

// Command kubernetes builds etcd and programs of Kubernetes, in the versions that this module is
// made for, and prints the directory that has them:
//
//	go run ./test/controlplane/kubernetes kube-apiserver etcd
//
// Programs in the user's cache are not built again, so that all checkouts on a machine share
// them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	dir, err := binaries.Kubernetes(ctx, binaries.Options{
		Version: binaries.Version(), Progress: func(message string) { fmt.Fprintln(os.Stderr, message) },
	}, os.Args[1:]...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
