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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// BoundObjects returns a serializer that decodes no objects beyond the bounds. It covers
// limits that only the decoded object shows, such as the result of a patch.
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

// Decode checks an object even if there is an error, since clients may ignore errors about
// unknown fields.
func (d boundedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if object, ok := obj.(metav1.Object); ok {
		if err := d.bounds.CheckObject(object, len(data)); err != nil {
			return nil, gvk, err
		}
	}
	return obj, gvk, err
}
