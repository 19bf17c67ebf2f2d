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

package storage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// fixedStorage has lists of one length, the first of whose objects may be large.
type fixedStorage struct {
	storage.Interface
	length int
	large  int
	stats  storage.Stats
	err    error
	// reading is called while a list is read from etcd.
	reading func()
}

func (s fixedStorage) GetList(_ context.Context, _ string, options storage.ListOptions, list runtime.Object) error {
	if mayRead(options) {
		s.reading()
	}
	items := make([]metav1.PartialObjectMetadata, s.length)
	if s.large > 0 {
		items[0].Annotations = map[string]string{"a": strings.Repeat("x", s.large)}
	}
	list.(*metav1.PartialObjectMetadataList).Items = items
	return nil
}

func (fixedStorage) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewFakeWithChanSize(10, false), nil
}

func (fixedStorage) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return nil
}

func (s fixedStorage) Stats(context.Context) (storage.Stats, error) { return s.stats, s.err }

// A list takes memory by its own length, however many objects there are, and for the large objects in it. One that may be
// read from etcd takes it for all of them: 60 lists of 5000 objects once took 1.4 GB.
func TestListsTakeMemory(t *testing.T) {
	const average = 1 << 10
	// Only a few of them match.
	thousand := fixedStorage{length: 1, stats: storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: average}}
	for name, test := range map[string]struct {
		fixedStorage
		options storage.ListOptions
		// other is the size of an object that is not in the list.
		other int
		// written is the size of a large one that is listed alone.
		written  int64
		uncached bool
		tooMany  bool
	}{
		"few of many":                    {fixedStorage: fixedStorage{length: 10, stats: storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: average}}},
		"many":                           {fixedStorage: fixedStorage{length: 100, stats: storage.Stats{ObjectCount: 100, EstimatedAverageObjectSizeBytes: average}}, tooMany: true},
		"large ones":                     {fixedStorage: fixedStorage{length: 1, large: 40 << 10, stats: storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: average}}, tooMany: true},
		"large, uncached":                {fixedStorage: fixedStorage{length: 1, large: 40 << 10, stats: storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: average}}, uncached: true, tooMany: true},
		"of an old revision":             {fixedStorage: thousand, options: storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact, ResourceVersion: "7", Recursive: true}, tooMany: true},
		"one of an old revision":         {fixedStorage: thousand, options: storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact, ResourceVersion: "7"}},
		"a large one of it":              {fixedStorage: thousand, written: 40 << 10, options: storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact, ResourceVersion: "7"}, tooMany: true},
		"not older":                      {fixedStorage: thousand, options: storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "7", Recursive: true}},
		"pages of an old revision":       {fixedStorage: thousand, options: storage.ListOptions{ResourceVersion: "7", Predicate: storage.SelectionPredicate{Limit: 5}, Recursive: true}},
		"large pages of an old revision": {fixedStorage: thousand, options: storage.ListOptions{ResourceVersion: "7", Predicate: storage.SelectionPredicate{Limit: 900}, Recursive: true}, tooMany: true},
		"pages with a selector":          {fixedStorage: thousand, options: storage.ListOptions{ResourceVersion: "7", Predicate: storage.SelectionPredicate{Limit: 1, Label: labels.SelectorFromSet(labels.Set{"a": "b"}), Field: fields.Everything()}, Recursive: true}, tooMany: true},
		"pages without one":              {fixedStorage: thousand, options: storage.ListOptions{ResourceVersion: "7", Predicate: storage.SelectionPredicate{Limit: 1, Label: labels.Everything(), Field: fields.Everything()}, Recursive: true}},
		"the first pages":                {fixedStorage: thousand, options: storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 900}, Recursive: true}},
		"pages of any revision":          {fixedStorage: thousand, options: storage.ListOptions{ResourceVersion: "0", Predicate: storage.SelectionPredicate{Limit: 900}, Recursive: true}},
		"a page that may have it":        {fixedStorage: thousand, other: 40 << 10, options: storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 5, Continue: "a"}, Recursive: true}, tooMany: true},
		"a page":                         {fixedStorage: thousand, options: storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 5, Continue: "a"}, Recursive: true}},
		"the last page":                  {fixedStorage: thousand, options: storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 900, Continue: "a"}, Recursive: true}, tooMany: true},
		"none":                           {},
		"without a limit":                {fixedStorage: thousand, options: storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact, ResourceVersion: "7", Predicate: storage.SelectionPredicate{Limit: -1}, Recursive: true}, tooMany: true},
		"small, uncached":                {fixedStorage: fixedStorage{length: 10_000}, uncached: true, tooMany: true},
		"of unknown size":                {fixedStorage: fixedStorage{length: 100, err: errors.New("etcd does not answer")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := limits.DefaultBounds()
				bounds.RequestMemory = 4 * 4 * 50 * average // So a user has memory for lists of 50.
				var reading func()
				test.reading = func() { reading() }
				store := &boundedStorage{Interface: test.fixedStorage, large: new(limits.LargestObject), writes: new(largeWrites)}
				store.writes.add("/", test.written)
				if !test.uncached { // The cache has seen what is listed.
					store.newObject = func() runtime.Object { return &metav1.PartialObjectMetadata{} }
					store.large.Observe(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", max(test.large, test.other))}}})
				}
				list := func(ctx context.Context, second func()) error {
					reading = sync.OnceFunc(second)
					defer reading() // The list is being sent.
					return store.GetList(ctx, "/", test.options, &metav1.PartialObjectMetadataList{})
				}
				requireSecond(t, bounds, "list", list, test.tooMany)
			})
		})
	}
}

