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

// Package crd tests the other way to serve the restaurant's kinds: as custom
// resources, which the webhook of this repository converts, completes and judges.
package crd

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

var (
	// cp is the control plane that all tests share. No API server but kube-apiserver
	// runs in it.
	cp *controlplane.ControlPlane
	// webhook is what the tests share. Tests that stop it do not run in parallel, so
	// that they are over when those that do run.
	webhook *controlplane.Component
)

func TestMain(m *testing.M) {
	off := controlplane.ComponentConfig{Off: true}
	controlplane.Main(m, &cp, controlplane.Config{APIServer: controlplane.ServerConfig{ComponentConfig: off}, ControllerManager: off},
		install, createToppings)
}

// install installs the definitions and starts the webhook.
func install(ctx context.Context, cp *controlplane.ControlPlane) (err error) {
	webhook, err = framework.DefineRestaurant(ctx, cp, controlplane.ComponentConfig{})
	if err != nil || !framework.WithCRDServer() {
		return err
	}
	server, err := framework.StartCRDServer(ctx, cp, controlplane.ComponentConfig{}, restaurant.GroupName)
	if err != nil {
		return err
	}
	return framework.RegisterCRDServer(ctx, cp, server, restaurant.GroupName)
}

func createToppings(ctx context.Context, cp *controlplane.ControlPlane) error {
	config := cp.RESTConfig()
	// A custom resource has no protobuf, which the client would send.
	config.ContentType = runtime.ContentTypeJSON
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	return fixture.CreateToppings(ctx, client, "mozzarella", "tomato", "salami", "basil")
}
