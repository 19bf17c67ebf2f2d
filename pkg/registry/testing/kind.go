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

package testing

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/registry/rest/resttest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// Case has the objects and changes for TestKind of a kind with internal type O.
type Case[O registry.Object] struct {
	// Valid can be created. Its name and namespace do not matter.
	Valid O
	// Invalid, unless nil, can't be created, for a reason outside of its metadata.
	Invalid O
	// Update makes an allowed change to a valid object. By default, it adds a label.
	Update func(O)
	// Corrupt, unless nil, makes a valid object invalid.
	Corrupt func(O)
}

// TestExample runs TestKind with the object of a YAML file, which may be in any version of the group. It has the defaults
// of that version.
func TestExample[O registry.Object](t *testing.T, group registry.Group, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	registry.InstallMeta(scheme)
	if err := group.InstallTypes(scheme); err != nil {
		t.Fatal(err)
	}
	internal := schema.GroupVersion{Group: group.Name, Version: runtime.APIVersionInternal}
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDecoder(internal), text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	valid, ok := object.(O)
	if !ok {
		t.Fatalf("%s has a %T, want a %T", file, object, valid)
	}
	TestKind(t, group, Case[O]{Valid: valid})
}

// TestKind runs k8s.io/apiserver's own tests of a storage on a kind of a group. Each is a
// subtest. They call the storage like the endpoint handlers, and are the same for all
// kinds of kube-apiserver. See k8s.io/apiserver/pkg/registry/rest/resttest.
func TestKind[O registry.Object](t *testing.T, group registry.Group, test Case[O]) {
	t.Helper()
	if test.Update == nil {
		test.Update = func(o O) { o.SetLabels(map[string]string{"updated": "true"}) }
	}
	var none O
	invalid := func(s *tester[O]) (objects []runtime.Object) {
		if any(test.Invalid) != any(none) {
			objects = append(objects, s.object(test.Invalid))
		}
		return objects
	}
	var corrupt []resttest.UpdateFunc
	if test.Corrupt != nil {
		corrupt = append(corrupt, changed(test.Corrupt))
	}
	for name, run := range map[string]func(*tester[O]){
		"create": func(s *tester[O]) { s.TestCreate(s.object(test.Valid), s.create, s.get, invalid(s)...) },
		"update": func(s *tester[O]) {
			s.TestUpdate(s.object(test.Valid), s.create, s.get, changed(test.Update), corrupt...)
		},
		"delete": func(s *tester[O]) { s.TestDelete(s.object(test.Valid), s.create, s.get, apierrors.IsNotFound) },
		"get":    func(s *tester[O]) { s.TestGet(s.object(test.Valid)) },
		"list":   func(s *tester[O]) { s.TestList(s.object(test.Valid), s.assign) },
		"watch": func(s *tester[O]) {
			valid := s.object(test.Valid).(O)
			valid.SetLabels(map[string]string{"shape": "round"})
			s.TestWatch(valid, s.emit,
				[]labels.Set{{"shape": "round"}}, []labels.Set{{"shape": "square"}},
				[]fields.Set{{"metadata.name": "emitted-5"}}, []fields.Set{{"metadata.name": "other"}},
				[]string{string(watch.Added), string(watch.Deleted)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The test of watches begins at etcd's first revision. A cache knows it
			// only if it was there from the start, so each test has an etcd of its own.
			run(newTester[O](t, NewStorage(t, group)))
		})
	}
}

func changed[O registry.Object](change func(O)) resttest.UpdateFunc {
	return func(obj runtime.Object) runtime.Object {
		o := obj.DeepCopyObject().(O)
		change(o)
		return o
	}
}

// tester adapts the storage of a kind to resttest.
type tester[O registry.Object] struct {
	rest.StandardStorage
	*resttest.Tester
	storage  *Storage
	resource string
	emitted  int
}

func newTester[O registry.Object](t *testing.T, storage *Storage) *tester[O] {
	t.Helper()
	version, resource, kind := find[O](storage)
	if kind == nil {
		var none O
		t.Fatalf("%s stores no kind with the internal type %T", storage.group.Name, none)
	}
	s := &tester[O]{StandardStorage: kind, Tester: resttest.New(t, kind), storage: storage, resource: resource}
	if !kind.(rest.Scoper).NamespaceScoped() {
		s.ClusterScope()
	}
	info, _ := genericapirequest.RequestInfoFrom(storage.Context(t.Context(), version, resource, s.TestNamespace()))
	s.SetRequestInfo(info)
	return s
}

// find returns the storage of the kind with internal type O, in the first version that
// serves it.
func find[O registry.Object](s *Storage) (version, resource string, storage rest.StandardStorage) {
	for _, version := range s.Scheme.PrioritizedVersionsForGroup(s.group.Name) {
		paths := s.ByVersion[version.Version]
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			kind, ok := paths[path].(rest.StandardStorage)
			if !ok || strings.Contains(path, "/") {
				continue
			}
			if _, ok := kind.New().(O); ok {
				return version.Version, path, kind
			}
		}
	}
	return "", "", nil
}

// object returns a copy of an object in the namespace of the test.
func (s *tester[O]) object(of O) runtime.Object {
	o := of.DeepCopyObject().(O)
	o.SetNamespace(s.TestNamespace())
	return o
}

// create stores an object with the test's uid, which the strategy would replace.
func (s *tester[O]) create(ctx context.Context, obj runtime.Object) error {
	return s.storage.Write(ctx, s.resource, obj)
}

func (s *tester[O]) get(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	return s.Get(ctx, obj.(O).GetName(), &metav1.GetOptions{})
}

// assign replaces all stored objects, and returns the new ones as they are stored.
func (s *tester[O]) assign(objects []runtime.Object) []runtime.Object {
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
func (s *tester[O]) emit(like runtime.Object, action string) error {
	s.emitted++
	o := like.DeepCopyObject().(O)
	o.SetName(fmt.Sprintf("emitted-%d", s.emitted))
	if err := s.create(s.TestContext(), o); err != nil || action == string(watch.Added) {
		return err
	}
	_, _, err := s.Delete(s.TestContext(), o.GetName(), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	return err
}
