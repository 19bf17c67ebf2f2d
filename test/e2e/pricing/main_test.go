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

// Package pricing tests the controller that keeps the status of pizzas, as users see
// it. It also tests the loss of the replica that runs it.
package pricing

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// cp is the control plane that all tests share.
var cp *controlplane.ControlPlane

// leaseDuration is short, so that a lost leader is soon replaced, but so long that a
// busy one keeps it.
const leaseDuration = 12 * time.Second

// serverFlags are the flags of every replica. Toppings of a pizza can be missing, since
// that is one of the things the controller has to deal with.
var serverFlags = []string{
	"--disable-admission-plugins=PizzaToppings,ToppingInUse",
	"--leader-elect-lease-duration=" + leaseDuration.String(),
	"--leader-elect-renew-deadline=10s",
	"--leader-elect-retry-period=500ms",
}

func TestMain(m *testing.M) {
	controlplane.Main(m, &cp, controlplane.Config{APIServer: replica()})
}

// replica stores its objects where all replicas do.
func replica() controlplane.ServerConfig {
	return controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Flags: serverFlags}}
}

func restaurantClient() typed.RestaurantV1Interface {
	return framework.Restaurant(cp).RestaurantV1()
}

// topping creates a topping of the test and returns its name.
func topping(t *testing.T, cost string) string {
	t.Helper()
	toppings := restaurantClient().Toppings()
	created, err := toppings.Create(t.Context(), &restaurantv1.Topping{
		ObjectMeta: metav1.ObjectMeta{Name: "topping-" + rand.String(8)},
		Spec:       restaurantv1.ToppingSpec{Cost: ptr.To(resource.MustParse(cost))},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		err := toppings.Delete(context.WithoutCancel(t.Context()), created.Name, metav1.DeleteOptions{})
		require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	})
	return created.Name
}

// setCost changes the price of a topping.
func setCost(t *testing.T, name, cost string) {
	t.Helper()
	toppings := restaurantClient().Toppings()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		topping, err := toppings.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		topping.Spec.Cost = ptr.To(resource.MustParse(cost))
		_, err = toppings.Update(t.Context(), topping, metav1.UpdateOptions{})
		return err
	}))
}

// pizza creates a pizza with two replicas, and one of each topping.
func pizza(t *testing.T, ns, name string, toppings ...string) *restaurantv1.Pizza {
	t.Helper()
	pizza := &restaurantv1.Pizza{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: restaurantv1.PizzaSpec{Replicas: ptr.To[int32](2)}}
	for _, topping := range toppings {
		pizza.Spec.Toppings = append(pizza.Spec.Toppings, restaurantv1.PizzaTopping{Name: topping})
	}
	created, err := restaurantClient().Pizzas(ns).Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// awaitPizza waits until a pizza is as it should be.
func awaitPizza(t *testing.T, ns, name string, check func(*restaurantv1.Pizza) error) *restaurantv1.Pizza {
	t.Helper()
	var pizza *restaurantv1.Pizza
	controlplane.Eventually(t, func() (err error) {
		if pizza, err = restaurantClient().Pizzas(ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(pizza)
	})
	return pizza
}

// costs is a check that a pizza has this price.
func costs(cost string) func(*restaurantv1.Pizza) error {
	return func(p *restaurantv1.Pizza) error {
		if p.Status.Cost == nil || p.Status.Cost.String() != cost {
			return fmt.Errorf("%s costs %s instead of %s", p.Name, p.Status.Cost, cost)
		}
		return nil
	}
}
