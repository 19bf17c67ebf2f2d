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

// Package lookup looks up the restaurant's objects for admission plugins, webhooks,
// reviews and controllers.
package lookup

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	clients "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	listers "restaurant.programming-kubernetes.info/apiserver/pkg/generated/listers/restaurant/v1"
)

// Toppings looks up toppings in a cache first, and on the server if they are not
// there. The cache may lag behind the server, so that it may lack a new topping, or
// have an outdated one.
type Toppings struct {
	cached listers.ToppingLister
	live   clients.ToppingsGetter
}

// NewToppings returns a lookup in this cache and on this server.
func NewToppings(cached listers.ToppingLister, live clients.ToppingsGetter) *Toppings {
	return &Toppings{cached, live}
}

// Get returns a topping, or NotFound if neither the cache nor the server has it.
// Callers must not change the topping.
func (t *Toppings) Get(ctx context.Context, name string) (*restaurantv1.Topping, error) {
	topping, err := t.cached.Get(name)
	if apierrors.IsNotFound(err) {
		return t.live.Toppings().Get(ctx, name, metav1.GetOptions{})
	}
	return topping, err
}

// Cost returns the cost of a topping, or nil if there is no such topping.
func (t *Toppings) Cost(ctx context.Context, name string) (*resource.Quantity, error) {
	topping, err := t.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if topping.Spec.Cost == nil {
		return nil, fmt.Errorf("the topping %s is stored without a cost", name)
	}
	return topping.Spec.Cost, nil
}
