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

// Package fuzzer fills objects of the restaurant's API group with valid random
// data, for tests.
package fuzzer

import (
	"fmt"
	"math/rand"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
)

// New returns a filler that draws from source. Its internal objects of the group
// pass validation, object metadata excepted. Its versioned objects have any
// values that their types can hold.
func New(source rand.Source, codecs serializer.CodecFactory) *randfill.Filler {
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, Funcs), source, codecs).NumElements(0, 3)
}

// Funcs returns the functions for valid values. Use them with those for object
// metadata in k8s.io/apimachinery/pkg/apis/meta/fuzzer.
func Funcs(serializer.CodecFactory) []any {
	return []any{
		// Labels and annotations have keys like these, and never "<<", which the
		// library for YAML takes for a merge even in quotes.
		// Upstream fault 69.
		func(m *map[string]string, c randfill.Continue) {
			*m = map[string]string{}
			for range c.Intn(4) {
				(*m)[fmt.Sprintf("example.com/key-%x", c.Uint32())] = c.String(0)
			}
		},
		func(spec *restaurant.PizzaSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.Toppings = toppings(c)
			spec.Replicas = replicas(c)
		},
		func(status *restaurant.PizzaStatus, c randfill.Continue) {
			c.FillNoCustom(status)
			status.Replicas = replicas(c)
			status.Cost = nil
			if c.Bool() {
				status.Cost = cost(c)
			}
			status.ObservedGeneration = c.Int63()
			status.Conditions = conditions(c)
		},
		func(spec *restaurant.BakeSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.Count = 1 + c.Int31n(restaurant.MaxReplicas)
		},
		func(status *restaurant.BakeStatus, c randfill.Continue) {
			c.FillNoCustom(status)
			status.Baked = replicas(c)
		},
		func(options *restaurant.PizzaTrackOptions, c randfill.Continue) {
			c.FillNoCustom(options)
			options.TimeoutSeconds = 1 + c.Int63n(restaurant.MaxTrackSeconds)
		},
		func(spec *restaurant.ToppingSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.Cost = cost(c)
		},
		func(spec *restaurant.PriceReviewSpec, c randfill.Continue) {
			c.FillNoCustom(spec)
			spec.Toppings = toppings(c)
		},
		func(status *restaurant.PriceReviewStatus, c randfill.Continue) {
			c.FillNoCustom(status)
			status.Cost = nil
			if c.Bool() {
				status.Cost = cost(c)
			}
		},
	}
}

func replicas(c randfill.Continue) int32 {
	return c.Int31n(restaurant.MaxReplicas + 1)
}

// toppings returns a few toppings, or now and then as many as fit.
func toppings(c randfill.Continue) []restaurant.PizzaTopping {
	count := 1 + c.Intn(5)
	if c.Intn(20) == 0 {
		count = restaurant.MaxToppings
	}
	result := make([]restaurant.PizzaTopping, count)
	for i := range result {
		c.FillNoCustom(&result[i])
		result[i].Name = fmt.Sprintf("topping-%d.%x", i, c.Uint32())
		result[i].Quantity = restaurant.MinQuantity + c.Int31n(restaurant.MaxQuantity-restaurant.MinQuantity+1)
	}
	return result
}

func cost(c randfill.Continue) *resource.Quantity {
	switch c.Intn(3) {
	case 0:
		return resource.NewMilliQuantity(c.Int63n(1000*restaurant.MaxCost), resource.DecimalSI)
	case 1:
		return resource.NewScaledQuantity(c.Int63n(1000), resource.Nano)
	default:
		return resource.NewQuantity(c.Int63n(restaurant.MaxCost+1), resource.DecimalSI)
	}
}

func conditions(c randfill.Continue) []metav1.Condition {
	statuses := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
	types := []string{restaurantv1.PizzaPriced, restaurantv1.PizzaReady}

	var result []metav1.Condition
	for _, conditionType := range types[:c.Intn(len(types)+1)] {
		result = append(result, metav1.Condition{
			Type:               conditionType,
			Status:             statuses[c.Intn(len(statuses))],
			ObservedGeneration: c.Int63(),
			LastTransitionTime: metav1.Unix(1+c.Int63n(1<<32), 0),
			Reason:             fmt.Sprintf("Reason%x", c.Uint32()),
			Message:            c.String(0),
		})
	}
	return result
}
