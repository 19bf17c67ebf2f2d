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
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestPrice(t *testing.T) {
	costs := map[string]string{"tomato": "0.50", "mozzarella": "1", "gold": "1e9", "dust": "1n", "air": "0", "weight": "1Gi"}
	broken := errors.New("broken")
	lookup := func(name string) (*resource.Quantity, error) {
		if name == "broken" {
			return nil, broken
		}
		if costs[name] == "" {
			return nil, nil
		}
		cost := resource.MustParse(costs[name])
		return &cost, nil
	}
	for name, test := range map[string]struct {
		toppings []PizzaTopping
		cost     string
		missing  []string
		err      error
	}{
		"nothing":              {cost: "0"},
		"free":                 {toppings: []PizzaTopping{{"air", 10}}, cost: "0"},
		"one":                  {toppings: []PizzaTopping{{"mozzarella", 1}}, cost: "1"},
		"quantity":             {toppings: []PizzaTopping{{"tomato", 3}}, cost: "1500m"},
		"sum":                  {toppings: []PizzaTopping{{"tomato", 2}, {"mozzarella", 2}}, cost: "3"},
		"binary units":         {toppings: []PizzaTopping{{"weight", 1}, {"mozzarella", 1}}, cost: "1073741825"},
		"far apart":            {toppings: []PizzaTopping{{"gold", 10}, {"dust", 1}}, cost: "10000000000000000001n"},
		"one missing":          {toppings: []PizzaTopping{{"mozzarella", 1}, {"tuna", 1}}, missing: []string{"tuna"}},
		"missing in order":     {toppings: []PizzaTopping{{"tuna", 1}, {"tomato", 1}, {"corn", 1}}, missing: []string{"tuna", "corn"}},
		"a lookup that fails":  {toppings: []PizzaTopping{{"tuna", 1}, {"broken", 1}}, err: broken},
		"the highest possible": {toppings: many("gold"), cost: "640G"},
	} {
		t.Run(name, func(t *testing.T) {
			cost, missing, err := Price(test.toppings, lookup)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.missing, missing)
			if test.cost == "" {
				require.Nil(t, cost)
			} else {
				require.Equal(t, test.cost, cost.String())
			}
		})
	}
}

func many(name string) []PizzaTopping {
	toppings := make([]PizzaTopping, MaxToppings)
	for i := range toppings {
		toppings[i] = PizzaTopping{name, MaxQuantity}
	}
	return toppings
}
