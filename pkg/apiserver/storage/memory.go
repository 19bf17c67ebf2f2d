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
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// averageInterval is how long the average size of the objects of a resource is remembered.
const averageInterval = 5 * time.Second

// boundedStorage charges each list to the budget of the requests as soon as its length is known.
// Objects that a watch cache has returned are shared with it, and cost nothing before they are converted
// and encoded. A list that a client has read from etcd is charged for all objects before that. Large objects
// are charged one by one: those that are read, changed and watched. So are the states that a watch cache
// keeps of them for watches. Without a watch cache, their sizes are known when they have been read.
type boundedStorage struct {
	storage.Interface
	// newObject makes an object to look one up in the cache, nil without a cache.
	newObject func() runtime.Object
	large     *limits.LargestObject
	writes    *largeWrites
	// caches are the watch caches of the resource: a custom resource has one for each version.
	caches *atomic.Int64

	// average is the size of an object as it is stored, as it was at some nanosecond.
	average, at atomic.Int64
	// most is the size of all objects together, and mostAverage the average, that a list of the past may have.
	most, mostAverage recentMost
	// first is done when the average has been asked for once.
	first sync.Once
}

// recentMost is the largest of some numbers, at least since pastTime.
type recentMost struct {
	mu sync.Mutex
	// current is the largest number since some time, and before that of the time before.
	current, before int64
	since           time.Time
}

// pastTime is how long etcd keeps the past, with the default of --etcd-compaction-interval.
const pastTime = 10 * time.Minute

func (r *recentMost) observe(number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.since) > pastTime {
		r.current, r.before, r.since = 0, r.current, time.Now()
	}
	r.current = max(r.current, number)
}

func (r *recentMost) get() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.current, r.before)
}

// largeWrites are the large objects that this server has written of late. Watch caches get to know them
// later, and a custom resource has a cache for each version. Without them, all requests for an object
// until then would be let in.
type largeWrites struct{ sizes sync.Map }

// writeTime is how long a write is remembered, which is longer than watch caches are behind.
const writeTime = time.Minute

func (w *largeWrites) add(key string, size int64) {
	if size == 0 {
		w.sizes.Delete(key)
		return
	}
	w.sizes.Store(key, size)
	time.AfterFunc(writeTime, func() { w.sizes.CompareAndDelete(key, size) })
}

func (w *largeWrites) size(key string) int64 {
	size, _ := w.sizes.Load(key)
	bytes, _ := size.(int64)
	return bytes
}

// GetList lists objects as far as there is memory for them.
func (s *boundedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	read := mayRead(opts)
	if read {
		if err := s.reserve(ctx, key, opts); err != nil {
			return err
		}
	}
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	s.refresh()
	// A large object among many small ones hardly changes their average, and a selector finds it alone.
	var large int64
	size := limits.LargeSize
	if s.newObject == nil {
		size = limits.Size // Only a watch cache knows their average.
	}
	if limits.TakesMemory(ctx) && (s.newObject == nil || !s.large.None()) {
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			large += size(object)
			return nil
		}); err != nil {
			return err
		}
	}
	length, average := int64(meta.LenList(list)), s.average.Load()
	if !read {
		return limits.TakeListMemory(ctx, max(large, length*average), 0)
	}
	average = s.mostAverage.get()
	_, factor := s.factors()
	return limits.TakeListMemory(ctx, max(large, length*average), length*average*factor)
}

// mayRead tells whether a list may be read from etcd. A watch cache forgets a revision that many events have followed.
// If it is late by seconds, or fills again, lists are read from etcd, too, which no client can bring about.
func mayRead(opts storage.ListOptions) bool {
	match, version, pages := opts.ResourceVersionMatch, opts.ResourceVersion, opts.Predicate
	exact := match == metav1.ResourceVersionMatchExact || match == "" && pages.Limit > 0 && version != "" && version != "0"
	return exact || pages.Continue != ""
}

// reserve takes memory for a list that may be read from etcd.
func (s *boundedStorage) reserve(ctx context.Context, key string, opts storage.ListOptions) error {
	if !opts.Recursive { // It is of one object.
		return s.takeFor(ctx, key)
	}
	s.refresh()
	_, factor := s.factors()
	return limits.ReserveListMemory(ctx, mostRead(opts.Predicate, s.most.get(), max(s.mostAverage.get(), s.large.Largest()))*factor)
}

// mostRead is how many bytes of all a list has in memory at once when it is read from etcd. For a page that few objects
// match, the library reads ever more of them at once.
func mostRead(pages storage.SelectionPredicate, all, object int64) int64 {
	const mostAtOnce = 10_000
	if pages.Limit <= 0 {
		return all
	}
	objects := min(pages.Limit, all) // None is smaller than a byte.
	if pages.Label != nil && pages.Field != nil && !pages.Empty() {
		objects = max(objects, mostAtOnce)
	}
	return min(all, objects*object)
}

