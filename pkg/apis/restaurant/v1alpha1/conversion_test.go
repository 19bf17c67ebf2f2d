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

package v1alpha1_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1alpha1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1alpha1"
)

func TestConvertNamesToToppings(t *testing.T) {
	for name, test := range map[string]struct {
		names []string
		want  []restaurant.PizzaTopping
	}{
		"nil":         {},
		"empty":       {names: []string{}, want: []restaurant.PizzaTopping{}},
		"one":         {names: []string{"tomato"}, want: toppings("tomato", 1)},
		"extra":       {names: []string{"mozzarella", "mozzarella", "tomato"}, want: toppings("mozzarella", 2, "tomato", 1)},
		"mixed":       {names: []string{"a", "b", "a", "c", "b", "a"}, want: toppings("a", 3, "b", 2, "c", 1)},
		"unsorted":    {names: []string{"z", "a", "m"}, want: toppings("z", 1, "a", 1, "m", 1)},
		"empty names": {names: []string{"", "a", ""}, want: toppings("", 2, "a", 1)},
		"too many":    {names: slices.Repeat([]string{"a"}, 11), want: toppings("a", 11)},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, toToppings(t, test.names))
		})
	}
}

func TestConvertToppingsToNames(t *testing.T) {
	tooMany := slices.Repeat([]string{"a"}, 11)

	for name, test := range map[string]struct {
		toppings []restaurant.PizzaTopping
		want     []string
	}{
		"nil":               {},
		"empty":             {toppings: []restaurant.PizzaTopping{}, want: []string{}},
		"one":               {toppings: toppings("tomato", 1), want: []string{"tomato"}},
		"extra":             {toppings: toppings("mozzarella", 2, "tomato", 1), want: []string{"mozzarella", "mozzarella", "tomato"}},
		"most":              {toppings: toppings("a", 10), want: tooMany[:10]},
		"one too many":      {toppings: toppings("a", 11), want: tooMany},
		"far too many":      {toppings: toppings("a", math.MaxInt32), want: tooMany},
		"zero":              {toppings: toppings("a", 0), want: tooMany},
		"negative":          {toppings: toppings("a", -1), want: tooMany},
		"most negative":     {toppings: toppings("a", math.MinInt32), want: tooMany},
		"twice":             {toppings: toppings("a", 2, "b", 1, "a", 3), want: append([]string{"a", "a", "b"}, tooMany[2:]...)},
		"twice, once wrong": {toppings: toppings("a", 0, "a", 3, "a", 1), want: tooMany},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, toNames(t, test.toppings))
		})
	}
}

// The conversion runs before validation, so that its memory must not depend
// on a number.
func TestConversionIsBounded(t *testing.T) {
	const million = 1_000_000
	const longest = (64 + 1) * (10 + 1)

	same := slices.Repeat(toppings("a", math.MaxInt32), million)
	different := make([]restaurant.PizzaTopping, million)
	names := make([]string, million)
	for i := range different {
		names[i] = fmt.Sprint(i)
		different[i] = restaurant.PizzaTopping{Name: names[i], Quantity: math.MaxInt32}
	}

	assert.Len(t, toNames(t, same), 11)
	assert.Len(t, toNames(t, different), longest)
	assert.Len(t, toToppings(t, names), million)
	assert.Equal(t, toppings("a", million), toToppings(t, slices.Repeat([]string{"a"}, million)))
	assert.Len(t, toNames(t, toToppings(t, names)), 65, "one topping too many must stay, or the pizza would become valid")
}

// A list of names comes back with each name as often as before, grouped.
func TestToppingsSurvive(t *testing.T) {
	names := []string{"salami", "tomato", "salami", "olive", "tomato", "salami"}
	want := []string{"salami", "salami", "salami", "tomato", "tomato", "olive"}

	assert.Equal(t, want, toNames(t, toToppings(t, names)))
	assert.Equal(t, want, toNames(t, toToppings(t, want)))
}

func toToppings(t *testing.T, names []string) []restaurant.PizzaTopping {
	var result []restaurant.PizzaTopping
	require.NoError(t, restaurantv1alpha1.Convert_Slice_string_To_Slice_restaurant_PizzaTopping(&names, &result, nil))
	return result
}

func toNames(t *testing.T, toppings []restaurant.PizzaTopping) []string {
	var result []string
	require.NoError(t, restaurantv1alpha1.Convert_Slice_restaurant_PizzaTopping_To_Slice_string(&toppings, &result, nil))
	return result
}

// toppings makes toppings of alternating names and quantities.
func toppings(namesAndQuantities ...any) []restaurant.PizzaTopping {
	var result []restaurant.PizzaTopping
	for pair := range slices.Chunk(namesAndQuantities, 2) {
		result = append(result, restaurant.PizzaTopping{Name: pair[0].(string), Quantity: int32(pair[1].(int))})
	}
	return result
}
