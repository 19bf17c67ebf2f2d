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

package encodedcache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	apiserverstorage "restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/storage"
)

// newCache returns a watch cache of unstructured objects. It has them encoded. Its storage has a lazyCodec.
func newCache(config cacher.Config, etcd storage.Interface) (apiserverstorage.CacheLayer, error) {
	encoded := config
	encoded.Storage = &encodingStorage{Interface: config.Storage, config: config}
	encoded.KeyFunc = func(o runtime.Object) (string, error) { return o.(*object).key, nil }
	encoded.GetAttrsFunc = func(o runtime.Object) (labels.Set, fields.Set, error) {
		return o.(*object).labels, o.(*object).fields, nil
	}
	encoded.NewFunc = func() runtime.Object {
		return &object{Unstructured: config.NewFunc().(*unstructured.Unstructured)}
	}
	encoded.NewListFunc = func() runtime.Object { return &objects{} }
	encoded.Codec = unstructured.UnstructuredJSONScheme // The Cacher tries whether it can encode NewFunc's object.
	watchCache, err := cacher.NewCacherFromConfig(encoded)
	if err != nil {
		return apiserverstorage.CacheLayer{}, err
	}
	delegator := cacher.NewCacheDelegator(watchCache, &decodedStorage{etcd, config.NewListFunc})
	return apiserverstorage.CacheLayer{
		Interface: &Storage{delegator},
		Wait:      watchCache.Wait,
		Stop: func() {
			delegator.Stop()
			watchCache.Stop()
		},
	}, nil
}

// lazyCodec leaves objects of a storedList as they are in etcd, so that encodingStorage can decode many at once.
type lazyCodec struct{ runtime.Codec }

// Decode decodes an object, unless it is to stay as it is.
func (c lazyCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if o, ok := into.(*storedObject); ok {
		o.data = data
		return o, nil, nil
	}
	return c.Codec.Decode(data, defaults, into)
}

// encodingStorage encodes objects for the Cacher. Each list and each event is encoded once.
type encodingStorage struct {
	storage.Interface
	config cacher.Config
	// limit is how many objects the next page has, or 0 for the smallest page.
	limit atomic.Int64
}

// EnableResourceSizeEstimation does nothing. The estimation remembers the size of each object, with its key.
func (*encodingStorage) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// IsWatchListSemanticsUnSupported makes the Cacher list, page by page.
func (*encodingStorage) IsWatchListSemanticsUnSupported() bool { return true }

// A page has about as many objects as take pageBytes in JSON, which are decoded at once, but at least smallestPage. The
// Cacher asks for 10,000. Each page makes etcd count the objects that follow.
const smallestPage, pageBytes = 500, 8 << 20

// decoders is how many objects are decoded at once, each by a processor or by a conversion webhook.
const decoders = 16

// GetList reads a page, or all pages: without a limit, the Cacher lists again if etcd has compacted the revision of a page.
func (s *encodingStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	into, limit := list.(*objects), opts.Predicate.Limit
	for {
		opts.Predicate.Limit = max(smallestPage, s.limit.Load())
		if limit > 0 {
			opts.Predicate.Limit = min(opts.Predicate.Limit, limit)
		}
		if err := s.addPage(ctx, key, opts, into); err != nil {
			return err
		}
		if limit > 0 || into.Continue == "" {
			return nil
		}
		opts.Predicate.Continue, opts.ResourceVersion, opts.ResourceVersionMatch = into.Continue, "", ""
	}
}

func (s *encodingStorage) addPage(ctx context.Context, key string, opts storage.ListOptions, into *objects) error {
	read := &storedList{}
	if err := s.Interface.GetList(ctx, key, opts, read); err != nil {
		return err
	}
	into.ListMeta = read.ListMeta
	page := objects{Items: make([]object, len(read.Items))}
	var group errgroup.Group
	group.SetLimit(decoders)
	for i := range read.Items {
		group.Go(func() error {
			encoded, err := s.encode(&read.Items[i])
			if err == nil {
				page.Items[i] = *encoded
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.limit.Store(pageBytes * int64(len(page.Items)) / max(1, page.size()))
	into.Items = append(into.Items, page.Items...)
	if opts.Predicate.Continue != "" && into.Continue == "" {
		go debug.FreeOSMemory() // Decoding has left more garbage than there are objects.
	}
	return nil
}

// encode converts an object as it is in etcd to the version of the cache.
func (s *encodingStorage) encode(stored *storedObject) (*object, error) {
	into := s.config.NewFunc().(*unstructured.Unstructured)
	if bytes.HasPrefix(stored.data, fmt.Appendf(nil, `{"apiVersion":%q,`, into.GetAPIVersion())) {
		into = &unstructured.Unstructured{} // The codec would copy it, to convert nothing.
	}
	decoded, _, err := s.config.Codec.Decode(stored.data, nil, into)
	if err != nil {
		return nil, fmt.Errorf("decoding a stored object of %s: %w", s.config.GroupResource, err)
	}
	custom := decoded.(*unstructured.Unstructured)
	custom.SetResourceVersion(stored.ResourceVersion)
	return encode(&s.config, custom)
}

// Watch begins a watch of encoded objects.
func (s *encodingStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, s.encodeEvent), nil
}

func (s *encodingStorage) encodeEvent(event watch.Event) (watch.Event, bool) {
	recorded, isRecorded := event.Object.(storage.WatchEventWithRecordTime)
	if isRecorded {
		event.Object = recorded.Unwrap()
	}
	decoded, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return event, true // It is a Status.
	}
	if event.Type == watch.Bookmark {
		event.Object = &object{Unstructured: decoded}
		return event, true
	}
	encoded, err := encode(&s.config, decoded)
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		return watch.Event{Type: watch.Error, Object: &status}, true // The Cacher lists again.
	}
	event.Object = encoded
	if isRecorded {
		event.Object = recordedObject{encoded, recorded.RecordTime()}
	}
	return event, true
}

// recordedObject is an object with the time when it came from etcd, for the Cacher's metrics.
type recordedObject struct {
	*object
	at time.Time
}

// RecordTime returns the time.
func (o recordedObject) RecordTime() time.Time { return o.at }

// Unwrap returns the object.
func (o recordedObject) Unwrap() runtime.Object { return o.object }

// decodedStorage is etcd for the delegator, which reads in the types of the Cacher.
type decodedStorage struct {
	storage.Interface
	newList func() runtime.Object
}

// GetList reads a list that the Cacher does not have.
func (s *decodedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	read := s.newList().(*unstructured.UnstructuredList)
	if err := s.Interface.GetList(ctx, key, opts, read); err != nil {
		return err
	}
	into := list.(*objects)
	into.ListMeta = listMeta(read)
	into.Items = make([]object, len(read.Items))
	for i := range read.Items {
		into.Items[i].Unstructured = &read.Items[i]
	}
	return nil
}

// Get reads an object.
func (s *decodedStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	read := &unstructured.Unstructured{}
	out.(*object).Unstructured = read
	return s.Interface.Get(ctx, key, opts, read)
}

// GuaranteedUpdate changes an object. The delegator suggests the Cacher's.
func (s *decodedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, suggestion(cached))
}

