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

package framework

import (
	"fmt"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane/binaries"
)

// Minor returns the minor version of the Kubernetes that the tests run with: 34 for 1.34. Tests
// need it where supported releases differ.
func Minor() (minor int) {
	release, err := binaries.Options{}.Release()
	if err == nil {
		_, err = fmt.Sscanf(release, "v1.%d.", &minor)
	}
	if err != nil {
		panic(err)
	}
	return minor
}

// MutatingPolicyVersion returns the version that kube-apiserver serves MutatingAdmissionPolicies
// in. Before Kubernetes 1.36, that needs ServeMutatingPolicies.
func MutatingPolicyVersion() string {
	if Minor() < 36 {
		return "v1beta1"
	}
	return "v1"
}

// ServeMutatingPolicies returns flags that make kube-apiserver serve and enforce
// MutatingAdmissionPolicies.
func ServeMutatingPolicies() []string {
	if MutatingPolicyVersion() == "v1" {
		return nil
	}
	return []string{"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true"}
}
