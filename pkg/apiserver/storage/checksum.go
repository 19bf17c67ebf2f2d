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
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// checksummed makes stores verify the checksums of values that they read. Only stores of an
// embedded etcd also write checksums: an external etcd may have other servers, which know of
// none. The checksum is around the encrypted value, so that it can be verified without a key.
type checksummed struct {
	encryption value.ResourceTransformers // Nil if nothing is encrypted.
	write      bool
	large      largeObjects
}

// TransformerForResource returns a transformer that adds and verifies the checksums of a
// resource's objects.
func (c checksummed) TransformerForResource(resource schema.GroupResource) value.Transformer {
	return checksumTransformer{c.encryptionOf(resource), c.write, c.large, c.large.average(resource)}
}

// encryptionOf returns a resource's transformer without the checksum.
func (c checksummed) encryptionOf(resource schema.GroupResource) value.Transformer {
	if c.encryption == nil {
		return identity.NewEncryptCheckTransformer()
	}
	return c.encryption.TransformerForResource(resource)
}

type checksumTransformer struct {
	value.Transformer
	write   bool
	large   largeObjects
	average *atomic.Int64
}

func (t checksumTransformer) observe(key string, size int) {
	t.large.observe(key, size)
	average, added := t.average.Load(), int64(size)
	if average != 0 {
		added = average + (added-average)/averagedObjects
	}
	t.average.Store(added)
}

// TransformFromStorage returns the value that was written, or registry.ErrDamaged. A value
// without a checksum is stale: the next update of its object adds one, even if it changes
// nothing.
func (t checksumTransformer) TransformFromStorage(ctx context.Context, stored []byte, dataCtx value.Context) ([]byte, bool, error) {
	key := string(dataCtx.AuthenticatedData())
	t.observe(key, len(stored))
	content, err := etcd.OpenValue(key, stored)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", registry.ErrDamaged, err)
	}
	out, stale, err := t.Transformer.TransformFromStorage(ctx, content, dataCtx)
	return out, stale || t.write != etcd.ValueIsSealed(stored), err
}

// TransformToStorage adds the checksum.
func (t checksumTransformer) TransformToStorage(ctx context.Context, content []byte, dataCtx value.Context) ([]byte, error) {
	stored, err := t.Transformer.TransformToStorage(ctx, content, dataCtx)
	key := string(dataCtx.AuthenticatedData())
	t.observe(key, len(stored))
	if err != nil || !t.write {
		return stored, err
	}
	return etcd.SealValue(key, stored), nil
}
