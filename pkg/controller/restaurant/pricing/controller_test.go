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

package pricing

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/fake"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
)

// TestToppingOfAMomentAgo has an informer of pizzas that is ahead of the one of
// toppings. No event says that a topping is missing.
func TestToppingOfAMomentAgo(t *testing.T) {
	stored := &restaurantv1.Pizza{
		ObjectMeta: metav1.ObjectMeta{Name: "margherita", Namespace: "default"},
		Spec:       restaurantv1.PizzaSpec{Toppings: []restaurantv1.PizzaTopping{{Name: "tomato"}}},
	}
	tomato := &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: "tomato"}, Spec: restaurantv1.ToppingSpec{Cost: ptr.To(resource.MustParse("2"))}}
	client := fake.NewClientset(stored, tomato)
	informers := externalversions.NewSharedInformerFactory(client, 0)
	recorder := events.NewFakeRecorder(2)
	r := &run{Controller: New(client, informers, nil), pizzas: newPizzas(client), recorder: recorder}
	require.NoError(t, r.pizzas.GetIndexer().Add(stored))
	require.NoError(t, r.reconcile(t.Context(), cache.MetaObjectToName(stored)))
	written, err := client.RestaurantV1().Pizzas("default").Get(t.Context(), "margherita", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "2", written.Status.Cost.String())
	require.Empty(t, recorder.Events, "All is as it should be.")

	missing := stored.DeepCopy()
	missing.Spec.Toppings[0].Name = "tar"
	require.NoError(t, r.pizzas.GetIndexer().Update(missing))
	require.NoError(t, r.reconcile(t.Context(), cache.MetaObjectToName(stored)))
	require.Equal(t, "Warning ToppingsMissing There is no topping tar", <-recorder.Events)
	require.Empty(t, recorder.Events)
}

// A replica that does not run the controller keeps no copy of all pizzas.
func TestOnlyTheLeaderWatchesPizzas(t *testing.T) {
	client := fake.NewClientset()
	informers := externalversions.NewSharedInformerFactory(client, 0)
	controller := New(client, informers, kubernetes.NewForConfigOrDie(&rest.Config{}))
	informers.Start(t.Context().Done())
	informers.WaitForCacheSync(t.Context().Done())
	require.NotContains(t, watched(client), "pizzas")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); controller.Run(ctx) }()
	require.Eventually(t, func() bool { return slices.Contains(watched(client), "pizzas") }, time.Minute, time.Millisecond)
	stop()
	<-ended
}

// watched returns what a client has asked to watch.
func watched(client *fake.Clientset) (resources []string) {
	for _, action := range client.Actions() {
		if action.GetVerb() == "watch" {
			resources = append(resources, action.GetResource().Resource)
		}
	}
	return resources
}
