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
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
)

// group returns the kinds in a group without anything else.
func group() registry.Group {
	return registry.Group{
		Name:    restaurant.GroupName,
		Install: install.Install,
		Kinds:   Kinds(),
		Runtime: func(registry.Clients) (registry.Runtime, error) {
			return registry.Runtime{Answers: map[string]registry.Answer{"pricereviews": PriceReviewAnswer(costs)}}, nil
		},
	}
}

// costs is the CostFunc of a menu with nothing but tomatoes.
func costs(_ context.Context, topping string) (*resource.Quantity, error) {
	if topping != "tomato" {
		return nil, nil
	}
	return new(resource.MustParse("1.5")), nil
}

// newStorage returns the group's storage in version v1.
func newStorage(t *testing.T) map[string]rest.Storage {
	t.Helper()
	return newStorageByVersion(t)["v1"]
}

// newStorageByVersion returns the group's storage on a real etcd.
func newStorageByVersion(t *testing.T) map[string]map[string]rest.Storage {
	t.Helper()
	return registrytesting.NewStorage(t, group()).ByVersion
}

func requestContext(t *testing.T, resource, subresource string) context.Context {
	ctx := t.Context()
	if resource == "pizzas" {
		ctx = genericapirequest.WithNamespace(ctx, "default")
	} else {
		ctx = genericapirequest.WithNamespace(ctx, "")
	}
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		APIGroup:          restaurant.GroupName,
		APIVersion:        restaurantv1.SchemeGroupVersion.Version,
		Resource:          resource,
		Subresource:       subresource,
	})
}

func margherita() *restaurant.Pizza {
	return &restaurant.Pizza{
		ObjectMeta: metav1.ObjectMeta{Name: "margherita", Namespace: "default", Labels: map[string]string{"old": "label"}},
		Spec:       restaurant.PizzaSpec{Toppings: []restaurant.PizzaTopping{{Name: "tomato", Quantity: 1}, {Name: "mozzarella", Quantity: 2}}, Replicas: 5},
		Status:     restaurant.PizzaStatus{Replicas: 3},
	}
}

