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

package storage

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// pairs is how often a topping is used and deleted at the same time.
func pairs(t *testing.T) int {
	t.Helper()
	text, ok := os.LookupEnv("PAIRS")
	if !ok {
		return 400
	}
	pairs, err := strconv.Atoi(text)
	require.NoError(t, err, "PAIRS must be a number")
	return pairs
}

// A topping is put on a pizza through one replica, and deleted through another one at the same
// time. Exactly one of the two succeeds, whatever way each is done.
func TestToppingsAreUsedOrDeleted(t *testing.T) {
	framework.Long(t, "many pairs of requests")
	t.Parallel()
	second := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "storage"})
	require.NoError(t, second.Start(t.Context()))
	replicas := []typed.RestaurantV1Interface{framework.ClientAt(t, cp, cp.APIServer).RestaurantV1(), framework.ClientAt(t, cp, second).RestaurantV1()}
	namespace := framework.Namespace(t, cp)

	const workers = 8
	total := pairs(t)
	var all sync.WaitGroup
	results := make([]pairResults, workers)
	for worker := range workers {
		all.Go(func() {
			for i := worker; i < total && !t.Failed(); i += workers {
				results[worker].race(t, pair{replicas[i%2], replicas[(i/2)%2], namespace, i})
			}
		})
	}
	all.Wait()
	var sum pairResults
	for _, result := range results {
		sum.used += result.used
		sum.deleted += result.deleted
	}
	t.Logf("%d toppings were used, %d deleted", sum.used, sum.deleted)
	require.Equal(t, total, sum.used+sum.deleted)
	// Else the two have not been at the same time.
	require.NotZero(t, sum.used)
	require.NotZero(t, sum.deleted)
	requireNoUses(t)
}

// requireNoUses requires that nothing is left of the uses of toppings that were deleted.
func requireNoUses(t *testing.T) {
	t.Helper()
	etcd := framework.EtcdClient(t, cp, cp.Component("storage"))
	response, err := etcd.Get(t.Context(), "/registry/uses/restaurant.programming-kubernetes.info/toppings/pair-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.Empty(t, response.Kvs)
}

// pair is a use and a deletion of one topping.
type pair struct {
	user, deleter typed.RestaurantV1Interface
	namespace     string
	number        int
}

func (p pair) name() string { return fmt.Sprintf("pair-%d", p.number) }

type pairResults struct{ used, deleted int }

func (r *pairResults) race(t *testing.T, p pair) {
	t.Helper()
	ctx := t.Context()
	topping := &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: p.name()}, Spec: restaurantv1.ToppingSpec{Cost: ptr.To(resource.MustParse("1"))}}
	_, err := p.user.Toppings().Create(ctx, topping, metav1.CreateOptions{})
	noError(t, err)
	use, pizza := p.use(t)
	var used, deleted error
	var both sync.WaitGroup
	start := make(chan struct{})
	// A deletion looks for pizzas first, so a use that begins with it usually wins.
	lead := time.Duration(p.number%16) * time.Millisecond / 2
	both.Go(func() { <-start; time.Sleep(lead); used = use() })
	both.Go(func() { <-start; deleted = p.delete(t) })
	close(start)
	both.Wait()

	switch {
	case used == nil && apierrors.IsForbidden(deleted):
		r.used++
		noError(t, p.user.Pizzas(p.namespace).Delete(ctx, pizza, metav1.DeleteOptions{}))
		noError(t, p.delete(t))
	case deleted == nil && apierrors.IsInvalid(used):
		r.deleted++
	default:
		assert.Failf(t, "neither was refused", "pair %d: the use returned %v, and the deletion %v", p.number, used, deleted)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	assert.NoError(t, err) // Not in the test's own goroutine.
}

// use returns what puts the topping on a pizza, and the pizza's name.
func (p pair) use(t *testing.T) (use func() error, pizza string) {
	t.Helper()
	ctx, pizzas := t.Context(), p.user.Pizzas(p.namespace)
	object := framework.Pizza(p.name())
	if p.number%3 != 0 {
		object.Spec.Toppings = append(object.Spec.Toppings, restaurantv1.PizzaTopping{Name: p.name()})
		return func() error { _, err := pizzas.Create(ctx, object, metav1.CreateOptions{}); return err }, object.Name
	}
	_, err := pizzas.Create(ctx, object, metav1.CreateOptions{})
	noError(t, err)
	patch := fmt.Appendf(nil, `{"spec":{"toppings":[{"name":%q}]}}`, p.name())
	return func() error {
		_, err := pizzas.Patch(ctx, object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	}, object.Name
}

// delete deletes the topping, alone or as a collection.
func (p pair) delete(t *testing.T) error {
	t.Helper()
	if p.number%5 != 0 {
		return p.deleter.Toppings().Delete(t.Context(), p.name(), metav1.DeleteOptions{})
	}
	return p.deleter.Toppings().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", p.name()).String(),
	})
}

// A topping that came to be on a pizza while it was deleted keeps its last finalizer until no
// pizza has it.
func TestToppingInUseKeepsItsLastFinalizer(t *testing.T) {
	t.Parallel()
	careless := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--disable-admission-plugins=PizzaToppings"}}})
	require.NoError(t, careless.Start(t.Context()))
	client := framework.ClientAt(t, cp, cp.APIServer).RestaurantV1()
	pizzas := framework.ClientAt(t, cp, careless).RestaurantV1().Pizzas(framework.Namespace(t, cp))
	topping := &restaurantv1.Topping{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Finalizers: []string{"example.com/kept"}},
		Spec:       restaurantv1.ToppingSpec{Cost: ptr.To(resource.MustParse("1"))},
	}
	_, err := client.Toppings().Create(t.Context(), topping, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.Toppings().Delete(t.Context(), topping.Name, metav1.DeleteOptions{}))
	pizza := framework.Pizza("kept")
	pizza.Spec.Toppings[0].Name = topping.Name
	_, err = pizzas.Create(t.Context(), pizza, metav1.CreateOptions{})
	require.NoError(t, err)

	release := func() error {
		_, err := client.Toppings().Patch(t.Context(), topping.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err
	}
	err = release()
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = client.Toppings().Get(t.Context(), topping.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, pizzas.Delete(t.Context(), pizza.Name, metav1.DeleteOptions{}))
	require.NoError(t, release())
	_, err = client.Toppings().Get(t.Context(), topping.Name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
