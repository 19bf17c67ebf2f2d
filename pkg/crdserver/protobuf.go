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

package crdserver

import (
	"net/http"
	"strings"

	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// withoutProtobuf refuses custom resources in protobuf with 415.
//
// apiextensions-apiserver's decoder for them has no strict form, and panics when it needs that one. Scales
// and the options of deletions are no custom resources, and may be in protobuf.
// Upstream fault 83.
func withoutProtobuf(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, _ := genericapirequest.RequestInfoFrom(req.Context())
		writes := info.Verb == "create" || info.Verb == "update"
		mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
		if info.IsResourceRequest && writes && info.Subresource != "scale" && strings.EqualFold(strings.TrimSpace(mediaType), runtime.ContentTypeProtobuf) {
			err := negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
			responsewriters.ErrorNegotiated(err, library.Codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}
