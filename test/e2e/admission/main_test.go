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

// Package admission tests that the cluster's webhooks, policies and quotas hold for
// the restaurant's objects as they do for the cluster's own.
package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// cp is the control plane that all tests share. Tests run side by side: a webhook
// or policy of a test applies to objects with the test's label, or in its
// namespace, only.
var cp *controlplane.ControlPlane

// auditLog is a file in the directory of the server.
const auditLog = "audit.log"

func TestMain(m *testing.M) {
	// Components run in directories of their own.
	auditPolicy, err := filepath.Abs("testdata/audit-policy.yaml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var config controlplane.Config
	config.KubeAPIServer.Flags = framework.ServeMutatingPolicies()
	// Controllers would change the objects of tests: they have tests of their own.
	config.APIServer.Flags = []string{"--audit-policy-file=" + auditPolicy, "--audit-log-path=" + auditLog, "--run-controllers=false"}
	controlplane.Main(m, &cp, config, fixture.Toppings("mozzarella", "tomato", "salami", "basil"))
}
