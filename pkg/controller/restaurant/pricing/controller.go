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

// Package pricing holds the controller that keeps the status of pizzas: their cost, and
// the conditions Priced and Ready.
package pricing

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	clientscheme "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/scheme"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	informers "restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions/restaurant/v1"
	listers "restaurant.programming-kubernetes.info/apiserver/pkg/generated/listers/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant/lookup"
)

const (
	// name is the controller's name in metrics, events, and the managed fields of
	// pizzas.
	name = "pricing-controller"
	// workers is the number of requests that the controller sends at a time. It leaves
	// room for users' requests when the price of a popular topping changes.
	workers = 2
	// byTopping is the index of pizzas by the names of their toppings.
	byTopping = "pricing/toppings"
	// maxNote is the maximum length of an event's note.
	maxNote = 1024
)

// Controller keeps the status of all pizzas. Only one replica may run it.
type Controller struct {
	client   versioned.Interface
	events   kubernetes.Interface
	toppings cache.SharedIndexInformer
	costs    *lookup.Toppings
}

// New returns a controller that reads toppings from the server's shared informers and
// writes with the client. It reports changes to users by events in the cluster.
func New(client versioned.Interface, shared externalversions.SharedInformerFactory, cluster kubernetes.Interface) *Controller {
	toppings := shared.Restaurant().V1().Toppings()
	return &Controller{
		client:   client,
		events:   cluster,
		toppings: toppings.Informer(),
		costs:    lookup.NewToppings(toppings.Lister(), client.RestaurantV1()),
	}
}

func toppingsOf(obj any) ([]string, error) {
	pizza, ok := obj.(*restaurantv1.Pizza)
	if !ok {
		return nil, fmt.Errorf("%T is not a pizza", obj)
	}
	names := make([]string, len(pizza.Spec.Toppings))
	for i, topping := range pizza.Spec.Toppings {
		names[i] = topping.Name
	}
	return names, nil
}

// Run works until the context ends, and returns after all of its goroutines. It can be
// called again.
func (c *Controller) Run(ctx context.Context) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.events.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Events of pizzas are not recorded")
	}
	pizzas := newPizzas(c.client)
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { pizzas.RunWithContext(ctx) })
	run := &run{
		Controller: c,
		pizzas:     pizzas,
		recorder:   broadcaster.NewRecorder(clientscheme.Scheme, name),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](),
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: name}),
	}
	stopWatching, err := run.watch(ctx)
	defer stopWatching()
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "The pricing controller can't watch")
		return
	}
	for range workers {
		working.Go(func() { run.work(ctx) })
	}
	<-ctx.Done()
	run.queue.ShutDown()
}

// newPizzas returns an informer of all pizzas. It uses memory only in the replica that
// runs the controller, and only while it does.
func newPizzas(client versioned.Interface) cache.SharedIndexInformer {
	return informers.NewPizzaInformer(client, metav1.NamespaceAll, 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		byTopping:            toppingsOf,
	})
}

// run is one call of Run.
type run struct {
	*Controller
	pizzas   cache.SharedIndexInformer
	recorder events.EventRecorder
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// watch queues each existing or changed pizza, and pizzas whose toppings change.
func (r *run) watch(ctx context.Context) (stop func(), err error) {
	handlers := map[cache.SharedIndexInformer]cache.ResourceEventHandlerFuncs{
		r.pizzas: {
			AddFunc:    func(obj any) { r.queue.Add(cache.MetaObjectToName(obj.(*restaurantv1.Pizza))) },
			UpdateFunc: func(_, obj any) { r.queue.Add(cache.MetaObjectToName(obj.(*restaurantv1.Pizza))) },
		},
		r.toppings: {
			AddFunc: func(obj any) { r.queuePizzasWith(ctx, obj) },
			UpdateFunc: func(old, obj any) {
				if !equality.Semantic.DeepEqual(old.(*restaurantv1.Topping).Spec, obj.(*restaurantv1.Topping).Spec) {
					r.queuePizzasWith(ctx, obj)
				}
			},
			DeleteFunc: func(obj any) { r.queuePizzasWith(ctx, obj) },
		},
	}
	var registered []func()
	stop = func() {
		for _, remove := range registered {
			remove()
		}
	}
	for informer, handler := range handlers {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return stop, err
		}
		registered = append(registered, func() { _ = informer.RemoveEventHandler(registration) })
	}
	return stop, nil
}

func (r *run) queuePizzasWith(ctx context.Context, topping any) {
	key, err := cache.DeletionHandlingObjectToName(topping)
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "A topping has no name")
		return
	}
	pizzas, err := r.pizzas.GetIndexer().ByIndex(byTopping, key.Name)
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Pizzas can't be found by their toppings")
		return
	}
	for _, pizza := range pizzas {
		r.queue.Add(cache.MetaObjectToName(pizza.(*restaurantv1.Pizza)))
	}
}

func (r *run) work(ctx context.Context) {
	for {
		key, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		switch err := r.reconcile(ctx, key); {
		case err == nil:
			r.queue.Forget(key)
		case ctx.Err() != nil:
		default:
			// A conflict only means that the cache is behind.
			if !apierrors.IsConflict(err) {
				utilruntime.HandleErrorWithContext(ctx, err, "The status of a pizza can't be updated yet", "pizza", klog.KRef(key.Namespace, key.Name))
			}
			r.queue.AddRateLimited(key)
		}
		r.queue.Done(key)
	}
}

// reconcile writes the status of a pizza if it is out of date.
func (r *run) reconcile(ctx context.Context, key cache.ObjectName) error {
	pizza, err := listers.NewPizzaLister(r.pizzas.GetIndexer()).Pizzas(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	updated := pizza.DeepCopy()
	if err := setStatus(updated, func(topping string) (*resource.Quantity, error) { return r.costs.Cost(ctx, topping) }); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(updated.Status, pizza.Status) {
		return nil
	}
	_, err = r.client.RestaurantV1().Pizzas(key.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{FieldManager: name})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r.announce(pizza, updated)
	return nil
}

// announce records an event when toppings of a pizza become missing. Other changes are
// only in the conditions: an event is a write, too.
func (r *run) announce(old, updated *restaurantv1.Pizza) {
	for _, condition := range updated.Status.Conditions {
		if condition.Reason != reasonToppingsMissing {
			continue
		}
		before := meta.FindStatusCondition(old.Status.Conditions, condition.Type)
		if before != nil && before.Status == condition.Status && before.Reason == condition.Reason {
			continue
		}
		r.recorder.Eventf(updated, nil, corev1.EventTypeWarning, condition.Reason, "SetCondition", "%.*s", maxNote, condition.Message)
	}
}
