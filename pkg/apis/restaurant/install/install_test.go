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

package install_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/deprecation"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

func TestVersionPriority(t *testing.T) {
	group := restaurant.GroupName
	assert.Equal(t, []schema.GroupVersion{
		{Group: group, Version: "v1"}, {Group: group, Version: "v1beta1"}, {Group: group, Version: "v1alpha1"},
	}, newScheme().PrioritizedVersionsForGroup(group))
}

// TestDefaults sends objects without optional fields through the server's
// decoder.
func TestDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		version, spec string
		want          restaurant.PizzaSpec
	}{
		"nothing given": {
			version: "v1", spec: `{}`,
			want: restaurant.PizzaSpec{Replicas: 1},
		},
		"nothing given, beta": {
			version: "v1beta1", spec: `{}`,
			want: restaurant.PizzaSpec{Replicas: 1},
		},
		"nothing given, alpha": {
			version: "v1alpha1", spec: `{}`,
			want: restaurant.PizzaSpec{Replicas: 1},
		},
		"no quantity": {
			version: "v1", spec: `{"toppings":[{"name":"tomato"},{"name":"salami","quantity":2}]}`,
			want: restaurant.PizzaSpec{Replicas: 1, Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 1}, {Name: "salami", Quantity: 2}}},
		},
		"no quantity, beta": {
			version: "v1beta1", spec: `{"toppings":[{"name":"tomato"}]}`,
			want: restaurant.PizzaSpec{Replicas: 1, Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 1}}},
		},
		"an explicit zero is not a gap": {
			version: "v1", spec: `{"replicas":0,"toppings":[{"name":"tomato","quantity":0}]}`,
			want: restaurant.PizzaSpec{Replicas: 0, Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 0}}},
		},
		"an explicit zero is not a gap, beta": {
			version: "v1beta1", spec: `{"replicas":0,"toppings":[{"name":"tomato","quantity":0}]}`,
			want: restaurant.PizzaSpec{Replicas: 0, Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 0}}},
		},
		"an explicit zero is not a gap, alpha": {
			version: "v1alpha1", spec: `{"replicas":0,"toppings":["tomato"]}`,
			want: restaurant.PizzaSpec{Replicas: 0, Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 1}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pizza := decode(t, fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","spec":%s}`, restaurant.GroupName+"/"+test.version, test.spec))
			assert.Equal(t, test.want, pizza.(*restaurant.Pizza).Spec)

			list := decode(t, fmt.Sprintf(`{"apiVersion":%q,"kind":"PizzaList","items":[{"spec":%s}]}`, restaurant.GroupName+"/"+test.version, test.spec))
			assert.Equal(t, test.want, list.(*restaurant.PizzaList).Items[0].Spec)
		})
	}
}

// Numbers that take minutes and gigabytes to compare must not reach a
// comparison.
func TestHostileCosts(t *testing.T) {
	for cost, want := range map[string]string{
		"1e999999999":               "640T",
		"-1e2147483647":             "-640T",
		"0e999999999":               "0",
		strings.Repeat("9", 100000): "640T",
		"1.50":                      "1500m",
		"1000000000.000000001":      "1000000000000000001n",
	} {
		for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
			apiVersion := restaurant.GroupName + "/" + version
			topping := decode(t, fmt.Sprintf(`{"apiVersion":%q,"kind":"Topping","spec":{"cost":%q}}`, apiVersion, cost)).(*restaurant.Topping)
			pizza := decode(t, fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","status":{"cost":%q}}`, apiVersion, cost)).(*restaurant.Pizza)
			costs := []*resource.Quantity{topping.Spec.Cost, pizza.Status.Cost}
			if version == "v1" {
				review := decode(t, fmt.Sprintf(`{"apiVersion":%q,"kind":"PriceReview","status":{"cost":%q}}`, apiVersion, cost)).(*restaurant.PriceReview)
				costs = append(costs, review.Status.Cost)
			}
			for _, got := range costs {
				require.Equal(t, want, got.String(), "%s in %s", cost[:min(len(cost), 30)], version)
				got.CmpInt64(1)
			}
		}
	}
}

func TestDeprecation(t *testing.T) {
	scheme := newScheme()
	for _, gvk := range externalKinds(t, scheme) {
		obj, err := scheme.New(gvk)
		require.NoError(t, err)
		obj.GetObjectKind().SetGroupVersionKind(gvk)

		want := ""
		if gvk.Version == "v1alpha1" {
			want = fmt.Sprintf("restaurant.programming-kubernetes.info/v1alpha1 %[1]s is deprecated in v0.37+; "+
				"use restaurant.programming-kubernetes.info/v1 %[1]s", gvk.Kind)
		}
		assert.Equal(t, want, deprecation.WarningMessage(obj), gvk.String())
		assert.Equal(t, want != "", deprecation.IsDeprecated(obj, 1, 37), gvk.String())
		assert.Empty(t, deprecation.RemovedRelease(obj), "the server must not stop serving %s by itself", gvk)
	}
}

func decode(t *testing.T, data string) runtime.Object {
	codecs := serializer.NewCodecFactory(newScheme())
	obj, err := runtime.Decode(codecs.UniversalDecoder(restaurant.SchemeGroupVersion), []byte(data))
	require.NoError(t, err)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj
}
