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

package admission

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDenial shows that a webhook of the cluster holds for every version, and says
// itself why it refuses.
func TestDenial(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			s := newScope(t)
			webhook := s.webhook(deny(http.StatusTeapot, "no pizza today"))
			s.registerValidating("denial", webhook.validating(rule(on("CREATE"), "pizzas")))

			_, err := s.pizzas(version).Create(t.Context(), s.pizza(version, "denied"), metav1.CreateOptions{})
			status := requireStatus(t, err, http.StatusTeapot, "")
			require.Equal(t, `admission webhook "validating.example.com" denied the request: no pizza today`, status.Message)
			require.Len(t, webhook.received(), 1)
		})
	}
}

// TestMutation shows that what a webhook makes of an object is what is stored.
func TestMutation(t *testing.T) {
	s := newScope(t)
	webhook := s.webhook(patch(`[{"op":"replace","path":"/spec/replicas","value":7}]`))
	s.registerMutating("mutation", webhook.mutating(rule(on("CREATE"), "pizzas")))

	created := s.createPizza("v1", "mutated")
	replicas, _, err := unstructured.NestedInt64(created.Object, "spec", "replicas")
	require.NoError(t, err)
	require.Equal(t, int64(7), replicas)
}
