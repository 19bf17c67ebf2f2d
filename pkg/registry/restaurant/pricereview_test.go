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
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// TestPriceReviewIsAdmitted refuses a question where a webhook or a policy would,
// before it is answered.
func TestPriceReviewIsAdmitted(t *testing.T) {
	storage := newStorage(t)
	question := &restaurant.PriceReview{Spec: restaurant.PriceReviewSpec{Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 1}}}}
	refusal := apierrors.NewForbidden(restaurant.Resource("pricereviews"), "", errors.New("prices are secret"))
	var admitted runtime.Object
	_, err := storage["pricereviews"].(rest.Creater).Create(requestContext(t, "pricereviews", ""), question.DeepCopy(),
		func(_ context.Context, obj runtime.Object) error {
			admitted = obj
			return refusal
		}, &metav1.CreateOptions{})
	if !errors.Is(err, refusal) {
		t.Errorf("got error %v, want what admission says", err)
	}
	if diff := cmp.Diff(runtime.Object(question), admitted); diff != "" {
		t.Errorf("unexpected question in admission (-want +got):\n%s", diff)
	}
}
