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

package lookup

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/fake"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
)

func topping(name string, cost *resource.Quantity) *restaurantv1.Topping {
	return &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: restaurantv1.ToppingSpec{Cost: cost}}
}

// The cache knows some toppings, the server others, and one is unreadable.
func TestToppings(t *testing.T) {
	for name, test := range map[string]struct {
		// wantReads is how often the server is asked for each lookup.
		wantReads int
		wantCost  string
		wantErr   string
		// wantCostErr is the error of the cost, if it is another.
		wantCostErr string
		isMissing   bool
	}{
		"cached":     {wantReads: 0, wantCost: "1"},
		"outdated":   {wantReads: 0, wantCost: "1"},
		"new":        {wantReads: 1, wantCost: "2"},
		"missing":    {wantReads: 1, wantErr: `toppings.restaurant.programming-kubernetes.info "missing" not found`, isMissing: true},
		"unreadable": {wantReads: 1, wantErr: "Timeout: etcd has not answered in time", wantCostErr: "Timeout: etcd has not answered in time"},
		"free":       {wantReads: 0, wantCostErr: "the topping free is stored without a cost"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(topping("new", ptr.To(resource.MustParse("2"))), topping("outdated", ptr.To(resource.MustParse("3"))))
			client.PrependReactor("get", "toppings", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.(clienttesting.GetAction).GetName() == "unreadable", nil, apierrors.NewTimeoutError("etcd has not answered in time", 2)
			})
			cached := externalversions.NewSharedInformerFactory(client, 0).Restaurant().V1().Toppings()
			for _, known := range []*restaurantv1.Topping{topping("cached", ptr.To(resource.MustParse("1"))), topping("outdated", ptr.To(resource.MustParse("1"))), topping("free", nil)} {
				require.NoError(t, cached.Informer().GetIndexer().Add(known))
			}
			toppings := NewToppings(cached.Lister(), client.RestaurantV1())

			got, err := toppings.Get(t.Context(), name)
			if test.wantErr != "" {
				require.EqualError(t, err, test.wantErr)
			} else {
				require.NoError(t, err)
				require.Equal(t, name, got.Name)
			}
			require.Equal(t, test.isMissing, apierrors.IsNotFound(err))
			require.Len(t, client.Actions(), test.wantReads)

			cost, err := toppings.Cost(t.Context(), name)
			if test.wantCostErr != "" {
				require.EqualError(t, err, test.wantCostErr)
			} else {
				require.NoError(t, err)
			}
			if test.wantCost == "" {
				require.Nil(t, cost)
			} else {
				require.Equal(t, test.wantCost, cost.String())
			}
		})
	}
}
