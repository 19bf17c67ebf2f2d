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

package testing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	apiservertesting "restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
)

// A test of a whole server in its own process.
func ExampleStartTestServer() {
	_ = func(t *testing.T) {
		server := apiservertesting.StartTestServer(t, apiservertesting.Config{
			Groups: []registry.Group{workshop.Group()},
			Flags:  []string{"--storage-media-type=application/json"},
		})
		client, err := dynamic.NewForConfig(server.UserConfig(t, "reader"))
		require.NoError(t, err)
		machines := schema.GroupVersionResource{Group: "workshop.example.com", Version: "v1", Resource: "machines"}
		_, err = client.Resource(machines).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	}
}
