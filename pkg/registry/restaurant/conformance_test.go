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
	"fmt"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/registry/rest/resttest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// stored is the storage of a kind that resttest drives.
type stored struct {
	rest.StandardStorage
	*resttest.Tester
	emitted int
}

// create writes an object as it is, with a uid of the test's, which the strategy would
// replace.
func (s *stored) create(ctx context.Context, obj runtime.Object) error {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	store := reflect.ValueOf(s.StandardStorage).Elem().FieldByName("Store").Interface().(*genericregistry.Store)
	key, err := store.KeyFunc(ctx, accessor.GetName())
	if err != nil {
		return err
	}
	return store.Storage.Create(ctx, key, obj, store.New(), 0, false)
}

func (s *stored) get(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, accessor.GetName(), &metav1.GetOptions{})
}

// assign makes the objects all that there are, and returns them as they are stored.
func (s *stored) assign(objects []runtime.Object) []runtime.Object {
	s.Helper()
	ctx := s.TestContext()
	if _, err := s.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &metainternalversion.ListOptions{}); err != nil {
		s.Fatal(err)
	}
	for i, object := range objects {
		var err error
		if objects[i], err = s.Create(ctx, object, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	return objects
}

// emit causes an event about an object like this one.
func (s *stored) emit(like runtime.Object, action string) error {
	s.emitted++
	object := like.DeepCopyObject()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	accessor.SetName(fmt.Sprintf("emitted-%d", s.emitted))
	if err := s.create(s.TestContext(), object); err != nil || action == string(watch.Added) {
		return err
	}
	_, _, err = s.Delete(s.TestContext(), accessor.GetName(), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	return err
}

// TestLibrarysTests runs the library's own tests of what a storage has to do. They call it
// as the endpoint handlers do, and are the same for all kinds of kube-apiserver.
func TestLibrarysTests(t *testing.T) {
	pizza := margherita()
	pizza.Namespace, pizza.Status = "test", restaurant.PizzaStatus{}
	pizzaWithout := pizza.DeepCopy()
	pizzaWithout.Spec.Toppings = nil
	topping := &restaurant.Topping{
		ObjectMeta: metav1.ObjectMeta{Name: "tomato", Labels: map[string]string{"old": "label"}},
		Spec:       restaurant.ToppingSpec{Cost: new(resource.MustParse("1"))},
	}
	tooExpensive := resource.MustParse("2000000000")
	toppingTooExpensive := topping.DeepCopy()
	toppingTooExpensive.Spec.Cost = &tooExpensive

	for path, test := range map[string]struct {
		clusterScope    bool
		valid, invalid  runtime.Object
		update, corrupt func(runtime.Object)
	}{
		"pizzas": {
			valid: pizza, invalid: pizzaWithout,
			update:  func(obj runtime.Object) { obj.(*restaurant.Pizza).Spec.Replicas++ },
			corrupt: func(obj runtime.Object) { obj.(*restaurant.Pizza).Spec.Replicas = -1 },
		},
		"toppings": {
			clusterScope: true,
			valid:        topping, invalid: toppingTooExpensive,
			update:  func(obj runtime.Object) { obj.(*restaurant.Topping).Spec.Cost = new(resource.MustParse("3")) },
			corrupt: func(obj runtime.Object) { obj.(*restaurant.Topping).Spec.Cost = &tooExpensive },
		},
	} {
		updated := func(change func(runtime.Object)) resttest.UpdateFunc {
			return func(obj runtime.Object) runtime.Object {
				obj = obj.DeepCopyObject()
				change(obj)
				return obj
			}
		}
		for name, run := range map[string]func(s *stored){
			"create": func(s *stored) { s.TestCreate(test.valid, s.create, s.get, test.invalid) },
			"update": func(s *stored) {
				s.TestUpdate(test.valid, s.create, s.get, updated(test.update), updated(test.corrupt))
			},
			"delete": func(s *stored) { s.TestDelete(test.valid, s.create, s.get, apierrors.IsNotFound) },
			"get":    func(s *stored) { s.TestGet(test.valid) },
			"list":   func(s *stored) { s.TestList(test.valid, s.assign) },
			"watch": func(s *stored) {
				s.TestWatch(test.valid, s.emit,
					[]labels.Set{{"old": "label"}}, []labels.Set{{"old": "wine"}},
					[]fields.Set{{"metadata.name": "emitted-5"}}, []fields.Set{{"metadata.name": "wine"}},
					[]string{string(watch.Added), string(watch.Deleted)})
			},
		} {
			t.Run(path+"/"+name, func(t *testing.T) {
				storage := newStorage(t)[path].(rest.StandardStorage)
				tester := resttest.New(t, storage)
				if test.clusterScope {
					tester = tester.ClusterScope()
				}
				info, _ := genericapirequest.RequestInfoFrom(requestContext(t, path, ""))
				tester.SetRequestInfo(info)
				run(&stored{StandardStorage: storage, Tester: tester})
			})
		}
	}
}