// A list of the past takes memory for the objects that there were. Those of deleted objects once took none.
func TestListsOfThePastTakeMemory(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		// answered says that the first list has been read when the second one arrives.
		answered, tooMany bool
	}{
		"at once":             {0, false, true},
		"while etcd keeps it": {pastTime + 2*averageInterval, false, true},
		"read":                {pastTime, true, true},
		"later":               {2*pastTime + 4*averageInterval, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const average = 1 << 10
				bounds := limits.DefaultBounds()
				bounds.RequestMemory = 4 * 4 * 50 * average
				store := &boundedStorage{
					Interface: fixedStorage{stats: storage.Stats{ObjectCount: 1000, EstimatedAverageObjectSizeBytes: average}},
					large:     new(limits.LargestObject), writes: new(largeWrites), newObject: func() runtime.Object { return &metav1.PartialObjectMetadata{} },
				}
				ctx := t.Context()
				require.NoError(t, store.Create(ctx, "/", &metav1.PartialObjectMetadata{}, nil, 0))
				synctest.Wait()
				var reading func()
				store.Interface = fixedStorage{length: 18, reading: func() { reading() }}
				for range test.after / averageInterval {
					time.Sleep(averageInterval)
					store.renew()
					synctest.Wait()
				}
				requireSecond(t, bounds, "list", func(ctx context.Context, second func()) error {
					reading = func() {}
					if !test.answered {
						reading = second
					}
					options := storage.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact, ResourceVersion: "7", Recursive: true}
					err := store.GetList(ctx, "/", options, &metav1.PartialObjectMetadataList{})
					if test.answered {
						second()
					}
					return err
				}, test.tooMany)
			})
		})
	}
}

