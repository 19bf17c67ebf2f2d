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

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// pricePatience is how long the controller may take for all pizzas.
const pricePatience = 10 * time.Minute

// measurePrices returns how long the pricing controller takes for a topping's new
// price to be on all pizzas, and what a user's request takes meanwhile.
func measurePrices(ctx context.Context, cp *controlplane.ControlPlane, config controlplane.ServerConfig, pizzas int) (_ []figure, err error) {
	server, err := startServer(ctx, cp, "bench-prices", config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()

	progress(fmt.Sprintf("Creating %d pizzas", pizzas))
	changes, err := server.client.RestaurantV1().Pizzas(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	defer changes.Stop()
	created := make(chan error, 1)
	// A watch is to be read all the time.
	go func() { created <- together(ctx, pizzas, server.createPizza("priced", nil)) }()
	if err := errors.Join(awaitCost(ctx, changes, pizzas, "1"), <-created); err != nil {
		return nil, err
	}

	progress("Changing the price of a topping")
	quiet, err := server.requests(ctx, 5*time.Second, nil)
	if err != nil {
		return nil, err
	}
	cheese, err := server.client.RestaurantV1().Toppings().Get(ctx, topping, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	cheese.Spec.Cost = ptr.To(resource.MustParse("2"))
	began := time.Now()
	if _, err := server.client.RestaurantV1().Toppings().Update(ctx, cheese, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	var took time.Duration
	done := make(chan error, 1)
	go func() {
		err := awaitCost(ctx, changes, pizzas, "2")
		took = time.Since(began)
		done <- err
	}()
	busy, err := server.requests(ctx, pricePatience, done)
	if err != nil {
		return nil, err
	}
	return []figure{
		{what: fmt.Sprintf("a topping's new price is on %d pizzas after", pizzas), value: fmt.Sprintf("%.1f s", took.Seconds())},
		{what: "update of a topping by a user, before that", value: quantiles(quiet)},
		{what: "update of a topping by a user, meanwhile", value: quantiles(busy)},
	}, nil
}

// awaitCost waits until so many pizzas have been seen with a cost.
func awaitCost(ctx context.Context, changes watch.Interface, pizzas int, cost string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pricePatience, fmt.Errorf("not all pizzas cost %s after %s", cost, pricePatience))
	defer cancel()
	for seen := map[string]bool{}; len(seen) < pizzas; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, ok := <-changes.ResultChan():
			pizza, isPizza := event.Object.(*restaurantv1.Pizza)
			if !ok || !isPizza {
				return fmt.Errorf("the watch of pizzas has ended: %v", event.Object)
			}
			if pizza.Status.Cost != nil && pizza.Status.Cost.String() == cost {
				seen[pizza.Name] = true
			}
		}
	}
	return nil
}

// requests updates a topping that is on no pizza, again and again for a time or
// until the channel yields. It returns how long each took.
func (s server) requests(ctx context.Context, duration time.Duration, until <-chan error) (durations []time.Duration, err error) {
	other := &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{GenerateName: "user-"}, Spec: restaurantv1.ToppingSpec{Cost: ptr.To(resource.MustParse("1"))}}
	toppings := s.client.RestaurantV1().Toppings()
	if other, err = toppings.Create(ctx, other, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	for end := time.After(duration); ; {
		select {
		case <-end:
			return durations, nil
		case err := <-until:
			return durations, err
		default:
		}
		other.Labels = map[string]string{"nth": fmt.Sprint(len(durations))}
		began := time.Now()
		if other, err = toppings.Update(ctx, other, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		durations = append(durations, time.Since(began))
		time.Sleep(time.Millisecond)
	}
}

func quantiles(durations []time.Duration) string {
	slices.Sort(durations)
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms (%d requests)", milliseconds(quantile(durations, 50)), milliseconds(quantile(durations, 99)), len(durations))
}
