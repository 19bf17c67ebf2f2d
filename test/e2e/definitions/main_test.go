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

// Package definitions serves the CustomResourceDefinitions of projects that many clusters have
// by the server of custom resources, and compares its answers with kube-apiserver's.
package definitions

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

var (
	cp     *controlplane.ControlPlane
	server *controlplane.Component
)

func TestMain(m *testing.M) {
	framework.LongPackage("the definitions of other projects are served, and their objects compared")
	off := controlplane.ComponentConfig{Off: true}
	controlplane.Main(m, &cp, controlplane.Config{APIServer: controlplane.ServerConfig{ComponentConfig: off}},
		func(ctx context.Context, cp *controlplane.ControlPlane) (err error) {
			if err := framework.InstallCRDServer(ctx, cp); err != nil {
				return err
			}
			if server, err = framework.NewCRDServer(cp, "crd-apiserver", groups()); err != nil {
				return err
			}
			return server.Start(ctx)
		})
}

// client is an administrator's client of a server, or of kube-apiserver.
func client(t *testing.T, host string) rest.Interface {
	t.Helper()
	config := framework.Config(cp)
	if host != "" {
		config.Host = host
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return kube.Discovery().RESTClient()
}
