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
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	clients "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	listers "restaurant.programming-kubernetes.info/apiserver/pkg/generated/listers/restaurant/v1"
)

// Costs are what toppings cost.
type Costs struct {
	lister listers.ToppingLister
	// live is asked for what the lister does not know, which may be a topping of a
	// moment ago.
	live clients.ToppingsGetter
}

// NewCosts returns the costs that the informers know, or else the server.
func NewCosts(client versioned.Interface, informers externalversions.SharedInformerFactory) Costs {
	return Costs{lister: informers.Restaurant().V1().Toppings().Lister(), live: client.RestaurantV1()}
}

// Of returns the cost of a topping, or nil if there is no such topping.
func (c Costs) Of(ctx context.Context, name string) (*resource.Quantity, error) {
	topping, err := c.get(ctx, name)
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

func (c Costs) get(ctx context.Context, name string) (*restaurantv1.Topping, error) {
	topping, err := c.lister.Get(name)
	if apierrors.IsNotFound(err) {
		return c.live.Toppings().Get(ctx, name, metav1.GetOptions{})
	}
	return topping, err
}
