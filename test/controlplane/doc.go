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
// containers, for the tests of an API server: etcd, kube-apiserver, kube-controller-manager
// and the server, each a child process of its own, connected by certificates of a private
// PKI and registered as in a cluster. It is to the aggregation layer what envtest is to
// custom resources, and can be imported from any module.
//
//	func TestBread(t *testing.T) {
//		cp := controlplane.ForTest(t, controlplane.Config{})
//		client, err := kubernetes.NewForConfig(cp.RESTConfig())
//		...
//	}
//
// It needs Go and nothing else. The programs of Kubernetes are built from source, see
// package binaries: some minutes the first time, nothing after that. Config.KubernetesVersion,
// or the environment variable CONTROLPLANE_KUBERNETES_VERSION, chooses another release, so that
// the same tests run with Kubernetes 1.34 to 1.37. The server is built
// from the module of the test. Where these defaults do not fit, Config names programs,
// packages, manifests, ports, flags and timeouts, or a function that runs the server in the
// process of the test.
//
// What it expects of a module, unless it is told otherwise:
//
//	cmd/apiserver           the main package of the server
//	artifacts/deploy/base   a kustomization of the Service, the ServiceAccount, the
//	                        APIServices and the roles by which it is registered
//
// The server runs as its ServiceAccount, so that a test shows whether the roles grant what
// it needs. It is given the flags --secure-port, --bind-address, --kubeconfig,
// --tls-cert-file, --tls-private-key-file, and --data-dir or those of an etcd.
//
// Tests use Main (one control plane for a test binary) or ForTest (one for a test); "make
// run" is command local. RESTConfigFor, RESTConfigForServiceAccount and KubeconfigFor make a
// client of any user, and Kubectl runs kubectl. Apply installs manifests, definitions and
// webhook configurations, and ServeHTTPS serves webhooks from the test. Every process is a
// Component that can be stopped, killed and started again with other flags; every
// certificate authority is open to the caller, so that a test can be anybody, or forge
// anybody.
//
// While one test is being written, it need not start a control plane each time: with the
// environment variable CONTROLPLANE_ATTACH, it uses that of "make run", and starts the server
// only.
//
// All state lives in one directory, for tests a temporary one. Starting again on the same
// directory continues where the last run left off, whatever way that run ended: files are
// replaced as a whole or not at all, certificates that are missing, damaged or about to
// expire are issued again, and processes that outlived their parent are ended. Control
// planes that run side by side, in one process or in several, have directories and ports of
// their own.
//
// The package knows no API group. What it registers, under which identity, it
// reads from the deployment's manifests (see Config.Manifests).
//
// It runs on Linux and other Unix systems. Children follow a killed parent at
// once on Linux; elsewhere the next start on the same directory ends them.
package controlplane
