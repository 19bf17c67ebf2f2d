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

package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// cp is the control plane of all tests of the package.
var cp *controlplane.ControlPlane

// A control plane for all tests of a package: the whole of its TestMain. The server is
// cmd/apiserver of the module, and artifacts/deploy/base registers it.
func ExampleMain() {
	TestMain := func(m *testing.M) {
		controlplane.Main(m, &cp, controlplane.Config{Progress: func(message string) { fmt.Println(message) }})
	}
	_ = TestMain
}

// A control plane for one test. The server, which serves the groups of the test, runs in the
// test's own process.
func ExampleForTest() {
	var groups []registry.Group // Those to test.
	TestBread := func(t *testing.T) {
		config := controlplane.Config{
			Manifests: "../../artifacts/deploy/base",
			Timeouts:  controlplane.Timeouts{Ready: 10 * time.Minute},
		}
		config.APIServer.Run = func(ctx context.Context, flags []string) error {
			cmd := server.NewCommand(ctx, "apiserver", groups...)
			cmd.SetArgs(flags)
			return cmd.ExecuteContext(ctx)
		}
		cp := controlplane.ForTest(t, config)

		// A baker with the permissions that RBAC grants.
		baker, err := cp.RESTConfigFor("baker", "bakers")
		require.NoError(t, err)
		_, err = kubernetes.NewForConfigOrDie(baker).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		require.Error(t, err, "a baker can list pods")
		// The administrator.
		output, err := cp.Kubectl(t.Context(), "apply", "--filename=testdata/bread.yaml").CombinedOutput()
		require.NoError(t, err, "%s", output)
	}
	_ = TestBread
}

// A control plane outside of tests, until Ctrl-C, on a directory that keeps its data.
func ExampleStart() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.Config{Dir: "_output/local"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("export KUBECONFIG=" + cp.Kubeconfig())
	if err := errors.Join(cp.Wait(ctx), cp.Stop()); err != nil {
		fmt.Println(err)
	}
}

// Definitions, objects and webhooks of a test. The manifest of the webhook needs the URL and
// the certificate authority.
func ExampleControlPlane_ServeHTTPS() {
	TestWebhook := func(t *testing.T) {
		url, err := cp.ServeHTTPS(http.NotFoundHandler())
		require.NoError(t, err)
		t.Logf("clientConfig: {url: %s/validate, caBundle: %s}", url, cp.PKI.ServingCA.CertPEM())
		require.NoError(t, cp.Apply(t.Context(), "testdata/definitions", "testdata/webhook.yaml"))
	}
	_ = TestWebhook
}
