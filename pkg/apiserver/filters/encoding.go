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
	"mime"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// WithoutProtobuf removes protobuf from the accepted encodings of resources whose types have no messages. k8s.io/apiserver
// would choose it, execute the request, and answer with 406. Namespaces were not emptied at first, since Kubernetes'
// controllers accept protobuf and JSON. Metadata and tables have messages.
// Upstream fault 87.
func WithoutProtobuf(next http.Handler, withoutMessages map[schema.GroupVersionResource]bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if ok && withoutMessages[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}] {
			accepted := strings.Split(req.Header.Get("Accept"), ",")
			// A client that accepts nothing else is answered as by k8s.io/apiserver.
			if rest := slices.DeleteFunc(accepted, isProtobuf); len(rest) > 0 {
				req = req.WithContext(req.Context())
				req.Header = req.Header.Clone()
				req.Header.Set("Accept", strings.Join(rest, ","))
			}
		}
		next.ServeHTTP(w, req)
	})
}

// isProtobuf reports whether an accepted encoding is protobuf for whole objects.
func isProtobuf(accepted string) bool {
	mediaType, parameters, err := mime.ParseMediaType(accepted)
	return err == nil && mediaType == runtime.ContentTypeProtobuf && parameters["as"] == ""
}

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
		// Managed fields name each field of a body once more.
		if err := d.bounds.CheckObject(object, len(data), 2*d.bounds.BodyElements); err != nil {
			return nil, gvk, err
		}
	}
	return obj, gvk, err
}
