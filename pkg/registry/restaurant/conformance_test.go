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

package restaurant

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
)

func TestPizza(t *testing.T) {
	valid := margherita()
	valid.Status = restaurant.PizzaStatus{}
	invalid := valid.DeepCopy()
	invalid.Spec.Toppings = nil
	registrytesting.TestKind(t, group(), registrytesting.Case[*restaurant.Pizza]{
		Valid: valid, Invalid: invalid,
		Update:  func(p *restaurant.Pizza) { p.Spec.Replicas++ },
		Corrupt: func(p *restaurant.Pizza) { p.Spec.Replicas = -1 },
	})
}

func TestTopping(t *testing.T) {
	costing := func(cost string) *restaurant.Topping {
		return &restaurant.Topping{
			ObjectMeta: metav1.ObjectMeta{Name: "tomato"},
			Spec:       restaurant.ToppingSpec{Cost: new(resource.MustParse(cost))},
		}
	}
	registrytesting.TestKind(t, group(), registrytesting.Case[*restaurant.Topping]{
		Valid: costing("1"), Invalid: costing("2000000000"),
		Update:  func(topping *restaurant.Topping) { topping.Spec = costing("3").Spec },
		Corrupt: func(topping *restaurant.Topping) { topping.Spec = costing("2000000000").Spec },
	})
}
