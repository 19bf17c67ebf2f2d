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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// statsInterval is how long the number and the average size of the objects of a resource are remembered.
const statsInterval = 5 * time.Second

// boundedStorage takes memory of the gate for lists, and for large objects. A watch cache shares its objects, so that a
// list of it costs nothing before it is converted and encoded. What is read from etcd is charged before.
type boundedStorage struct {
	storage.Interface
	large largeObjects
	// prefix is the prefix of all keys in etcd.
	prefix string
	// average is the average size of the resource's values in etcd.
	average *atomic.Int64
	// cached is true if there is a watch cache.
	cached bool
	// stats are nil before they have been asked for once.
	stats atomic.Pointer[storage.Stats]
	asked atomic.Int64
}

// GetList lists objects as far as there is memory for them.
func (s *boundedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	stats := s.currentStats()
	if !opts.Recursive { // It is of one object.
		if err := limits.ReserveObject(ctx, s.large.size(s.prefix+key)); err != nil {
			return err
		}
	} else if !s.cached || fromEtcd(opts) {
		objects := min(opts.Predicate.Limit, stats.ObjectCount)
		if opts.Predicate.Limit == 0 {
			var err error
			if objects, err = s.count(ctx, key, list.DeepCopyObject()); err != nil {
				return err
			}
		}
		if err := limits.ReserveList(ctx, objects*stats.EstimatedAverageObjectSizeBytes); err != nil {
			return err
		}
	}
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	if _, encoded := list.(interface{ Encoded() }); encoded {
		return nil
	}
	return limits.ReserveList(ctx, int64(meta.LenList(list))*stats.EstimatedAverageObjectSizeBytes)
}

// count returns how many objects an unlimited list reads, by a list of one.
func (s *boundedStorage) count(ctx context.Context, key string, list runtime.Object) (int64, error) {
	one := storage.ListOptions{Predicate: storage.Everything, Recursive: true}
	one.Predicate.Limit = 1
	if err := s.Interface.GetList(ctx, key, one, list); err != nil {
		return 0, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	return int64(meta.LenList(list)) + ptr.Deref(accessor.GetRemainingItemCount(), 0), nil
}

// fromEtcd reports whether a list may be read from etcd. A watch cache forgets a revision that many events have followed.
func fromEtcd(opts storage.ListOptions) bool {
	match, version, pages := opts.ResourceVersionMatch, opts.ResourceVersion, opts.Predicate
	exact := match == metav1.ResourceVersionMatchExact || match == "" && pages.Limit > 0 && version != "" && version != "0"
	return exact || pages.Continue != ""
}

// Stats returns the number and the average size of the objects. k8s.io/apiserver knows the sizes of a cache of its own only.
func (s *boundedStorage) Stats(ctx context.Context) (storage.Stats, error) {
	stats, err := s.Interface.Stats(ctx)
	if stats.EstimatedAverageObjectSizeBytes == 0 {
		stats.EstimatedAverageObjectSizeBytes = max(s.average.Load(), unknownObject)
	}
	return stats, err
}

// currentStats asks for the statistics from time to time. Only the first list waits for that.
func (s *boundedStorage) currentStats() storage.Stats {
	ask := func() {
		ctx, cancel := context.WithTimeout(context.Background(), statsInterval)
		defer cancel()
		if stats, err := s.Stats(ctx); err == nil {
			s.stats.Store(&stats)
		}
	}
	now, asked := time.Now().UnixNano(), s.asked.Load()
	if time.Duration(now-asked) >= statsInterval && s.asked.CompareAndSwap(asked, now) {
		if s.stats.Load() == nil {
			ask()
		} else {
			go ask()
		}
	}
	if stats := s.stats.Load(); stats != nil {
		return *stats
	}
	return storage.Stats{}
}

// Get reads an object if there is memory for it.
func (s *boundedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, object runtime.Object) error {
	if err := limits.ReserveObject(ctx, s.large.size(s.prefix+key)); err != nil {
		return err
	}
	return s.Interface.Get(ctx, key, opts, object)
}

// GuaranteedUpdate changes an object if there is memory for it.
func (s *boundedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	if err := limits.ReserveObject(ctx, s.large.size(s.prefix+key)); err != nil {
		return err
	}
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
}

// Delete deletes an object if there is memory for it.
func (s *boundedStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	if err := limits.ReserveObject(ctx, s.large.size(s.prefix+key)); err != nil {
		return err
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

const (
	// averagedObjects is about the number of most recent objects whose average size counts.
	averagedObjects = 64
	// unknownObject is the assumed size of an object before one has been read, in bytes.
	unknownObject = 1 << 10
)

// largeObject is the size from which single objects are known, in bytes. A smaller one takes less than a connection.
const largeObject = 32 << 10

// largeObjects are the sizes of large values in etcd, by their keys: those that were read or written most recently.
type largeObjects struct {
	sizes *lru.Cache
	// averages are those of all objects, by their schema.GroupResource.
	averages *sync.Map
}

func newLargeObjects() largeObjects { return largeObjects{lru.New(10_000), &sync.Map{}} }

func (l largeObjects) average(resource schema.GroupResource) *atomic.Int64 {
	average, _ := l.averages.LoadOrStore(resource, &atomic.Int64{})
	return average.(*atomic.Int64)
}

func (l largeObjects) observe(key string, size int) {
	if size >= largeObject {
		l.sizes.Add(key, int64(size))
	} else if l.sizes.Len() > 0 {
		l.sizes.Remove(key)
	}
}

func (l largeObjects) size(key string) int64 {
	size, _ := l.sizes.Get(key)
	bytes, _ := size.(int64)
	return bytes
}
