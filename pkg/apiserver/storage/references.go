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
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/references"
)

// rawStorage makes k8s.io/apiserver's storage in etcd, and a writer whose transactions have the
// conditions of references. A resource in an etcd of its own has no such conditions, since a
// transaction has one etcd. Without conditions, k8s.io/apiserver's storage is also the writer.
type rawStorage struct {
	references *references.References
	servers    []string
}

func (r rawStorage) make(config *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, prefix string) (storage.Interface, storage.Interface, factory.DestroyFunc, error) {
	library, destroy, err := generic.NewRawStorage(config, newObject, newList, prefix)
	if err != nil || !slices.Equal(config.Transport.ServerList, r.servers) {
		return library, library, destroy, err
	}
	transformer := config.Transformer
	versioner := storage.APIObjectVersioner{}
	decoder := etcd3.NewDefaultDecoder(config.Codec, versioner)
	if utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		transformer = etcd3.WithCorruptObjErrorHandlingTransformer(transformer)
		decoder = etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	// It reads only objects that it writes, so it needs no compactor.
	writer, err := etcd3.New(r.references.Client(config.GroupResource), nil, config.Codec, newObject, newList, config.Prefix, prefix, config.GroupResource,
		transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		destroy()
		return nil, nil, nil, err
	}
	return library, writer, sync.OnceFunc(func() {
		writer.Close()
		destroy()
	}), nil
}

// writingStorage is a storage whose objects another one writes.
type writingStorage struct {
	storage.Interface
	writer storage.Interface
}

// Create writes a new object.
func (s *writingStorage) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	return s.writer.Create(ctx, key, object, out, ttl)
}

// GuaranteedUpdate writes a stored object, and creates one if that is allowed.
func (s *writingStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	return s.writer.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
}

// Delete deletes an object. One that can't be decoded is deleted by k8s.io/apiserver alone.
func (s *writingStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, options storage.DeleteOptions) error {
	if options.ExpectTransformOrDecodeError {
		return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, options)
	}
	return s.writer.Delete(ctx, key, out, preconditions, validate, cached, options)
}
