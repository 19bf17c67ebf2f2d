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

// Package controlplane starts a real Kubernetes control plane on this machine, without
// containers, for the tests of an API server. It runs etcd, kube-apiserver,
// kube-controller-manager and the server as child processes. They have certificates of a
// private PKI, and are registered as in a cluster. For the aggregation layer it is like
// envtest for custom resources. Any module can import it.
//
//	func TestBread(t *testing.T) {
//		cp := controlplane.ForTest(t, controlplane.Config{})
//		client, err := kubernetes.NewForConfig(cp.RESTConfig())
//		...
//	}
//
// It needs only Go. The programs of Kubernetes are built from source, which takes some
// minutes the first time: see package binaries. Config.KubernetesVersion, or the environment
// variable CONTROLPLANE_KUBERNETES_VERSION, chooses another release. So the same tests run
// with Kubernetes 1.34 to 1.37. The server is built from the module of the test. Config can
// replace these defaults: programs, packages, manifests, ports, flags and timeouts. It can
// also run the server in the process of the test.
//
// By default, it expects these directories in a module:
//
//	cmd/apiserver           the main package of the server
//	artifacts/deploy/base   a kustomization of the Service, the ServiceAccount, the
//	                        APIServices and the roles of the server
//
// The server runs as its ServiceAccount, so that tests fail if the roles grant too little.
// Its flags are --secure-port, --bind-address, --kubeconfig, --tls-cert-file,
// --tls-private-key-file, and --data-dir or an etcd's.
//
// Tests use Main (one control plane for a test binary) or ForTest (one for a test). "make
// run" is command local. RESTConfigFor, RESTConfigForServiceAccount and KubeconfigFor make
// clients of any user, and Kubectl runs kubectl. Apply installs manifests, definitions and
// webhook configurations, and ServeHTTPS serves webhooks from the test. Every process is a
// Component that can be stopped, killed and started again with other flags. The caller has
// every certificate authority, so that a test can have any identity, or a forged one.
//
// A test that is being written need not start a control plane each time. With the
// environment variable CONTROLPLANE_ATTACH, it uses the control plane of "make run", and starts only the
// server.
//
// All state is in one directory, for tests a temporary one. Starting again on the same
// directory continues where the last run ended, whatever way it ended. Files are replaced as
// a whole or not at all. Certificates that are missing, damaged or about to expire are
// issued again. Processes that outlived their parent are ended. Control planes that run side
// by side have their own directories and ports.
//
// The package knows no API group. It reads the objects to register, and the server's
// identity, from the deployment's manifests (see Config.Manifests).
//
// It runs on Linux and other Unix systems. On Linux, children of a killed parent end at
// once. Elsewhere the next start on the same directory ends them.
package controlplane