// Delete deletes an object. The delegator suggests the Cacher's.
func (s *decodedStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	return s.Interface.Delete(ctx, key, out, preconditions, validate, suggestion(cached), opts)
}

func suggestion(cached runtime.Object) runtime.Object {
	if encoded, ok := cached.(*object); ok {
		if decoded, err := encoded.decode(); err == nil {
			return decoded
		}
	}
	return nil
}

func listMeta(list *unstructured.UnstructuredList) metav1.ListMeta {
	return metav1.ListMeta{
		ResourceVersion:    list.GetResourceVersion(),
		Continue:           list.GetContinue(),
		RemainingItemCount: list.GetRemainingItemCount(),
	}
}

// Storage is the storage of a kind of custom resources.
type Storage struct {
	storage.Interface // The delegator.
}

// Get reads an object.
func (s *Storage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	read := &object{}
	if err := s.Interface.Get(ctx, key, opts, read); err != nil {
		return err
	}
	into := out.(*unstructured.Unstructured)
	if read.Unstructured == nil && read.json == "" { // There is none, which is no error for this client.
		*into = unstructured.Unstructured{}
		return nil
	}
	decoded, err := read.decode()
	if err == nil {
		*into = *decoded
	}
	return err
}

// GetList reads a list of encoded or of unstructured objects. The latter takes memory.
func (s *Storage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	into, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		return s.Interface.GetList(ctx, key, opts, list)
	}
	read := &objects{}
	if err := s.Interface.GetList(ctx, key, opts, read); err != nil {
		return err
	}
	if err := limits.ReserveList(ctx, read.size()); err != nil {
		return err
	}
	into.SetResourceVersion(read.ResourceVersion)
	into.SetContinue(read.Continue)
	into.SetRemainingItemCount(read.RemainingItemCount)
	into.Items = make([]unstructured.Unstructured, len(read.Items))
	for i := range read.Items {
		decoded, err := read.Items[i].decode()
		if err != nil {
			return err
		}
		into.Items[i] = *decoded
	}
	return nil
}

type encodedKey struct{}

// withEncoded returns a context whose watches have encoded objects.
func withEncoded(ctx context.Context) context.Context {
	return context.WithValue(ctx, encodedKey{}, true)
}

// Watch begins a watch.
func (s *Storage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(ctx, key, opts)
	if err != nil || ctx.Value(encodedKey{}) != nil {
		return w, err
	}
	return watch.Filter(w, decodeEvent), nil
}

func decodeEvent(event watch.Event) (watch.Event, bool) {
	switch o := event.Object.(type) {
	case *object:
		decoded, err := o.decode()
		if err != nil {
			return event, false // It has been encoded here.
		}
		event.Object = decoded
	case runtime.CacheableObject:
		event.Object = decodingObject{event.Object, o}
	}
	return event, true
}

// decodingObject is an object of many watches. It is decoded once for each of their encodings.
type decodingObject struct {
	runtime.Object
	cached runtime.CacheableObject
}

// CacheEncode encodes the decoded object, or writes what another watch has encoded.
func (o decodingObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return o.cached.CacheEncode(id, func(encoded runtime.Object, w io.Writer) error {
		decoded, err := encoded.(*object).decode()
		if err != nil {
			return err
		}
		return encode(decoded, w)
	}, w)
}

// GetObject returns the decoded object.
func (o decodingObject) GetObject() runtime.Object {
	decoded, _ := o.cached.GetObject().(*object).decode()
	return decoded
}
