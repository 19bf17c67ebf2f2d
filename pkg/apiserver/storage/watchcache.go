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
	"fmt"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// withCache adds the decorators and, for resources that have one, the watch cache.
func (s *Storage) withCache(getter generic.RESTOptionsGetter, raw rawStorage) generic.RESTOptionsGetter {
	return watchHistory{getter, s.Etcd, raw, s.history, s.large, cached}
}

// BaseStorage makes the stores of a Base work like the stores of the groups in Go. They bound their
// lists, resume watches after a restart and explain the errors of etcd. They have watch caches of their own.
func (s *Storage) BaseStorage(getter generic.RESTOptionsGetter, newCache NewCache) generic.RESTOptionsGetter {
	return registry.StatusErrors(watchHistory{getter, s.Etcd, rawStorage{}, s.history, s.large, newCache})
}

// watchHistory gives each watch cache a past, so that watches go on after a restart. k8s.io/apiserver
// begins its caches with the present, and answers every earlier watch with 410 Gone. All clients
// would then list everything at once. That is right only for watches from before the objects
// moved.
type watchHistory struct {
	generic.RESTOptionsGetter
	etcd    *genericoptions.EtcdOptions
	raw     rawStorage
	history *history
	large   largeObjects
	cached  NewCache
}

// GetRESTOptions returns how a resource is stored.
func (h watchHistory) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := h.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	options.Decorator = h.decorator(uncached)
	sizes, err := genericoptions.ParseWatchCacheSizes(h.etcd.WatchCacheSizes)
	if size, ok := sizes[resource]; h.etcd.EnableWatchCache && err == nil && (!ok || size > 0) {
		options.Decorator = h.decorator(h.cached)
	}
	return options, err
}

// decorator is k8s.io/apiserver's StorageWithCacher with all decorators, from etcd outwards. The package
// comment lists them in the order of an object's way to etcd.
func (h watchHistory) decorator(newCache NewCache) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		library, writer, destroy, err := h.raw.make(config, newObject, newList, prefix)
		if err != nil {
			return nil, func() {}, err
		}
		cacheConfig := cacher.Config{
			Versioner:           storage.APIObjectVersioner{},
			GroupResource:       config.GroupResource,
			EventsHistoryWindow: config.EventsHistoryWindow,
			ResourcePrefix:      prefix,
			KeyFunc:             key,
			NewFunc:             newObject,
			NewListFunc:         newList,
			GetAttrsFunc:        attributes,
			IndexerFuncs:        trigger,
			Indexers:            indexers,
			Codec:               config.Codec,
		}
		inEtcd := path.Join("/", config.Prefix)
		size := func(object runtime.Object) int64 {
			key, _ := key(object) // A Status and a bookmark have none.
			return h.large.size(inEtcd + key)
		}

		writing := &writingStorage{library, writer}                            // Writes have the conditions of references.
		cacheConfig.Storage = &historicStorage{Interface: writing, size: size} // Only the cache begins with the past.
		layer, err := newCache(cacheConfig, writing)                           // The Cacher reads its past, and etcd for all else.
		if err != nil {
			destroy()
			return nil, func() {}, err
		}
		current := &currentStorage{Interface: layer.Interface, wait: layer.Wait, filled: time.Now().Add(fillTimeout), history: h.history, group: config.GroupResource.Group} // For lists and watches of the cache.
		bounded := &boundedStorage{Interface: current, large: h.large, prefix: inEtcd, average: h.large.average(config.GroupResource), cached: !layer.Uncached}              // Charges for the results of all others.
		return bounded, sync.OnceFunc(func() {
			layer.Stop()
			destroy()
		}), nil
	}
}

// CacheLayer is a watch cache, or etcd itself for a resource without one.
type CacheLayer struct {
	storage.Interface
	// Wait waits until the cache is filled.
	Wait func(context.Context) error
	Stop func()
	// Uncached is true for etcd itself.
	Uncached bool
}

// NewCache returns a cache of what config.Storage has. What is not read from the cache is read from etcd.
type NewCache func(config cacher.Config, etcd storage.Interface) (CacheLayer, error)

func cached(config cacher.Config, etcd storage.Interface) (CacheLayer, error) {
	watchCache, err := cacher.NewCacherFromConfig(config)
	if err != nil {
		return CacheLayer{}, err
	}
	delegator := cacher.NewCacheDelegator(watchCache, etcd)
	return CacheLayer{Interface: delegator, Wait: watchCache.Wait, Stop: func() {
		delegator.Stop()
		watchCache.Stop()
	}}, nil
}

func uncached(_ cacher.Config, etcd storage.Interface) (CacheLayer, error) {
	return CacheLayer{Interface: etcd, Wait: func(context.Context) error { return nil }, Stop: func() {}, Uncached: true}, nil
}

// historicStorage is the source of a watch cache. Its first list shows the past. As after each
// list, the cache goes on with a watch. It keeps the changes since the list for its clients'
// watches.
type historicStorage struct {
	storage.Interface
	// size returns the size of an object in etcd, if it is a large one.
	size   func(runtime.Object) int64
	listed bool // Only the cache's reflector lists, one list after the other.
	// present is the revision where the past of a watch ends, or 0 if it has ended. largePast is
	// the size of the large objects that the watch has brought.
	present   atomic.Uint64
	largePast atomic.Int64
}

// mostHistory bounds the bytes of large past objects that a cache begins with.
const mostHistory = 32 << 20

// IsWatchListSemanticsUnSupported makes the cache list, since a watch could only begin now.
func (*historicStorage) IsWatchListSemanticsUnSupported() bool { return true }

// GetList returns a list of the past the first time, if there is one, and of the present
// otherwise.
func (s *historicStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if s.listed || opts.ResourceVersion != "" || opts.Predicate.Continue != "" {
		return s.Interface.GetList(ctx, key, opts, list)
	}
	now, err := s.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	// Etcd compacts what is older than some minutes.
	for _, revisions := range []uint64{10_000, 1_000, 100} {
		past := opts
		past.ResourceVersion = strconv.FormatUint(max(now, revisions+1)-revisions, 10)
		past.ResourceVersionMatch = metav1.ResourceVersionMatchExact
		// The present may be readable even if the past is not, for example without an old
		// encryption key.
		if s.Interface.GetList(ctx, key, past, list) == nil {
			s.listed = true
			s.present.Store(now)
			return nil
		}
		if err := meta.SetList(list, nil); err != nil {
			return err
		}
	}
	err = s.Interface.GetList(ctx, key, opts, list)
	s.listed = err == nil
	return err
}

// Watch returns the changes since the list.
func (s *historicStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, s.refillIfCompacted), nil
}

// refillIfCompacted makes the cache list the present if the past is too large or can't be read.
// Otherwise, the cache would try again and again.
func (s *historicStorage) refillIfCompacted(event watch.Event) (watch.Event, bool) {
	present := s.present.Load()
	if present == 0 {
		return event, true
	}
	if event.Type != watch.Error && s.largePast.Add(s.size(event.Object)) > mostHistory {
		event = watch.Event{Type: watch.Error, Object: &metav1.Status{Message: "its objects are too large"}}
	}
	if event.Type == watch.Error {
		s.present.Store(0)
		event.Object = new(apierrors.NewResourceExpired(fmt.Sprintf("the history can't be read: %v", apierrors.FromObject(event.Object))).Status())
	} else if at, err := s.Versioner().ObjectResourceVersion(event.Object); err == nil && at >= present {
		s.present.Store(0)
	}
	return event, true
}
