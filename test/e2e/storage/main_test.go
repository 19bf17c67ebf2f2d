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

// Package storage tests what becomes of the data: while etcd is unavailable, when a
// server is killed, in snapshots, and encrypted.
package storage

import (
	"os"
	"testing"
	"time"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// cp is the control plane that all tests share. Its own server stores objects in an
// etcd of its own. Tests that stop anything in it do not run in parallel, so that they
// are over when those that do run.
var cp *controlplane.ControlPlane

// requestTimeout is how long the shared server may take for a request.
const requestTimeout = 30 * time.Second

func TestMain(m *testing.M) {
	if storageVersion := os.Getenv(storageVersionVariable); storageVersion != "" {
		os.Exit(serve(storageVersion))
	}
	controlplane.Main(m, &cp, controlplane.Config{
		APIServer: controlplane.ServerConfig{
			Etcd: "storage",
			// A request that cannot be answered is not to take a minute.
			ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--request-timeout=" + requestTimeout.String()}},
		},
		ControllerManager: controlplane.ComponentConfig{Off: true},
	}, fixture.Toppings("tomato"))
}
