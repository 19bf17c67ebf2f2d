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

// Package customresources tests the server of custom resources, with a real kube-apiserver
// in front of it. test/e2e/crd tests it, too, with the restaurant's definitions, if
// E2E_CRD_APISERVER is set.
package customresources

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

var (
	// cp is the control plane that all tests share, with the server of custom resources
	// instead of the repository's other server.
	cp     *controlplane.ControlPlane
	server *controlplane.Component
)

func TestMain(m *testing.M) {
	off := controlplane.ComponentConfig{Off: true}
	controlplane.Main(m, &cp, controlplane.Config{APIServer: controlplane.ServerConfig{ComponentConfig: off}},
		func(ctx context.Context, cp *controlplane.ControlPlane) (err error) {
			server, err = framework.StartCRDServer(ctx, cp, controlplane.ComponentConfig{}, groups()...)
			return err
		})
}

// apply applies manifests as a user would.
func apply(t *testing.T, content []byte) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		cmd := cp.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "--filename=-")
		cmd.Stdin = bytes.NewReader(content)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl apply: %w: %s", err, output)
		}
		return nil
	})
}
