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

package filters

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/bodycost"
)

// StoredObject returns the stored object of a kind with this name, or nil.
type StoredObject func(kind schema.GroupVersionKind, namespace, name string) metav1.Object

// BoundObjects returns a serializer that decodes no objects beyond the bounds. It covers
// limits that only the decoded object shows, such as the result of a patch. An object that
// exceeds them in etcd may stay as large as it is there. Otherwise, clients could neither make
// it smaller nor remove its finalizers.
func BoundObjects(serializer runtime.NegotiatedSerializer, bounds limits.Bounds, stored StoredObject) runtime.NegotiatedSerializer {
	return boundedSerializer{serializer, bounds, stored}
}

type boundedSerializer struct {
	runtime.NegotiatedSerializer
	bounds limits.Bounds
	stored StoredObject
}

func (s boundedSerializer) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return boundedDecoder{s.NegotiatedSerializer.DecoderToVersion(decoder, version), s.bounds, s.stored}
}

type boundedDecoder struct {
	runtime.Decoder
	bounds limits.Bounds
	stored StoredObject
}

// Decode checks an object even if there is an error, since clients may ignore errors about
// unknown fields.
func (d boundedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if obj != nil {
		if err := d.check(obj, gvk, len(data)); err != nil {
			return nil, gvk, err
		}
	}
	return obj, gvk, err
}

func (d boundedDecoder) check(obj runtime.Object, gvk *schema.GroupVersionKind, size int) error {
	object, ok := obj.(metav1.Object)
	if ok {
		if err := checkNames(d.bounds, object); err != nil {
			return err
		}
		if _, untyped := obj.(runtime.Unstructured); !untyped {
			if err := d.checkManagedFields(object, gvk); err != nil {
				return err
			}
		}
	}
	limit := bodycost.Object{Elements: d.bounds.BodyElements, Managed: d.bounds.BodyElements, Owners: d.bounds.Owners}
	has, err := bodycost.OfObject(obj, size, d.bounds.BodyElements)
	if err != nil {
		return err
	}
	exceeds := has.Check(limit)
	if exceeds == nil || gvk == nil || !ok {
		return exceeds
	}
	stored := d.stored(*gvk, object.GetNamespace(), object.GetName())
	if stored == nil {
		return exceeds
	}
	before, err := bodycost.OfObject(stored, size, d.bounds.BodyElements)
	if err != nil {
		return err
	}
	return has.Check(limit.Or(before))
}

// checkManagedFields refuses fields with long paths, as checkPaths does, unless the stored object has them.
func (d boundedDecoder) checkManagedFields(object metav1.Object, gvk *schema.GroupVersionKind) error {
	limit := d.bounds.FieldPathBytes
	paths := managedPaths(object, limit)
	if paths <= limit {
		return nil
	}
	if gvk != nil {
		if stored := d.stored(*gvk, object.GetNamespace(), object.GetName()); stored != nil && managedPaths(stored, limit) >= paths {
			return nil
		}
	}
	return fmt.Errorf("metadata.managedFields: the paths of all fields together must not be longer than %d bytes", limit)
}

// managedPaths returns the length of the paths of all managed fields, or 0 if it can't exceed the limit. Protobuf has these
// fields as text in JSON, of any depth.
func managedPaths(object metav1.Object, limit int) (paths int) {
	size, managed := 0, object.GetManagedFields()
	for _, entry := range managed {
		if entry.FieldsV1 != nil {
			size += len(entry.FieldsV1.GetRawBytes())
		}
	}
	if size <= limit/max(1, size) { // Each element has a byte, and a path shorter than the text.
		return 0
	}
	for _, entry := range managed {
		if entry.FieldsV1 != nil {
			paths += bodycost.JSONPaths(entry.FieldsV1.GetRawBytes())
		}
	}
	return paths
}

func checkNames(b limits.Bounds, object metav1.Object) error {
	for _, field := range []struct{ path, value string }{
		{"name", object.GetName()},
		{"generateName", object.GetGenerateName()},
		{"namespace", object.GetNamespace()},
	} {
		if len(field.value) > b.NameBytes {
			return fmt.Errorf("metadata.%s: must have at most %d bytes, not %d", field.path, b.NameBytes, len(field.value))
		}
	}
	return nil
}