// requireSecond requires that a second call is refused, or is not, while the first one's request is in work. Each call
// makes the next one.
func requireSecond(t *testing.T, bounds limits.Bounds, verb string, call func(ctx context.Context, next func()) error, tooMany bool) {
	t.Helper()
	var handler http.Handler
	serve := func() {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		handler.ServeHTTP(httptest.NewRecorder(), request.WithContext(genericapirequest.WithRequestInfo(t.Context(),
			&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: verb})))
	}
	depth := 0
	handler = filters.WithBodyBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if depth++; depth == 1 {
			assert.NoError(t, call(req.Context(), serve))
			return
		}
		err := call(req.Context(), func() {})
		assert.Equal(t, tooMany, apierrors.IsTooManyRequests(err), "%v", err)
	}), serializer.NewCodecFactory(runtime.NewScheme()), func(*http.Request, *genericapirequest.RequestInfo) bool { return false }, bounds, limits.NewWatches(bounds), 1<<20)
	serve()
	require.Equal(t, 2, depth)
}

// A watch that begins takes memory by the average size of what it begins with. Watches of custom resources, whose events
// nobody read, once ended a server.
func TestWatchesTakeMemory(t *testing.T) {
	typed := func() runtime.Object { return &metav1.PartialObjectMetadata{} }
	untyped := func() runtime.Object { return &unstructured.Unstructured{} }
	for name, test := range map[string]struct {
		newObject func() runtime.Object
		average   int64
		tooMany   bool
	}{
		"few bytes":            {typed, 1 << 10, false},
		"many bytes":           {typed, 16 << 10, true},
		"of a custom resource": {untyped, 4 << 10, true},
		"few of one":           {untyped, 1 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := limits.DefaultBounds()
				bounds.RequestMemory = 3 << 20 // So a user has 672 KiB.
				store := &boundedStorage{
					Interface: fixedStorage{stats: storage.Stats{EstimatedAverageObjectSizeBytes: test.average}},
					large:     new(limits.LargestObject), newObject: test.newObject,
				}
				requireSecond(t, bounds, "watch", func(ctx context.Context, next func()) error {
					watched, err := store.Watch(ctx, "/", storage.ListOptions{})
					if err == nil {
						t.Cleanup(watched.Stop)
						next()
					}
					return err
				}, test.tooMany)
			})
		})
	}
}

// storedObject is the only one of its storage.
type storedObject struct {
	storage.Interface
	metav1.PartialObjectMetadata
	// uncached is set if a watch cache does not have it, and reads is how often it has been read from etcd.
	uncached bool
	reads    int
}

func (*storedObject) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return nil
}

func (s *storedObject) Get(_ context.Context, _ string, options storage.GetOptions, object runtime.Object) error {
	if options.ResourceVersion == "0" && s.uncached {
		return nil
	}
	if options.ResourceVersion != "0" {
		s.reads++
	}
	s.DeepCopyInto(object.(*metav1.PartialObjectMetadata))
	return nil
}

func (s *storedObject) GuaranteedUpdate(ctx context.Context, key string, object runtime.Object, _ bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	if err := s.Get(ctx, key, storage.GetOptions{}, object); err != nil {
		return err
	}
	_, _, err := update(object, storage.ResponseMeta{ResourceVersion: 1})
	return err
}

func (*storedObject) Stats(context.Context) (storage.Stats, error) { return storage.Stats{}, nil }

func (*storedObject) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// toVersion returns what has an object have a version.
func toVersion(version string) storage.UpdateFunc {
	return func(object runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		object.(metav1.Object).SetResourceVersion(version)
		return object, nil, nil
	}
}

func (s *storedObject) Delete(ctx context.Context, key string, object runtime.Object, _ *storage.Preconditions, validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	if err := s.Get(ctx, key, storage.GetOptions{}, object); err != nil {
		return err
	}
	return validate(ctx, object)
}

func caches(number int64) *atomic.Int64 {
	caches := new(atomic.Int64)
	caches.Store(number)
	return caches
}

