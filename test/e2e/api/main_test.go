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

// Package api tests what users get: the API through a real kube-apiserver, with
// the clients they have.
package api

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"restaurant.programming-kubernetes.info/apiserver/test/bastion"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// cp is the control plane that all tests share. With E2E_BASTION=true only SSH reaches it,
// see package bastion. "make nightly SUITE=remote" then runs the tests of what users do with kubectl and clients
// in Go. The others are about the server itself, or talk to it without the clients that know the way.
//
// None may stop or break any of its components. A test that has to starts a control
// plane of its own with controlplane.ForTest.
var cp *controlplane.ControlPlane

// etcdServers names the variable with the address of an etcd that the server uses instead of its
// own. It has no transactions: see hack/with-kine.sh.
const etcdServers = "E2E_ETCD_SERVERS"

func TestMain(m *testing.M) {
	// Components run in directories of their own.
	auditPolicy, err := filepath.Abs("testdata/audit-policy.yaml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var config controlplane.Config
	preparations := []controlplane.Preparation{fixture.Toppings("mozzarella", "tomato", "salami", "basil"), framework.LookServed}
	if os.Getenv("E2E_BASTION") == "true" {
		network, err := bastion.New()
		if bastion.Unable(err) {
			fmt.Println("Skipped:", err)
			os.Exit(0)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		network.Configure(&config)
		preparations = append([]controlplane.Preparation{network.Open}, preparations...)
	}
	// Controllers would change the objects of tests: they have tests of their own.
	config.APIServer.Flags = []string{"--audit-policy-file=" + auditPolicy, "--audit-log-path=" + framework.AuditLog, "--run-controllers=false"}
	if servers := os.Getenv(etcdServers); servers != "" {
		config.APIServer.Flags = append(config.APIServer.Flags, "--etcd-servers="+servers, "--etcd-transactions=false")
	}
	controlplane.Main(m, &cp, config, preparations...)
}
