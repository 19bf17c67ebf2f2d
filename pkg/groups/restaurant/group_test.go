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
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// toppingsAt serves toppings that all have one cost.
func toppingsAt(t *testing.T, cost string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		price := resource.MustParse(cost)
		_ = json.NewEncoder(w).Encode(&restaurantv1.Topping{
			TypeMeta: metav1.TypeMeta{APIVersion: restaurantv1.SchemeGroupVersion.String(), Kind: "Topping"},
			Spec:     restaurantv1.ToppingSpec{Cost: &price},
		})
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// Two servers of one Group answer by their own toppings.
func TestRuntimesShareNothing(t *testing.T) {
	group := Group()
	runtimes := map[string]registry.Runtime{}
	for _, cost := range []string{"1", "2"} {
		config := toppingsAt(t, cost)
		made, err := group.Runtime(registry.Clients{Loopback: config, Cluster: config})
		require.NoError(t, err)
		runtimes[cost] = made
	}
	for cost, made := range runtimes {
		review := &restaurant.PriceReview{Spec: restaurant.PriceReviewSpec{Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 1}}}}
		require.NoError(t, made.Answers["pricereviews"].Answer(t.Context(), review))
		require.Equal(t, cost, review.Status.Cost.String())
	}
	require.NotSame(t, runtimes["1"].Informers, runtimes["2"].Informers)
	require.NotSame(t, runtimes["1"].Controllers[0], runtimes["2"].Controllers[0])
}

func TestRuntimeWithoutClients(t *testing.T) {
	good, bad := &rest.Config{}, &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "/missing"}}
	for name, clients := range map[string]registry.Clients{
		"of this server": {Loopback: bad, Cluster: good},
		"of the cluster": {Loopback: good, Cluster: bad},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Group().Runtime(clients)
			require.ErrorContains(t, err, "/missing")
		})
	}
}
