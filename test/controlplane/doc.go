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

// Package controlplane starts a real Kubernetes control plane on this machine,
// without containers: etcd, kube-apiserver, kube-controller-manager and the
// API server of this repository, each a child process of its own, connected by
// certificates of a private PKI and registered as in a cluster. "make run" and
// all end-to-end tests stand on it.
//
//	cp, err := controlplane.Start(ctx, controlplane.Config{Dir: dir})
//	...
//	defer cp.Stop()
//	client, err := kubernetes.NewForConfig(cp.RESTConfig())
//
// Tests use Main (one control plane for a test binary) or ForTest (one for a
// test). Every process is a Component that can be stopped, killed and started
// again with other flags; every certificate authority is open to the caller, so
// that a test can be anybody, or forge anybody.
//
// All state lives in one directory. Starting again on the same directory continues
// where the last run left off, whatever way that run ended: files are replaced
// as a whole or not at all, certificates that are missing, damaged or about to
// expire are issued again, and processes that outlived their parent are ended.
//
// The package knows no API group. What it registers, under which identity, it
// reads from the deployment's manifests (see Config.Manifests).
//
// It runs on Linux and other Unix systems. Children follow a killed parent at
// once on Linux; elsewhere the next start on the same directory ends them.
package controlplane
