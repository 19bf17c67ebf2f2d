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
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	named := func(name string) func(*restaurant.Bake) { return func(b *restaurant.Bake) { b.Name = name } }
	for name, test := range map[string]struct {
		baked, wanted, count int32
		change               func(*restaurant.Bake)
		options              metav1.CreateOptions
		deleted              bool

		want, wantBaked int32
		wantReason      metav1.StatusReason
		wantError       string
	}{
		"one":                 {wanted: 3, count: 1, want: 1, wantBaked: 1},
		"all":                 {baked: 1, wanted: 3, count: 2, want: 2, wantBaked: 3},
		"more than missing":   {baked: 1, wanted: 3, count: 7, want: 2, wantBaked: 3},
		"a status sent along": {wanted: 3, count: 1, change: func(b *restaurant.Bake) { b.Status.Baked = 9 }, want: 1, wantBaked: 1},
		"by name":             {wanted: 3, count: 1, change: named("by-name"), want: 1, wantBaked: 1},
		"dry run":             {wanted: 3, count: 2, options: metav1.CreateOptions{DryRun: []string{"All"}}, want: 2, wantBaked: 0},
		"none is missing":     {baked: 3, wanted: 3, count: 1, wantBaked: 3, wantReason: metav1.StatusReasonConflict, wantError: conflict + "3 of 3 pizzas are baked already"},
		"too many":            {baked: 3, wanted: 1, count: 1, wantBaked: 3, wantReason: metav1.StatusReasonConflict, wantError: conflict + "3 of 1 pizzas are baked already"},
		"none is wanted":      {count: 1, wantReason: metav1.StatusReasonConflict, wantError: conflict + "0 of 0 pizzas are baked already"},
		"being deleted":       {wanted: 3, count: 1, deleted: true, wantReason: metav1.StatusReasonConflict, wantError: conflict + "it is being deleted"},
		"no pizza":            {wanted: 3, count: 0, wantReason: metav1.StatusReasonInvalid, wantError: `Bake.restaurant.programming-kubernetes.info "%s" is invalid: spec.count: Invalid value: 0: must be greater than or equal to 1`},
		"more than there can be": {wanted: 3, count: 1001, wantReason: metav1.StatusReasonInvalid,
			wantError: `Bake.restaurant.programming-kubernetes.info "%s" is invalid: spec.count: Invalid value: 1001: must be less than or equal to 1000`},
		"a label that is none": {wanted: 3, count: 1, change: func(b *restaurant.Bake) { b.Labels = map[string]string{"a": "?"} }, wantReason: metav1.StatusReasonInvalid,
			wantError: `Bake.restaurant.programming-kubernetes.info "%s" is invalid: metadata.labels: Invalid value: "?": ` +
				`a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character ` +
				`(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		"another name": {wanted: 3, count: 1, change: named("other"), wantReason: metav1.StatusReasonBadRequest, wantError: `metadata.name is "other", but the path names "%s"`},
	} {
		t.Run(name, func(t *testing.T) {
			name := map[bool]string{true: "by-name", false: fmt.Sprintf("pizza-%x", name)}[name == "by name"]
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
			if test.change != nil {
				test.change(sent)
			}
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

// TestConcurrentBakes orders more pizzas than are wanted, while others write the
// pizza's status.
func TestConcurrentBakes(t *testing.T) {
	storage := newStorage(t)
	const orders, wanted = 200, 150
	newPizza(t, storage, "margherita", 0, wanted)

	var baked, refused int32
	var mu sync.Mutex
	var all sync.WaitGroup
	for range orders {
		all.Go(func() {
			answer, err := bakeSome(t, storage, "margherita", order(1), metav1.CreateOptions{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				baked += answer.Status.Baked
			case apierrors.IsConflict(err):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	for i := range 20 {
		all.Go(func() {
			_, _, err := storage["pizzas/status"].(rest.Updater).Update(requestContext(t, "pizzas", "status"), "margherita",
				rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
					pizza := old.DeepCopyObject().(*restaurant.Pizza)
					pizza.Status.Selector = fmt.Sprintf("write=%d", i)
					return pizza, nil
				}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if baked != wanted || refused != orders-wanted {
		t.Errorf("%d were baked and %d refused, want %d and %d", baked, refused, wanted, orders-wanted)
	}
	pizza := readPizza(t, storage, "margherita")
	if pizza.Status.Replicas != wanted || pizza.Generation != 1 || pizza.Status.Selector == "" {
		t.Errorf("got %d replicas in generation %d with selector %q, want %d in generation 1 with one", pizza.Status.Replicas, pizza.Generation, pizza.Status.Selector, wanted)
	}
}

// TestBakeIsAdmitted refuses an order where a webhook or a policy would.
func TestBakeIsAdmitted(t *testing.T) {
	storage := newStorage(t)
	before := newPizza(t, storage, "margherita", 0, 3)
	refusal := apierrors.NewForbidden(restaurant.Resource("pizzas"), "margherita", errors.New("the oven is cold"))
	var admitted runtime.Object
	_, err := storage["pizzas/bake"].(rest.NamedCreater).Create(requestContext(t, "pizzas", "bake"), "margherita", order(2),
		func(_ context.Context, obj runtime.Object) error {
			admitted = obj
			return refusal
		}, &metav1.CreateOptions{})
	if !errors.Is(err, refusal) || refusal.Status().Code != http.StatusForbidden {
		t.Errorf("got error %v, want what admission says", err)
	}
	want := order(2)
	want.Name = "margherita"
	if diff := cmp.Diff(runtime.Object(want), admitted); diff != "" {
		t.Errorf("unexpected order in admission (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, readPizza(t, storage, "margherita")); diff != "" {
		t.Errorf("what was refused has been done (-want +got):\n%s", diff)
	}
}
