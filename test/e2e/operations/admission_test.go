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
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

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

// A topping can vanish while it is on a pizza, if nobody looks. The pizza can still
// be changed otherwise.
func TestPizzaOutlivesItsTopping(t *testing.T) {
	t.Parallel()
	one, careless := replicas(t, "--disable-admission-plugins=ToppingInUse")
	require.NoError(t, fixture.CreateToppings(t.Context(), framework.ClientAt(t, cp, one), "vanishing"))
	pizzas := framework.ClientAt(t, cp, one).RestaurantV1().Pizzas("default")
	orphan := pizzaWith("orphan", "vanishing")
	orphan.Spec.Toppings = append(orphan.Spec.Toppings, restaurantv1.PizzaTopping{Name: "tomato"})
	_, err := pizzas.Create(t.Context(), orphan, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, framework.ClientAt(t, cp, careless).RestaurantV1().Toppings().Delete(t.Context(), "vanishing", metav1.DeleteOptions{}))
	missing := func(err error) {
		t.Helper()
		require.EqualError(t, err, `Pizza.restaurant.programming-kubernetes.info "orphan" is invalid: spec.toppings[vanishing]: Not found: "vanishing"`)
	}
	patch := func(patch string) error {
		_, err := pizzas.Patch(t.Context(), "orphan", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}

	// The server may remember the topping for a moment.
	controlplane.Eventually(t, func() error {
		if _, err := pizzas.Create(t.Context(), pizzaWith("another", "vanishing"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsInvalid(err) {
			return fmt.Errorf("the topping is still put on pizzas: %w", err)
		}
		return nil
	})
	require.NoError(t, patch(`{"metadata":{"labels":{"a":"b"}}}`))
	require.NoError(t, patch(`{"spec":{"replicas":2}}`))
	require.NoError(t, patch(`{"spec":{"toppings":[{"name":"vanishing","quantity":2}]}}`))
	require.NoError(t, framework.ClientAt(t, cp, one).RestaurantV1().RESTClient().Patch(types.MergePatchType).Namespace("default").Resource("pizzas").Name("orphan").
		SubResource("scale").Body([]byte(`{"spec":{"replicas":3}}`)).Do(t.Context()).Error())
	require.NoError(t, patch(`{"spec":{"toppings":[{"name":"tomato"}]}}`))
	missing(patch(`{"spec":{"toppings":[{"name":"vanishing"}]}}`))
	require.NoError(t, pizzas.Delete(t.Context(), "orphan", metav1.DeleteOptions{}))
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

// limitedResources lets nobody have pizzas without a quota.
const limitedResources = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - apiGroup: restaurant.programming-kubernetes.info
      resource: pizzas
      matchContains: [pizzas]
`

func TestAdmissionIsConfigured(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	require.NoError(t, os.WriteFile(file, []byte(limitedResources), 0o600))
	server := framework.NewServer(t, cp, framework.Flags("--admission-control-config-file="+file))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	cluster := kubernetes.NewForConfigOrDie(cp.RESTConfig())
	_, err := cluster.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "limited"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	const count = "count/pizzas.restaurant.programming-kubernetes.info"
	pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("limited")
	_, err = pizzas.Create(t.Context(), framework.Pizza("a"), metav1.CreateOptions{})
	require.EqualError(t, err, `pizzas.restaurant.programming-kubernetes.info "a" is forbidden: insufficient quota to consume: `+count)
	require.True(t, apierrors.IsForbidden(err))

	// No controller runs here that would count.
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "menu"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{count: apiresource.MustParse("1")}}}
	quota, err = cluster.CoreV1().ResourceQuotas("limited").Create(t.Context(), quota, metav1.CreateOptions{})
	require.NoError(t, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{count: apiresource.MustParse("0")}}
	_, err = cluster.CoreV1().ResourceQuotas("limited").UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		_, err := pizzas.Create(t.Context(), framework.Pizza("a"), metav1.CreateOptions{})
		return err
	})
	_, err = pizzas.Create(t.Context(), framework.Pizza("b"), metav1.CreateOptions{})
	require.EqualError(t, err, fmt.Sprintf(`pizzas.restaurant.programming-kubernetes.info "b" is forbidden: exceeded quota: menu, requested: %[1]s=1, used: %[1]s=1, limited: %[1]s=1`, count))
}