func create(t *testing.T, storage map[string]rest.Storage, resource string, obj runtime.Object) runtime.Object {
	t.Helper()
	created, err := storage[resource].(rest.Creater).Create(requestContext(t, resource, ""), obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func update(t *testing.T, storage map[string]rest.Storage, path, subresource, name string, obj runtime.Object) (runtime.Object, error) {
	t.Helper()
	updated, _, err := storage[path].(rest.Updater).Update(requestContext(t, "pizzas", subresource), name, rest.DefaultUpdatedObjectInfo(obj),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return updated, err
}

// TestPaths fails when a resource or a subresource is lost, or added without notice.
func TestPaths(t *testing.T) {
	got := map[string]bool{}
	for path := range newStorage(t) {
		got[path] = true
	}
	want := map[string]bool{
		"pizzas": true, "pizzas/status": true, "pizzas/scale": true, "pizzas/bake": true, "pizzas/track": true,
		"toppings": true, "pricereviews": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unexpected paths (-want +got):\n%s", diff)
	}
}

// TestOneStoreForAllVersions guards against a watch cache for each version.
func TestOneStoreForAllVersions(t *testing.T) {
	byVersion := newStorageByVersion(t)
	if len(byVersion) != 3 {
		t.Fatalf("got %d versions, want 3", len(byVersion))
	}
	for version, storage := range byVersion {
		for path, want := range byVersion["v1"] {
			if path == "pricereviews" {
				continue // Only v1 has them, and there is no store.
			}
			if storage[path] != want {
				t.Errorf("%s of %s has a storage of its own", path, version)
			}
		}
	}
}

func TestFieldSelectors(t *testing.T) {
	storage := newStorage(t)
	create(t, storage, "pizzas", margherita())
	for selector, want := range map[string]int{
		"metadata.name=margherita":   1,
		"metadata.namespace=default": 1,
		"spec.replicas=5":            1,
		"spec.replicas=4":            0,
		"status.replicas=0":          1,
		"status.cost=":               1,
		"status.cost!=":              0,
	} {
		t.Run(selector, func(t *testing.T) {
			parsed, err := fields.ParseSelector(selector)
			if err != nil {
				t.Fatal(err)
			}
			list, err := storage["pizzas"].(rest.Lister).List(requestContext(t, "pizzas", ""), &metainternalversion.ListOptions{FieldSelector: parsed})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(list.(*restaurant.PizzaList).Items); got != want {
				t.Errorf("got %d pizzas, want %d", got, want)
			}
		})
	}
}

func TestColumns(t *testing.T) {
	priced := margherita()
	priced.CreationTimestamp = metav1.NewTime(time.Now().Add(-30 * time.Minute))
	priced.Status.Cost = resource.NewMilliQuantity(4300, resource.DecimalSI)
	priced.Status.Conditions = []metav1.Condition{
		{Type: restaurantv1.PizzaPriced, Status: metav1.ConditionTrue, Reason: "AllToppingsPriced"},
		{Type: restaurantv1.PizzaReady, Status: metav1.ConditionFalse, Reason: "Baking"},
	}
	unpriced := margherita()
	unpriced.Name = "new"
	tomato := &restaurant.Topping{ObjectMeta: metav1.ObjectMeta{Name: "tomato"}, Spec: restaurant.ToppingSpec{Cost: resource.NewMilliQuantity(800, resource.DecimalSI)}}

	storage := newStorage(t)
	for name, test := range map[string]struct {
		resource    string
		obj         runtime.Object
		wantColumns []string
		wantCells   [][]any
	}{
		"pizzas": {"pizzas", &restaurant.PizzaList{Items: []restaurant.Pizza{*priced, *unpriced}},
			[]string{"Name", "Toppings", "Replicas", "Cost", "Age", "Condition", "Reason"},
			[][]any{
				{"margherita", "tomato,mozzarella×2", "3/5", "4.3", "30m", "Ready", "Baking"},
				{"new", "tomato,mozzarella×2", "3/5", "<unknown>", "<unknown>", "", ""},
			}},
		"a topping": {"toppings", tomato, []string{"Name", "Cost", "Age"}, [][]any{{"tomato", "0.8", "<unknown>"}}},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := storage[test.resource].(rest.TableConvertor).ConvertToTable(t.Context(), test.obj, nil)
			if err != nil {
				t.Fatal(err)
			}
			var columns []string
			for _, column := range table.ColumnDefinitions {
				columns = append(columns, column.Name)
			}
			var cells [][]any
			for _, row := range table.Rows {
				cells = append(cells, row.Cells)
			}
			if diff := cmp.Diff(test.wantColumns, columns); diff != "" {
				t.Errorf("unexpected columns (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantCells, cells); diff != "" {
				t.Errorf("unexpected cells (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStoragePrefixes pins the paths of objects in etcd. A change would lose
// existing objects.
func TestStoragePrefixes(t *testing.T) {
	want := map[schema.GroupResource]string{
		restaurant.Resource("pizzas"):   "restaurant.programming-kubernetes.info/pizzas",
		restaurant.Resource("toppings"): "restaurant.programming-kubernetes.info/toppings",
	}
	if diff := cmp.Diff(want, group().StoragePrefixes()); diff != "" {
		t.Errorf("unexpected prefixes (-want +got):\n%s", diff)
	}
}

func TestQuantityCell(t *testing.T) {
	for stored, want := range map[string]string{
		"5300m": "5.3",
		"1.50":  "1.5",
		"10":    "10",
		"1k":    "1000",
		"0":     "0",
		"1n":    "0.000000001",
	} {
		quantity := resource.MustParse(stored)
		if got := quantityCell(&quantity); got != want {
			t.Errorf("%s: got %v, want %s", stored, got, want)
		}
		// An object that is shared with a cache must not change.
		if !reflect.DeepEqual(quantity, resource.MustParse(stored)) {
			t.Errorf("%s has been converted in place", stored)
		}
	}
}