// takeFor takes memory for what is stored under a key, as far as that is known before it is read from etcd.
func (s *boundedStorage) takeFor(ctx context.Context, key string) error {
	if !limits.TakesMemory(ctx) {
		return nil
	}
	size := s.writes.size(key)
	if s.newObject != nil && !s.large.None() {
		object := s.newObject()
		// After an error, it is read from etcd.
		if s.Interface.Get(ctx, key, storage.GetOptions{ResourceVersion: "0", IgnoreNotFound: true}, object) == nil {
			size = max(size, limits.LargeSize(object))
		}
	}
	return limits.TakeObjectMemory(ctx, size)
}

// Get reads an object if there is memory for it.
func (s *boundedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, object runtime.Object) error {
	if err := s.takeFor(ctx, key); err != nil {
		return err
	}
	if err := s.Interface.Get(ctx, key, opts, object); err != nil {
		return err
	}
	return limits.TakeObjectMemory(ctx, limits.LargeSize(object))
}

// Create stores an object.
func (s *boundedStorage) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	s.renew() // It may be deleted before anybody lists it.
	s.writes.add(key, s.large.Observe(object))
	return s.Interface.Create(ctx, key, object, out, ttl)
}

// GuaranteedUpdate changes an object if there is memory for it.
func (s *boundedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	if err := s.takeFor(ctx, key); err != nil {
		return err
	}
	s.renew()
	var before uint64
	forget := func() {}
	update := func(object runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before = meta.ResourceVersion
		if err := limits.TakeObjectMemory(ctx, limits.LargeSize(object)); err != nil {
			return nil, nil, err
		}
		changed, ttl, err := tryUpdate(object, meta)
		if err != nil {
			return nil, nil, err
		}
		forget() // It may be another attempt.
		if forget, err = limits.TakeHistoryMemory(ctx, changed, s.caches.Load()); err != nil {
			return nil, nil, err
		}
		s.writes.add(key, s.large.Observe(changed))
		return changed, ttl, nil
	}
	err := s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	// An object that is the same as before has not been written.
	if after, versionErr := s.Versioner().ObjectResourceVersion(destination); err != nil || versionErr == nil && after == before {
		forget()
	}
	return err
}

// Delete deletes an object if there is memory for it.
func (s *boundedStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	if err := s.takeFor(ctx, key); err != nil {
		return err
	}
	forget := func() {}
	validateRead := func(ctx context.Context, object runtime.Object) error {
		if err := limits.TakeObjectMemory(ctx, limits.LargeSize(object)); err != nil {
			return err
		}
		if err := validate(ctx, object); err != nil {
			return err
		}
		forget() // It may be another attempt.
		// An older object was in the memory of watch caches already, and a client can delete it only once.
		if accessor, err := meta.Accessor(object); err != nil || time.Since(accessor.GetCreationTimestamp().Time) >= limits.HistoryTime {
			return err
		}
		var err error
		forget, err = limits.TakeHistoryMemory(ctx, object, s.caches.Load())
		return err
	}
	err := s.Interface.Delete(ctx, key, out, preconditions, validateRead, cached, opts)
	if err != nil {
		forget()
	}
	return err
}

// Watch watches objects as far as there is memory for their events.
func (s *boundedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	watched, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	s.refresh()
	copied, _ := s.factors()
	return s.large.Watch(ctx, watched, s.average.Load()*copied)
}

// factors returns multiples of an object's size in storage. copied is what its copy takes. read is its part of a list
// from etcd, as a multiple of a cached one's. Each object of a custom resource has some twenty maps.
func (s *boundedStorage) factors() (copied, read int64) {
	if s.newObject != nil {
		if _, untyped := s.newObject().(runtime.Unstructured); untyped {
			return 10, 4
		}
	}
	return 2, 2
}

// refresh asks for the average from time to time. Only the first lists and watches wait for that, since
// it takes an answer of etcd, which those from the cache do not need.
func (s *boundedStorage) refresh() {
	s.first.Do(s.askAverage)
	s.renew()
}

func (s *boundedStorage) renew() {
	now, at := time.Now().UnixNano(), s.at.Load()
	if time.Duration(now-at) < averageInterval || !s.at.CompareAndSwap(at, now) {
		return
	}
	go s.askAverage()
}

func (s *boundedStorage) askAverage() {
	ctx, cancel := context.WithTimeout(context.Background(), averageInterval)
	defer cancel()
	if stats, err := s.Stats(ctx); err == nil {
		s.average.Store(stats.EstimatedAverageObjectSizeBytes)
		s.mostAverage.observe(stats.EstimatedAverageObjectSizeBytes)
		s.most.observe(stats.ObjectCount * stats.EstimatedAverageObjectSizeBytes)
	}
}
