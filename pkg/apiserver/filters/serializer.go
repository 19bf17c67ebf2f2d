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
)

// maxOwners is how many owners an object may have. Before it validates anything,
// the library compares each of them with each other.
// Upstream fault 5.
const maxOwners = 256

// BoundObjects returns a serializer that decodes no objects with more owners than that, nor with more elements
// than maxElements: in protobuf, or when a patch adds to what is there already.
func BoundObjects(serializer runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	return boundedSerializer{serializer}
}

type boundedSerializer struct {
	runtime.NegotiatedSerializer
}

func (s boundedSerializer) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return boundedDecoder{s.NegotiatedSerializer.DecoderToVersion(decoder, version)}
}

type boundedDecoder struct {
	runtime.Decoder
}

// Decode returns an object also with the error that tells of unknown fields, which
// a client may choose to ignore; so the error does not tell whether to look at it.
func (d boundedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if object, ok := obj.(metav1.Object); ok {
		if owners := len(object.GetOwnerReferences()); owners > maxOwners {
			return nil, gvk, fmt.Errorf("metadata.ownerReferences: must have at most %d items, not %d", maxOwners, owners)
		}
	}
	if obj != nil && len(data) > maxElements { // Else it can't have that many.
		text, marshalErr := json.Marshal(obj)
		if marshalErr == nil {
			marshalErr = checkSeparators(text)
		}
		if marshalErr != nil {
			return nil, gvk, marshalErr
		}
	}
	return obj, gvk, err
}