// storages are how an object may be stored, by what is known of it.
func storages() map[string]func(*storedObject) *boundedStorage {
	cached := func(object *storedObject) *boundedStorage {
		large := new(limits.LargestObject)
		large.Observe(&object.PartialObjectMetadata)
		return &boundedStorage{
			Interface: object, large: large, writes: new(largeWrites), caches: caches(1),
			newObject: func() runtime.Object { return &metav1.PartialObjectMetadata{} },
		}
	}
	return map[string]func(*storedObject) *boundedStorage{
		"cached": cached,
		"not cached yet": func(object *storedObject) *boundedStorage {
			object.uncached = true
			return cached(object)
		},
		"without a cache": func(object *storedObject) *boundedStorage {
			return &boundedStorage{Interface: object, large: new(limits.LargestObject), writes: new(largeWrites), caches: caches(1)}
		},
		"created in another version": func(object *storedObject) *boundedStorage {
			object.uncached = true
			created, other := cached(object), cached(object)
			other.writes, other.caches = created.writes, caches(2)
			_ = created.Create(context.Background(), "a", &object.PartialObjectMetadata, nil, 0) // It has no errors.
			return other
		},
		"changed in another version": func(object *storedObject) *boundedStorage {
			object.uncached = true
			changed, other := cached(object), cached(object)
			other.writes, other.caches = changed.writes, caches(3)
			_ = changed.GuaranteedUpdate(context.Background(), "a", &metav1.PartialObjectMetadata{}, false, nil, toVersion("2"), nil) // It has no errors.
			object.reads = 0
			return other
		},
	}
}

func TestLargeObjectsTakeMemory(t *testing.T) {
	for name, stored := range storages() {
		t.Run(name, func(t *testing.T) { testLargeObjects(t, stored) })
	}
}

func testLargeObjects(t *testing.T, stored func(*storedObject) *boundedStorage) {
	t.Helper()
	const size, most, about = 100 << 10, 20, 1 << 10
	var store *boundedStorage
	get := func(ctx context.Context) error {
		return store.Get(ctx, "a", storage.GetOptions{}, &metav1.PartialObjectMetadata{})
	}
	remove := func(ctx context.Context) error {
		return store.Delete(ctx, "a", &metav1.PartialObjectMetadata{}, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	}
	for name, test := range map[string]struct {
		verb string
		call func(context.Context) error
		// during is how many times its size a request takes while it is in work, and history how many times watch
		// caches keep it then.
		during, history int64
		// isNew says that the object has just been created.
		isNew bool
	}{
		"a read":    {verb: "get", call: get, during: 4},
		"a dry run": {verb: "patch", call: get, during: 12},
		"a change": {verb: "patch", call: func(ctx context.Context) error {
			return store.GuaranteedUpdate(ctx, "a", &metav1.PartialObjectMetadata{}, false, nil, toVersion("2"), nil)
		}, during: 12, history: 1},
		"no change": {verb: "patch", call: func(ctx context.Context) error {
			return store.GuaranteedUpdate(ctx, "a", &metav1.PartialObjectMetadata{}, false, nil, toVersion("1"), nil)
		}, during: 12},
		"a deletion":                 {verb: "delete", call: remove, during: 12},
		"a deletion of a new object": {verb: "delete", call: remove, during: 12, history: 1, isNew: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := limits.DefaultBounds()
				bounds.RequestMemory = 4 * most * size * 8 / 7 // A quarter of what is not for the cluster.
				object := &storedObject{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", size)}}}}
				if test.isNew {
					object.CreationTimestamp = metav1.Now()
				}
				store = stored(object)
				var work func(context.Context)
				handler := filters.WithBodyBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					work(req.Context())
				}), serializer.NewCodecFactory(runtime.NewScheme()), func(*http.Request, *genericapirequest.RequestInfo) bool { return false }, bounds, limits.NewWatches(bounds), 1<<20)
				do := func(verb string, what func(context.Context)) {
					work = what
					request := httptest.NewRequest(http.MethodGet, "/", nil)
					handler.ServeHTTP(httptest.NewRecorder(), request.WithContext(genericapirequest.WithRequestInfo(t.Context(),
						&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: verb})))
				}
				// requireTaken lists, which takes four times the size, what is left for the user.
				requireTaken := func(times int64) {
					t.Helper()
					do("list", func(ctx context.Context) {
						free := (most - times) * size / 4
						require.NoError(t, limits.TakeListMemory(ctx, free-about, 0))
						assert.Equal(t, times > 0, apierrors.IsTooManyRequests(limits.TakeListMemory(ctx, free+about, 0)))
					})
				}
				// requireHistory takes as much history as is left for the user, which is half of all but what it has.
				requireHistory := func(times int64) {
					t.Helper()
					do("update", func(ctx context.Context) {
						of := func(bytes int64) runtime.Object {
							return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", int(bytes))}}
						}
						left := bounds.RequestMemory/4 - times*size
						_, err := limits.TakeHistoryMemory(ctx, of(left+about), 1)
						assert.True(t, apierrors.IsTooManyRequests(err), "got error %v", err)
						forget, err := limits.TakeHistoryMemory(ctx, of(left-about), 1)
						require.NoError(t, err)
						forget()
					})
				}
				do(test.verb, func(ctx context.Context) {
					require.NoError(t, test.call(ctx))
					requireTaken(test.during)
				})
				requireTaken(0)
				requireHistory(test.history * store.caches.Load())
				time.Sleep(2 * time.Minute)
				requireHistory(0)
			})
		})
	}
}

