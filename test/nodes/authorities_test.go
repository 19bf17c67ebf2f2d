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

package nodes

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// testServingCA replaces the certificate authority of the servers.
func (o *operations) testServingCA(t *testing.T) {
	const caBundle = "kubectl get apiservice v1.restaurant.programming-kubernetes.info --output=jsonpath='{.spec.caBundle}'"
	before := o.Run(t, caBundle)
	o.follow(t, "Certificates", "kubectl patch secret")
	controlplane.Eventually(t, func() error {
		if o.Run(t, caBundle) == before {
			return errors.New("the APIService trusts the old certificate authority")
		}
		return nil
	})
	o.awaitCalm(t)
}

// testEtcdCA replaces the certificate authority of etcd and its clients.
func (o *operations) testEtcdCA(t *testing.T) {
	const ca = "kubectl get secret --namespace restaurant-system etcd-server --output=jsonpath='{.data.ca\\.crt}'"
	before := o.Run(t, ca)
	o.follow(t, "Certificates", "SERVER=")
	o.rolledOut(t)
	require.NotEqual(t, before, o.Run(t, ca))
	o.awaitCalm(t)
	o.asUser(t, "kubectl get pizza margherita")
}
