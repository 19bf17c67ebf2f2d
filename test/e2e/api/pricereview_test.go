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

package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// review is a question about toppings.
func review(toppings ...restaurantv1.PizzaTopping) *restaurantv1.PriceReview {
	return &restaurantv1.PriceReview{Spec: restaurantv1.PriceReviewSpec{Toppings: toppings}}
}

// priced creates a topping of the test with a price, and returns its name.
func priced(t *testing.T, suffix, cost string) string {
	t.Helper()
	s := newSubject(t, "Topping", "v1")
	object := s.New(suffix)
	object.Object["spec"] = map[string]any{"cost": cost}
	created, err := s.Client().Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	return created.GetName()
}

func TestPriceReview(t *testing.T) {
	t.Parallel()
	// Each is asked for at once, when no cache may know it yet.
	cheap, dear := priced(t, "cheap", "0.50"), priced(t, "dear", "12")
	for name, test := range map[string]struct {
		review *restaurantv1.PriceReview
		want   restaurantv1.PriceReviewStatus
	}{
		"one":      {review(restaurantv1.PizzaTopping{Name: cheap}), restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("500m"))}},
		"quantity": {review(restaurantv1.PizzaTopping{Name: cheap, Quantity: ptr.To[int32](3)}, restaurantv1.PizzaTopping{Name: dear}), restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("13500m"))}},
		"missing": {
			review(restaurantv1.PizzaTopping{Name: "no-such-b"}, restaurantv1.PizzaTopping{Name: dear}, restaurantv1.PizzaTopping{Name: "no-such-a"}),
			restaurantv1.PriceReviewStatus{MissingToppings: []string{"no-such-b", "no-such-a"}},
		},
		"an answer that is sent along": {
			&restaurantv1.PriceReview{
				Spec:   restaurantv1.PriceReviewSpec{Toppings: []restaurantv1.PizzaTopping{{Name: dear}}},
				Status: restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("1")), MissingToppings: []string{"x"}},
			},
			restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("12"))},
		},
		"a name": {
			&restaurantv1.PriceReview{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: restaurantv1.PriceReviewSpec{Toppings: []restaurantv1.PizzaTopping{{Name: dear}}}},
			restaurantv1.PriceReviewStatus{Cost: ptr.To(resource.MustParse("12"))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
				answer, err := framework.Restaurant(cp).RestaurantV1().PriceReviews().Create(t.Context(), test.review, metav1.CreateOptions{DryRun: dryRun})
				require.NoError(t, err)
				require.Equal(t, test.want.MissingToppings, answer.Status.MissingToppings)
				if test.want.Cost == nil {
					require.Nil(t, answer.Status.Cost)
				} else {
					require.Equal(t, test.want.Cost.String(), answer.Status.Cost.String())
				}
				require.Equal(t, test.review.Name, answer.Name)
			}
		})
	}
	_, err := framework.Restaurant(cp).RestaurantV1().PriceReviews().Create(t.Context(), review(restaurantv1.PizzaTopping{Name: dear, Quantity: ptr.To[int32](11)}), metav1.CreateOptions{})
	status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
	require.Equal(t, "spec.toppings[0].quantity", status.Details.Causes[0].Field)
	answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), "/registry/restaurant.programming-kubernetes.info/pricereviews")
	require.NoError(t, err)
	require.Empty(t, answer.Kvs)
}

func TestPriceReviewByKubectl(t *testing.T) {
	t.Parallel()
	k := kubectl{}
	// The tests' toppings cost 1 each.
	require.Equal(t, `{"cost":"4"}`, k.ok(t, "create", "--filename=../../../artifacts/examples/reviews/pricereview.yaml", "--output=jsonpath={.status}"))
	for _, args := range []string{"get pricereviews", "delete --all pricereviews"} {
		require.Contains(t, k.run(t, "", strings.Fields(args)...).stderr, "the server does not allow this method on the requested resource")
	}
}
