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
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
)

var errBroken = errors.New("broken")

func costOf(name string) (*resource.Quantity, error) {
	switch name {
	case "tomato":
		return ptr.To(resource.MustParse("0.5")), nil
	case "mozzarella":
		return ptr.To(resource.MustParse("1")), nil
	case "broken":
		return nil, errBroken
	}
	return nil, nil
}

func pizza(change func(*restaurantv1.Pizza)) *restaurantv1.Pizza {
	p := &restaurantv1.Pizza{
		ObjectMeta: metav1.ObjectMeta{Name: "margherita", UID: types.UID("1-2"), Generation: 3},
		Spec: restaurantv1.PizzaSpec{
			Toppings: []restaurantv1.PizzaTopping{{Name: "tomato", Quantity: ptr.To[int32](3)}, {Name: "mozzarella"}},
			Replicas: ptr.To[int32](2),
		},
	}
	change(p)
	return p
}

func condition(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: message, ObservedGeneration: 3}
}

func TestSetStatus(t *testing.T) {
	isPriced := condition("Priced", metav1.ConditionTrue, "Priced", "All toppings have a price")
	const selector = "restaurant.programming-kubernetes.info/pizza-uid=1-2"
	for name, test := range map[string]struct {
		pizza *restaurantv1.Pizza
		want  restaurantv1.PizzaStatus
		err   error
	}{
		"new": {
			pizza: pizza(func(*restaurantv1.Pizza) {}),
			want: restaurantv1.PizzaStatus{Cost: ptr.To(resource.MustParse("2.5")), Conditions: []metav1.Condition{
				isPriced, condition("Ready", metav1.ConditionFalse, "Baking", "0 of 2 are baked"),
			}},
		},
		"baked": {
			pizza: pizza(func(p *restaurantv1.Pizza) { p.Status.Replicas = 2 }),
			want: restaurantv1.PizzaStatus{Replicas: 2, Cost: ptr.To(resource.MustParse("2.5")), Conditions: []metav1.Condition{
				isPriced, condition("Ready", metav1.ConditionTrue, "Baked", "2 of 2 are baked"),
			}},
		},
		"more than wanted": {
			pizza: pizza(func(p *restaurantv1.Pizza) { p.Status.Replicas = 3; p.Spec.Replicas = nil }),
			want: restaurantv1.PizzaStatus{Replicas: 3, Cost: ptr.To(resource.MustParse("2.5")), Conditions: []metav1.Condition{
				isPriced, condition("Ready", metav1.ConditionTrue, "Baked", "3 of 1 are baked"),
			}},
		},
		"without some of its toppings": {
			pizza: pizza(func(p *restaurantv1.Pizza) {
				p.Status.Replicas = 2
				p.Status.Cost = ptr.To(resource.MustParse("7"))
				p.Spec.Toppings = append(p.Spec.Toppings, restaurantv1.PizzaTopping{Name: "tuna"}, restaurantv1.PizzaTopping{Name: "corn"})
			}),
			want: restaurantv1.PizzaStatus{Replicas: 2, Conditions: []metav1.Condition{
				condition("Priced", metav1.ConditionFalse, "ToppingsMissing", "There is no topping tuna, corn"),
				condition("Ready", metav1.ConditionFalse, "NotPriced", "It has no price yet"),
			}},
		},
		"someone else's condition stays": {
			pizza: pizza(func(p *restaurantv1.Pizza) { p.Status.Conditions = []metav1.Condition{{Type: "Delicious"}} }),
			want: restaurantv1.PizzaStatus{Cost: ptr.To(resource.MustParse("2.5")), Conditions: []metav1.Condition{
				{Type: "Delicious"}, isPriced, condition("Ready", metav1.ConditionFalse, "Baking", "0 of 2 are baked"),
			}},
		},
		"a cost that can't be looked up": {
			pizza: pizza(func(p *restaurantv1.Pizza) { p.Spec.Toppings[0].Name = "broken" }),
			err:   errBroken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := setStatus(test.pizza, costOf)
			require.ErrorIs(t, err, test.err)
			if test.err != nil {
				return
			}
			again := test.pizza.DeepCopy()
			require.NoError(t, setStatus(again, costOf))
			require.True(t, equality.Semantic.DeepEqual(test.pizza, again), "A second time nothing may change.")

			for i := range test.pizza.Status.Conditions {
				test.pizza.Status.Conditions[i].LastTransitionTime = metav1.Time{}
			}
			test.want.Selector, test.want.ObservedGeneration = selector, 3
			require.True(t, equality.Semantic.DeepEqual(test.want, test.pizza.Status), "%+v", test.pizza.Status)
		})
	}
}
