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
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// order returns a Bake for a number of pizzas, as decoding returns it.
func order(count int32) *restaurant.Bake {
	return &restaurant.Bake{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: restaurant.BakeSpec{Count: count}}
}

func bakeSome(t *testing.T, storage map[string]rest.Storage, name string, order *restaurant.Bake, options metav1.CreateOptions) (*restaurant.Bake, error) {
	t.Helper()
	obj, err := storage["pizzas/bake"].(rest.NamedCreater).Create(requestContext(t, "pizzas", "bake"), name, order, rest.ValidateAllObjectFunc, &options)
	if err != nil {
		return nil, err
	}
	return obj.(*restaurant.Bake), nil
}

// newPizza creates a pizza with some replicas already baked.
func newPizza(t *testing.T, storage map[string]rest.Storage, name string, baked, wanted int32, finalizers ...string) *restaurant.Pizza {
	t.Helper()
	pizza := margherita()
	pizza.Name, pizza.Spec.Replicas, pizza.Finalizers = name, wanted, finalizers
	pizza = create(t, storage, "pizzas", pizza).(*restaurant.Pizza)
	pizza.Status.Replicas = baked
	obj, err := update(t, storage, "pizzas/status", "status", name, pizza)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*restaurant.Pizza)
}

func readPizza(t *testing.T, storage map[string]rest.Storage, name string) *restaurant.Pizza {
	t.Helper()
	obj, err := storage["pizzas"].(rest.Getter).Get(requestContext(t, "pizzas", ""), name, &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*restaurant.Pizza)
}

func deletePizza(t *testing.T, storage map[string]rest.Storage, name string) {
	t.Helper()
	if _, _, err := storage["pizzas"].(rest.GracefulDeleter).Delete(requestContext(t, "pizzas", ""), name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestBake(t *testing.T) {
	storage := newStorage(t)
	const conflict = `Operation cannot be fulfilled on pizzas/bake.restaurant.programming-kubernetes.info "%s": `
	for name, test := range map[string]struct {
		baked, wanted, count int32
		options              metav1.CreateOptions
		deleted              bool

		want, wantBaked int32
		wantReason      metav1.StatusReason
		wantError       string
	}{
		"one":               {wanted: 3, count: 1, want: 1, wantBaked: 1},
		"all":               {baked: 1, wanted: 3, count: 2, want: 2, wantBaked: 3},
		"more than missing": {baked: 1, wanted: 3, count: 7, want: 2, wantBaked: 3},
		"dry run":           {wanted: 3, count: 2, options: metav1.CreateOptions{DryRun: []string{"All"}}, want: 2, wantBaked: 0},
		"none is missing":   {baked: 3, wanted: 3, count: 1, wantBaked: 3, wantReason: metav1.StatusReasonConflict, wantError: conflict + "3 of 3 pizzas are baked already"},
		"too many":          {baked: 3, wanted: 1, count: 1, wantBaked: 3, wantReason: metav1.StatusReasonConflict, wantError: conflict + "3 of 1 pizzas are baked already"},
		"none is wanted":    {count: 1, wantReason: metav1.StatusReasonConflict, wantError: conflict + "0 of 0 pizzas are baked already"},
		"being deleted":     {wanted: 3, count: 1, deleted: true, wantReason: metav1.StatusReasonConflict, wantError: conflict + "it is being deleted"},
		"no pizza":          {wanted: 3, count: 0, wantReason: metav1.StatusReasonInvalid, wantError: `Bake.restaurant.programming-kubernetes.info "%s" is invalid: spec.count: Invalid value: 0: must be greater than or equal to 1`},
		"more than there can be": {wanted: 3, count: 1001, wantReason: metav1.StatusReasonInvalid,
			wantError: `Bake.restaurant.programming-kubernetes.info "%s" is invalid: spec.count: Invalid value: 1001: must be less than or equal to 1000`},
	} {
		t.Run(name, func(t *testing.T) {
			name := fmt.Sprintf("pizza-%x", name)
			var finalizers []string
			if test.deleted {
				finalizers = []string{"example.com/test"}
			}
			before := newPizza(t, storage, name, test.baked, test.wanted, finalizers...)
			if test.deleted {
				deletePizza(t, storage, name)
				before = readPizza(t, storage, name)
			}
			sent := order(test.count)
			got, err := bakeSome(t, storage, name, sent, test.options)

			if reason := apierrors.ReasonForError(err); reason != test.wantReason {
				t.Errorf("got error %v, want one with reason %q", err, test.wantReason)
			}
			if test.wantError != "" {
				if diff := cmp.Diff(fmt.Sprintf(test.wantError, name), fmt.Sprint(err)); diff != "" {
					t.Errorf("unexpected error (-want +got):\n%s", diff)
				}
			} else {
				want := order(test.count)
				want.Name, want.Status.Baked = name, test.want
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("unexpected answer (-want +got):\n%s", diff)
				}
			}
			after := readPizza(t, storage, name)
			want := before.DeepCopy()
			want.Status.Replicas, want.ResourceVersion = test.wantBaked, after.ResourceVersion
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("unexpected pizza (-want +got):\n%s", diff)
			}
			if changed := after.ResourceVersion != before.ResourceVersion; changed != (test.baked != test.wantBaked) {
				t.Errorf("the pizza has been written: %t", changed)
			}
		})
	}
}
