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

package apiserver

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
)

// averageInterval is how long the average size of the objects of a resource is remembered.
const averageInterval = 5 * time.Second

// boundedLists has each list take what it needs while it is converted and encoded from the
// budget of the requests, as soon as its length is known: what a watch cache has returned is
// shared with it, and costs nothing yet.
type boundedLists struct {
	generic.RESTOptionsGetter
}

// GetRESTOptions returns how a resource is stored.
func (g boundedLists) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	decorator := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		inner, destroy, err := decorator(config, prefix, key, newObject, newList, attributes, trigger, indexers)
		return &boundedStorage{Interface: inner}, destroy, err
	}
	return options, nil
}

type boundedStorage struct {
	storage.Interface

	// average is the size of an object as it is stored, as it was at some nanosecond.
	average, at atomic.Int64
}

// GetList lists objects as far as there is memory for them.
func (s *boundedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	s.refresh()
	return filters.TakeListMemory(ctx, int64(meta.LenList(list))*s.average.Load())
}

// refresh asks for the average from time to time. No list waits for that, since it takes an
// answer of etcd, which a list from the cache does not need.
func (s *boundedStorage) refresh() {
	now, at := time.Now().UnixNano(), s.at.Load()
	if time.Duration(now-at) < averageInterval || !s.at.CompareAndSwap(at, now) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), averageInterval)
		defer cancel()
		if stats, err := s.Stats(ctx); err == nil {
			s.average.Store(stats.EstimatedAverageObjectSizeBytes)
		}
	}()
}
