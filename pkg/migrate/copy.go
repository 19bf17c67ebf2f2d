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

package migrate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/value"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

const (
	// writers is how many objects are written at once: etcd commits them together.
	writers = 32
	// maxNamed is how many objects a finding, an error or the state names.
	maxNamed = 10
)

// content is what identifies an object: the hash of what the server would store of it,
// before that is encrypted, and its size.
type content struct {
	hash [sha256.Size]byte
	size int
}

func contentOf(data []byte) content { return content{sha256.Sum256(data), len(data)} }

// encode returns what the server would store of an object, in any version, before that is
// encrypted.
func encode(codec runtime.Codec, data []byte) ([]byte, error) {
	object, err := runtime.Decode(codec, data)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion("")
	accessor.SetSelfLink("")
	return runtime.Encode(codec, object)
}

// copies returns what the server has, by key. Objects are encoded again, so that those of
// an older storage version can be compared.
func (m *Migration) copies(ctx context.Context, store *keys.Objects) (map[string]content, error) {
	found := map[string]content{}
	options := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(store.Prefix)), clientv3.WithLimit(pageSize)}
	for key := store.Prefix; ; {
		response, err := m.config.Etcd.Get(ctx, key, options...)
		if err != nil {
			return nil, fmt.Errorf("reading the %s from the server's etcd: %w", store.GroupResource, err)
		}
		for _, kv := range response.Kvs {
			key = string(kv.Key)
			if found[key], err = storedContent(ctx, store, key, kv.Value); err != nil {
				return nil, err
			}
		}
		if !response.More {
			return found, nil
		}
		key += "\x00"
	}
}

// storedContent is that of a value in the server's etcd.
func storedContent(ctx context.Context, store *keys.Objects, key string, encrypted []byte) (content, error) {
	data, _, err := store.Transformer.TransformFromStorage(ctx, encrypted, value.DefaultContext(key))
	if err == nil {
		data, err = encode(store.Codec, data)
	}
	if err != nil {
		return content{}, fmt.Errorf("the object %s in the server's etcd can't be read; check --encryption-provider-config: %w", key, err)
	}
	return contentOf(data), nil
}

// copyOne makes one of the server's objects equal to kube-apiserver's.
func (s *session) copyOne(ctx context.Context, move move, name string, position *position) (written bool, err error) {
	object, err := s.get(ctx, move.from, name)
	if err != nil {
		return false, err
	}
	key := move.Prefix + name
	response, err := s.config.Etcd.Get(ctx, key)
	if err != nil {
		return false, fmt.Errorf("reading the server's etcd: %w", err)
	}
	if object == nil {
		if len(response.Kvs) == 0 {
			return false, nil
		}
		_, err = s.write(ctx, clientv3.OpDelete(key))
		return true, err
	}
	if len(object.GetFinalizers()) > 0 {
		position.finalized.Insert(name)
	}
	data, err := object.MarshalJSON()
	if err == nil {
		data, err = encode(move.Codec, data)
	}
	if err != nil {
		return false, fmt.Errorf("the server can't store it: %w", err)
	}
	for _, kv := range response.Kvs {
		before, err := storedContent(ctx, move.Objects, key, kv.Value)
		if err != nil || before == contentOf(data) {
			return false, err
		}
	}
	encrypted, err := move.Transformer.TransformToStorage(ctx, data, value.DefaultContext(key))
	if err != nil {
		return false, fmt.Errorf("encrypting it: %w", err)
	}
	_, err = s.write(ctx, clientv3.OpPut(key, string(encrypted)))
	return true, err
}

// countAtServer is how many objects the server has.
func (s *session) countAtServer(ctx context.Context, move move) (int, error) {
	response, err := s.config.Etcd.Get(ctx, move.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("reading the server's etcd: %w", err)
	}
	return int(response.Count), nil
}

// toServer copies kube-apiserver's objects to the server.
func (s *session) toServer() follower {
	return follower{pass: s.copy, verify: s.verify, one: s.copyOne, count: s.countAtServer}
}

// difference is how the server's objects differed from kube-apiserver's.
type difference struct {
	revision string
	objects  int
	written  int
	deleted  int
	// keys are those of all that differed, as namespace/name.
	keys sets.Set[string]
	// finalized are objects with finalizers, and newUIDs those that get another UID.
	finalized, newUIDs sets.Set[string]
}

func newDifference() difference {
	return difference{keys: sets.New[string](), finalized: sets.New[string](), newUIDs: sets.New[string]()}
}

func (d difference) changes() int { return d.written + d.deleted }

// copy makes the server's objects of a resource equal to kube-apiserver's.
func (s *session) copy(ctx context.Context, move move) (difference, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, writers)
	)
	write := func(operation clientv3.Op) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if _, err := s.write(ctx, operation); err != nil {
				cancel(err)
			}
		})
	}
	found, err := s.compare(ctx, move, func(key string, data []byte) error {
		if data == nil {
			write(clientv3.OpDelete(key))
			return context.Cause(ctx)
		}
		encrypted, err := move.Transformer.TransformToStorage(ctx, data, value.DefaultContext(key))
		if err != nil {
			return fmt.Errorf("encrypting the object %s: %w", key, err)
		}
		write(clientv3.OpPut(key, string(encrypted)))
		return context.Cause(ctx)
	})
	wg.Wait()
	// What has failed first has canceled the rest.
	if cause := context.Cause(ctx); cause != nil {
		return difference{}, cause
	}
	return found, err
}

// compare calls a function for each object that the server has not, or in another state,
// with what it would store, and for each that only the server has, with nil.
func (m *Migration) compare(ctx context.Context, move move, differs func(key string, data []byte) error) (difference, error) {
	found := newDifference()
	stored, err := m.copies(ctx, move.Objects)
	if err != nil {
		return found, err
	}
	found.revision, err = m.list(ctx, move.from, func(object *unstructured.Unstructured) error {
		found.objects++
		key := move.Key(object.GetNamespace(), object.GetName())
		if len(object.GetFinalizers()) > 0 {
			found.finalized.Insert(keyOf(object))
		}
		data, err := object.MarshalJSON()
		if err == nil {
			data, err = encode(move.Codec, data)
		}
		if err != nil {
			return fmt.Errorf("the server can't store the object %s: %w", key[len(move.Prefix):], err)
		}
		m.meter.add(len(data))
		before, exists := stored[key]
		delete(stored, key)
		if exists && before == contentOf(data) {
			return nil
		}
		found.written++
		found.keys.Insert(keyOf(object))
		return differs(key, data)
	})
	if err != nil {
		return found, err
	}
	for key := range stored {
		found.deleted++
		found.keys.Insert(key[len(move.Prefix):])
		if err := differs(key, nil); err != nil {
			return found, err
		}
	}
	return found, nil
}

// errDiffers says that the server has not what it should have.
var errDiffers = errors.New("the server's objects differ from kube-apiserver's")

// verify compares all objects, and returns errDiffers if some differ.
func (m *Migration) verify(ctx context.Context, move move) (difference, error) {
	var keys []string
	found, err := m.compare(ctx, move, func(key string, _ []byte) error {
		if len(keys) < maxNamed {
			keys = append(keys, key[len(move.Prefix):])
		}
		return nil
	})
	if err == nil && len(keys) > 0 {
		slices.Sort(keys)
		err = fmt.Errorf("%w: %d of %s, such as %v", errDiffers, found.changes(), move.GroupResource, keys)
	}
	return found, err
}
