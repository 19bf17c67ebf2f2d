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

// Package doctor tests what the doctor finds in a cluster, and in what way it says so.
package doctor

import (
	"testing"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// cp is the control plane that all tests share. Its own server stores objects in an
// etcd of its own.
var cp *controlplane.ControlPlane

func TestMain(m *testing.M) {
	controlplane.Main(m, &cp, controlplane.Config{
		APIServer:         controlplane.ServerConfig{Etcd: "storage"},
		ControllerManager: controlplane.ComponentConfig{Off: true},
	}, fixture.Toppings("tomato"))
}
