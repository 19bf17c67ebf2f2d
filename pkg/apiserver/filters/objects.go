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
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/bodycost"
)

// BoundObjects returns a serializer that decodes no objects that exceed the bounds: what
// a patch adds to an object that is there already, or what only the type of an object
// tells.
func BoundObjects(serializer runtime.NegotiatedSerializer, bounds limits.Bounds) runtime.NegotiatedSerializer {
	return boundedSerializer{serializer, bounds}
}

type boundedSerializer struct {
	runtime.NegotiatedSerializer
	bounds limits.Bounds
}

func (s boundedSerializer) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return boundedDecoder{s.NegotiatedSerializer.DecoderToVersion(decoder, version), s.bounds}
}

type boundedDecoder struct {
	runtime.Decoder
	bounds limits.Bounds
}

// Decode returns an object also with the error that tells of unknown fields, which
// a client may choose to ignore; so the error does not tell whether to look at it.
func (d boundedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if object, ok := obj.(metav1.Object); ok {
		if err := checkMetadata(d.bounds, object); err != nil {
			return nil, gvk, err
		}
	}
	if obj != nil && len(data) > d.bounds.BodyElements { // Else it can't have that many.
		text, marshalErr := json.Marshal(obj)
		if marshalErr == nil {
			marshalErr = bodycost.CheckJSONElements(text, d.bounds.BodyElements)
		}
		if marshalErr != nil {
			return nil, gvk, marshalErr
		}
	}
	return obj, gvk, err
}

func checkMetadata(b limits.Bounds, object metav1.Object) error {
	if owners := len(object.GetOwnerReferences()); owners > b.Owners {
		return fmt.Errorf("metadata.ownerReferences: must have at most %d items, not %d", b.Owners, owners)
	}
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
