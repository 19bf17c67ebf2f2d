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

package operations

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// replicas are two servers of one etcd, the second with these flags.
func replicas(t *testing.T, flags ...string) (one, two *controlplane.Component) {
	t.Helper()
	two = framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Flags: flags}})
	require.NoError(t, two.Start(t.Context()))
	return cp.APIServer, two
}

func pizzaWith(name, topping string) *restaurantv1.Pizza {
	pizza := framework.Pizza(name)
	pizza.Spec.Toppings[0].Name = topping
	return pizza
}

// Each replica knows a topping and a pizza of a moment ago.
func TestReplicasAgreeOnToppings(t *testing.T) {
	framework.Long(t, "two replicas are started")
	t.Parallel()
	one, two := replicas(t)
	first, second := framework.ClientAt(t, cp, one).RestaurantV1(), framework.ClientAt(t, cp, two).RestaurantV1()
	for i := range 100 {
		name := fmt.Sprintf("agreed-%d", i)
		require.NoError(t, fixture.CreateToppings(t.Context(), framework.ClientAt(t, cp, one), name))
		_, err := second.Pizzas("default").Create(t.Context(), pizzaWith(name, name), metav1.CreateOptions{})
		require.NoError(t, err, "The topping is not known yet.")
		err = first.Toppings().Delete(t.Context(), name, metav1.DeleteOptions{})
		require.EqualError(t, err, fmt.Sprintf("toppings.restaurant.programming-kubernetes.info %q is forbidden: it is on the pizza default/%s", name, name))
		require.NoError(t, second.Pizzas("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
		require.NoError(t, first.Toppings().Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

func TestPluginsAreTurnedOff(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags("--disable-admission-plugins=PizzaToppings,ToppingInUse,NamespaceLifecycle"))
	require.NoError(t, server.Start(t.Context()))
	pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("no-such-namespace")
	_, err := pizzas.Create(t.Context(), pizzaWith("a", "tar"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pizzas.Create(t.Context(), &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	require.EqualError(t, err, `Pizza.restaurant.programming-kubernetes.info "b" is invalid: spec.toppings: Required value`)
}