// TestLargeObjectsThatWait has a user work on an object when there is no memory for that.
func TestLargeObjectsThatWait(t *testing.T) {
	unread := map[string]bool{"cached": true, "created in another version": true, "changed in another version": true}
	for name, stored := range storages() {
		t.Run(name, func(t *testing.T) {
			reads := 1
			if !unread[name] {
				reads += 3
			}
			testObjectThatWaits(t, stored, reads)
		})
	}
}

func testObjectThatWaits(t *testing.T, stored func(*storedObject) *boundedStorage, reads int) {
	t.Helper()
	object := &storedObject{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", 1<<20)}}}}
	store := stored(object)
	bounds := limits.DefaultBounds()
	bounds.RequestMemory = 4 << 20
	get := func(ctx context.Context) error {
		return store.Get(ctx, "a", storage.GetOptions{}, &metav1.PartialObjectMetadata{})
	}
	var work func(context.Context)
	handler := filters.WithBodyBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		work(req.Context())
	}), serializer.NewCodecFactory(runtime.NewScheme()), func(*http.Request, *genericapirequest.RequestInfo) bool { return false }, bounds, limits.NewWatches(bounds), 1<<20)
	do := func(what func(context.Context)) {
		work = what
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		handler.ServeHTTP(httptest.NewRecorder(), request.WithContext(genericapirequest.WithRequestInfo(t.Context(),
			&genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "patch"})))
	}
	refused := 0
	do(func(ctx context.Context) {
		require.NoError(t, get(ctx))
		do(func(ctx context.Context) {
			for _, err := range []error{
				get(ctx),
				store.GuaranteedUpdate(ctx, "a", &metav1.PartialObjectMetadata{}, false, nil, toVersion("2"), nil),
				store.Delete(ctx, "a", &metav1.PartialObjectMetadata{}, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),
			} {
				if assert.True(t, apierrors.IsTooManyRequests(err), "%v", err) {
					refused++
				}
			}
		})
	})
	require.Equal(t, 3, refused)
	require.Equal(t, reads, object.reads)
}

func TestLargeWritesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes largeWrites
		writes.add("a", 1<<20)
		writes.add("b", 1<<20)
		writes.add("b", 0)
		require.Zero(t, writes.size("b"), "it has become small")
		require.Equal(t, int64(1<<20), writes.size("a"))
		time.Sleep(writeTime / 2)
		writes.add("a", 2<<20)
		time.Sleep(writeTime/2 + time.Second)
		require.Equal(t, int64(2<<20), writes.size("a"))
		time.Sleep(writeTime / 2)
		writes.sizes.Range(func(key, size any) bool { return assert.Fail(t, "It is still there.", "%v: %v", key, size) })
	})
}
