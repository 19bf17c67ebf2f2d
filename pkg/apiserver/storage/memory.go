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
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// statsInterval is how long the number and the average size of the objects of a resource are remembered.
const statsInterval = 5 * time.Second

// boundedStorage takes memory of the gate for lists, and for large objects. A watch cache shares its objects, so that a
// list of it costs nothing before it is converted and encoded. What is read from etcd is charged before.
type boundedStorage struct {
	storage.Interface
	large *largeObjects
	// stats are nil before they have been asked for once.
	stats atomic.Pointer[storage.Stats]
	asked atomic.Int64
}

// GetList lists objects as far as there is memory for them.
func (s *boundedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	stats := s.currentStats()
	if !opts.Recursive { // It is of one object.
		if err := limits.ReserveObject(ctx, s.large.size(key)); err != nil {
			return err
		}
	} else if fromEtcd(opts) {
		objects := stats.ObjectCount
		if limit := opts.Predicate.Limit; limit > 0 {
			objects = min(objects, limit)
		}
		if err := limits.ReserveList(ctx, objects*stats.EstimatedAverageObjectSizeBytes); err != nil {
			return err
		}
	}
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	return limits.ReserveList(ctx, int64(meta.LenList(list))*stats.EstimatedAverageObjectSizeBytes)
}

// fromEtcd reports whether a list may be read from etcd. A watch cache forgets a revision that many events have followed.
func fromEtcd(opts storage.ListOptions) bool {
	match, version, pages := opts.ResourceVersionMatch, opts.ResourceVersion, opts.Predicate
	exact := match == metav1.ResourceVersionMatchExact || match == "" && pages.Limit > 0 && version != "" && version != "0"
	return exact || pages.Continue != ""
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
	if err := limits.ReserveObject(ctx, s.large.size(key)); err != nil {
		return err
	}
	return s.Interface.Get(ctx, key, opts, object)
}

// Create stores an object.
func (s *boundedStorage) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	err := s.Interface.Create(ctx, key, object, out, ttl)
	if err == nil {
		s.large.observe(key, out)
	}
	return err
}

// GuaranteedUpdate changes an object if there is memory for it.
func (s *boundedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	if err := limits.ReserveObject(ctx, s.large.size(key)); err != nil {
		return err
	}
	err := s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	if err == nil {
		s.large.observe(key, destination)
	}
	return err
}

// Delete deletes an object if there is memory for it.
func (s *boundedStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	if err := limits.ReserveObject(ctx, s.large.size(key)); err != nil {
		return err
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// largeObject is the size from which single objects are known. A smaller one takes less than a connection.
const largeObject = 32 << 10

// largeObjects are the sizes of a resource's large objects, by their keys: those that its watch cache has read, and those
// that this server has written.
type largeObjects struct{ sizes sync.Map }

func (l *largeObjects) size(key string) int64 {
	size, _ := l.sizes.Load(key)
	bytes, _ := size.(int64)
	return bytes
}

// observe returns the size of an object, or 0 if it is not a large one.
func (l *largeObjects) observe(key string, object runtime.Object) int64 {
	var size int64
	if untyped, ok := object.(*unstructured.Unstructured); ok {
		size = sizeOfJSON(untyped.Object)
	} else {
		size = sizeOf(reflect.ValueOf(object))
	}
	if size < largeObject {
		l.forget(key)
		return 0
	}
	l.sizes.Store(key, size)
	return size
}

func (l *largeObjects) forget(key string) {
	if l.size(key) > 0 {
		l.sizes.Delete(key)
	}
}

// scalar is the size of a number. emptyMap is that of a map, and smallMap that of one with the places for eight entries
// that Go makes at once.
const scalar, emptyMap, smallMap = 8, 48, 300

// sizeOfJSON is sizeOf for decoded JSON, in a fourth of the time. A list of custom resources has a hundred
// thousand maps.
func sizeOfJSON(value any) (size int64) {
	switch value := value.(type) {
	case nil:
		return 0
	case string:
		return int64(len(value))
	case map[string]any:
		switch {
		case value == nil:
			return 0
		case len(value) == 0:
			return emptyMap
		}
		size = smallMap
		for key, value := range value {
			size += scalar + int64(len(key)) + sizeOfJSON(value)
		}
		return size
	case []any:
		for _, value := range value {
			size += scalar + sizeOfJSON(value)
		}
		return size
	default:
		return scalar
	}
}

// sizeOf is about how much memory a value takes: as much as in JSON without its names, and that of its maps.
func sizeOf(value reflect.Value) (size int64) {
	switch value.Kind() {
	case reflect.String:
		return int64(value.Len())
	case reflect.Pointer, reflect.Interface:
		return sizeOf(value.Elem())
	case reflect.Map:
		if value.IsNil() {
			return 0
		}
		size = emptyMap
		if value.Len() > 0 {
			size = smallMap
		}
		for entries := value.MapRange(); entries.Next(); {
			size += scalar + sizeOf(entries.Key()) + sizeOf(entries.Value())
		}
		return size
	case reflect.Slice, reflect.Array:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return int64(value.Len())
		}
		for i := range value.Len() {
			size += scalar + sizeOf(value.Index(i))
		}
		return size
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[time.Time]() {
			return scalar
		}
		for i := range value.NumField() {
			size += sizeOf(value.Field(i))
		}
		return size
	case reflect.Invalid: // Nil.
		return 0
	default:
		return scalar
	}
}
