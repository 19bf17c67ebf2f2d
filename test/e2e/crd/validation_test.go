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

package crd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// refused is a JSON merge patch of one of three objects, with what it is refused for.
type refused struct {
	pizza, status, topping string
	// causes, in any order, have the field before the message; one that ends in "…" is
	// cut off there.
	causes []string
	// message is for what has no causes.
	message string
}

func badPizza(patch string, causes ...string) refused { return refused{pizza: patch, causes: causes} }

func badStatus(status string, causes ...string) refused {
	return refused{status: `{"status":{` + status + `}}`, causes: causes}
}

func badCost(cost string, causes ...string) refused {
	return refused{topping: `{"spec":{"cost":` + cost + `}}`, causes: causes}
}

// listOf is a JSON list of n elements, with a number in each.
func listOf(n int, format string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(elements, ",") + "]"
}

// The schema refuses the same as the tags and functions of the API server, with the
// field's path.
func TestValidation(t *testing.T) {
	t.Parallel()
	const (
		// unchecked is added to what makes CEL rules impossible to check.
		unchecked   = "<nil>: Invalid value: null: some validation rules were not checked …"
		noSubdomain = `Invalid value: "A B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', …`
		noCost      = "must be a quantity from 0 to 1000000000"
		noPizzaCost = "must be a quantity from 0 to 640000000000"
		condition   = `{"type":"Ready","status":"True","reason":"Baked","message":"","lastTransitionTime":"2026-11-20T12:00:00Z"}`
		unreadable  = `admission webhook "admit.restaurant.programming-kubernetes.info" denied the request: the object can't be read: json: cannot unmarshal `
	)
	inAll := map[string]refused{
		"replicas/-1": badPizza(`{"spec":{"replicas":-1}}`,
			"spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0", ".spec.replicas: Invalid value: -1: should be a non-negative integer"),
		"replicas/1001": badPizza(`{"spec":{"replicas":1001}}`, "spec.replicas: Invalid value: 1001: spec.replicas in body should be less than or equal to 1000"),
		"status/replicas": badStatus(`"replicas":-1`,
			"status.replicas: Invalid value: -1: replicas in body should be greater than or equal to 0", ".status.replicas: Invalid value: -1: should be a non-negative integer"),
		"status/cost":               badStatus(`"cost":"-1"`, `status.cost: Invalid value: "-1": `+noPizzaCost),
		"status/a high cost":        badStatus(`"cost":"641G"`, `status.cost: Invalid value: "641G": `+noPizzaCost),
		"status/an expensive cost":  badStatus(`"cost":"1e-999999999"`, `status.cost: Invalid value: "1e-999999999": `+noPizzaCost),
		"status/observedGeneration": badStatus(`"observedGeneration":-1`, "status.observedGeneration: Invalid value: -1: observedGeneration in body should be greater than or equal to 0"),
		"status/a condition": badStatus(`"conditions":[{"type":"a b","status":"Maybe","reason":"R","message":"","lastTransitionTime":"2026-11-20T12:00:00Z"}]`,
			`status.conditions[0].type: Invalid value: "a b": …`, `status.conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"`, unchecked),
		"status/two conditions": badStatus(`"conditions":[`+condition+`,`+condition+`]`, `status.conditions[1]: Duplicate value: {"type":"Ready"}`),
		"cost/none":             badCost(`null`, "spec.cost: Required value", unchecked),
		"cost/negative":         badCost(`"-1"`, `spec.cost: Invalid value: "-1": `+noCost),
		"cost/negative number":  badCost(`-1`, `spec.cost: Invalid value: -1: `+noCost),
		"cost/a fraction":       badCost(`1.5`, `spec.cost: Invalid value: "number": spec.cost in body must be of type integer,string: "number"`, unchecked),
		"cost/too high":         badCost(`"1000000001"`, `spec.cost: Invalid value: "1000000001": `+noCost),
		"cost/a word":           badCost(`"cheap"`, `spec.cost: Invalid value: "cheap": `+noCost),
		"cost/a list":           badCost(`["1"]`, `spec.cost: Invalid value: "array": spec.cost in body must be of type integer,string: "array"`, unchecked),
		"cost/1e-999999999":     badCost(`"1e-999999999"`, `spec.cost: Invalid value: "1e-999999999": `+noCost),
		"cost/1E+2147483648":    badCost(`"1E+2147483648"`, `spec.cost: Invalid value: "1E+2147483648": `+noCost),
		"cost/long":             badCost(`"0.`+strings.Repeat("0", 63)+`"`, "spec.cost: Too long: may not be more than 64 bytes", unchecked),
	}
	if framework.WithCRDServer() {
		// Its bounds on bodies come before validation.
		for _, title := range []string{"status/an expensive cost", "cost/1e-999999999", "cost/1E+2147483648"} {
			test := inAll[title]
			test.message = "a number has more than 256 characters…"
			inAll[title] = test
		}
	}
	inV1 := map[string]refused{
		"quantity/0":     badPizza(`{"spec":{"toppings":[{"name":"tomato","quantity":0}]}}`, "spec.toppings[0].quantity: Invalid value: 0: spec.toppings[0].quantity in body should be greater than or equal to 1"),
		"quantity/11":    badPizza(`{"spec":{"toppings":[{"name":"tomato","quantity":11}]}}`, "spec.toppings[0].quantity: Invalid value: 11: spec.toppings[0].quantity in body should be less than or equal to 10"),
		"quantity/2^31":  {pizza: `{"spec":{"toppings":[{"name":"tomato","quantity":2147483648}]}}`, message: unreadable + "number 2147483648 into …"},
		"twice":          badPizza(`{"spec":{"toppings":[{"name":"tomato"},{"name":"tomato"}]}}`, `spec.toppings[1]: Duplicate value: {"name":"tomato"}`),
		"without a name": badPizza(`{"spec":{"toppings":[{"quantity":1}]}}`, "spec.toppings[0].name: Required value", unchecked),
		"a bad name":     badPizza(`{"spec":{"toppings":[{"name":"A B"}]}}`, "spec.toppings[0].name: "+noSubdomain),
		"65":             badPizza(`{"spec":{"toppings":`+listOf(65, `{"name":"t%d"}`)+`}}`, "spec.toppings: Too many: 65: must have at most 64 items", unchecked),
		"a string":       {pizza: `{"spec":{"toppings":["tomato"]}}`, message: unreadable + "string into …"},
	}
	cases := map[string]map[string]refused{
		"v1": inV1, "v1beta1": maps.Clone(inV1),
		"v1alpha1": {
			"11 times":   badPizza(`{"spec":{"toppings":["tomato"`+strings.Repeat(`,"tomato"`, 10)+`]}}`, "spec.toppings: Invalid value: must not list a topping more than 10 times"),
			"65":         badPizza(`{"spec":{"toppings":`+listOf(65, `"t%d"`)+`}}`, "spec.toppings: Invalid value: must not have more than 64 different toppings"),
			"641":        badPizza(`{"spec":{"toppings":`+listOf(641, `"t%d"`)+`}}`, "spec.toppings: Too many: 641: must have at most 640 items", unchecked),
			"a bad name": badPizza(`{"spec":{"toppings":["A B"]}}`, "spec.toppings[0]: "+noSubdomain),
			"an object":  {pizza: `{"spec":{"toppings":[{"name":"tomato"}]}}`, message: unreadable + "object into …"},
		},
	}
	ns := framework.Namespace(t, cp)
	for _, version := range framework.Versions() {
		maps.Copy(cases[version], inAll)
		name := "validated-" + version
		createTopping(t, name)
		_, err := pizzas(version, ns).Create(t.Context(), pizza(version, name, nil), metav1.CreateOptions{})
		require.NoError(t, err)
		for title, test := range cases[version] {
			t.Run(version+"/"+title, func(t *testing.T) {
				t.Parallel()
				var err error
				switch {
				case test.pizza != "":
					_, err = pizzas(version, ns).Patch(t.Context(), name, types.MergePatchType, []byte(test.pizza), metav1.PatchOptions{})
				case test.status != "":
					_, err = pizzas(version, ns).Patch(t.Context(), name, types.MergePatchType, []byte(test.status), metav1.PatchOptions{}, "status")
				default:
					_, err = toppings(version).Patch(t.Context(), name, types.MergePatchType, []byte(test.topping), metav1.PatchOptions{})
				}
				requireRefused(t, test, err)
			})
		}
	}
}

func requireRefused(t *testing.T, want refused, err error) {
	t.Helper()
	var answer apierrors.APIStatus
	require.ErrorAs(t, err, &answer)
	status := answer.Status()
	if want.message != "" {
		require.EqualValues(t, 400, status.Code, status.Message)
		require.Equal(t, want.message, cutOff(want.message, status.Message))
		return
	}
	require.EqualValues(t, 422, status.Code, status.Message)
	got := make([]string, len(status.Details.Causes))
	for i, cause := range status.Details.Causes {
		got[i] = cause.Field + ": " + cause.Message
	}
	slices.Sort(got)
	causes := slices.Sorted(slices.Values(want.causes))
	for i := range min(len(got), len(causes)) {
		got[i] = cutOff(causes[i], got[i])
	}
	require.Equal(t, causes, got)
}

// cutOff cuts a text where the wanted one is, if that is.
func cutOff(want, text string) string {
	if start, ok := strings.CutSuffix(want, "…"); ok && strings.HasPrefix(text, start) {
		return want
	}
	return text
}
