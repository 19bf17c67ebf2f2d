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

package api

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// What is baked is tested in pkg/registry/restaurant. Here are the clients of users: the generated ones speak protobuf.
func TestBake(t *testing.T) {
	t.Parallel()
	pizzas := framework.Restaurant(cp).RestaurantV1().Pizzas(framework.Namespace(t, cp))
	pizza := framework.Pizza("margherita")
	pizza.Spec.Replicas = new(int32(5))
	_, err := pizzas.Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, order := range []struct {
		count *int32
		want  int32
	}{{new(int32(2)), 2}, {nil, 1}, {new(int32(9)), 2}} {
		answer, err := pizzas.Bake(t.Context(), "margherita", &restaurantv1.Bake{Spec: restaurantv1.BakeSpec{Count: order.count}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, order.want, answer.Status.Baked)
	}
	_, err = pizzas.Bake(t.Context(), "margherita", &restaurantv1.Bake{}, metav1.CreateOptions{})
	framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
}

// bakePath is where the margherita of newKubectl is baked.
func bakePath(k kubectl) string {
	return path.Join("/apis", restaurant.GroupName, "v1/namespaces", k.namespace, "pizzas/margherita/bake")
}

func TestKubectlBake(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	for _, want := range []string{`"baked":2`, `"baked":1`} {
		require.Contains(t, k.okWith(t, `{"spec":{"count":2}}`, "create", "--raw", bakePath(k), "--filename=-"), want)
	}
	require.Equal(t, answer{
		stderr: "Error from server (Conflict): Operation cannot be fulfilled on pizzas/bake." + restaurant.GroupName + ` "margherita": 3 of 3 pizzas are baked already` + "\n", code: 1,
	}, k.run(t, "{}", "create", "--raw", bakePath(k), "--filename=-"))
}
