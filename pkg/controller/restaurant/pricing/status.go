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
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
)

const (
	// pizzaLabel is the label of pizzas in the real world. Its value is the UID of
	// their Pizza, since a name can be longer than the value of a label.
	pizzaLabel = restaurant.GroupName + "/pizza-uid"

	reasonPriced          = "Priced"
	reasonToppingsMissing = "ToppingsMissing"
	reasonBaked           = "Baked"
	reasonBaking          = "Baking"
	reasonNotPriced       = "NotPriced"
)

// setStatus sets the status except for the replicas, which the subresource bake
// counts. If a lookup fails, the status is unchanged.
func setStatus(pizza *restaurantv1.Pizza, cost func(topping string) (*resource.Quantity, error)) error {
	toppings := make([]restaurant.PizzaTopping, len(pizza.Spec.Toppings))
	for i, topping := range pizza.Spec.Toppings {
		toppings[i] = restaurant.PizzaTopping{Name: topping.Name, Quantity: ptr.Deref(topping.Quantity, 1)}
	}
	total, missing, err := restaurant.Price(toppings, cost)
	if err != nil {
		return err
	}
	status := &pizza.Status
	status.Cost = total
	status.Selector = pizzaLabel + "=" + string(pizza.UID)
	status.ObservedGeneration = pizza.Generation
	for _, condition := range []metav1.Condition{
		priced(missing),
		ready(len(missing) == 0, status.Replicas, ptr.Deref(pizza.Spec.Replicas, 1)),
	} {
		condition.ObservedGeneration = pizza.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	return nil
}

func priced(missing []string) metav1.Condition {
	if len(missing) > 0 {
		return metav1.Condition{
			Type: restaurantv1.PizzaPriced, Status: metav1.ConditionFalse, Reason: reasonToppingsMissing,
			Message: "There is no topping " + strings.Join(missing, ", "),
		}
	}
	return metav1.Condition{Type: restaurantv1.PizzaPriced, Status: metav1.ConditionTrue, Reason: reasonPriced, Message: "All toppings have a price"}
}

func ready(priced bool, baked, wanted int32) metav1.Condition {
	condition := metav1.Condition{
		Type: restaurantv1.PizzaReady, Status: metav1.ConditionFalse, Reason: reasonBaking,
		Message: fmt.Sprintf("%d of %d are baked", baked, wanted),
	}
	switch {
	case !priced:
		condition.Reason, condition.Message = reasonNotPriced, "It has no price yet"
	case baked >= wanted:
		condition.Status, condition.Reason = metav1.ConditionTrue, reasonBaked
	}
	return condition
}
