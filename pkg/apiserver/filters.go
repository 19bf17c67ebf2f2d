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

package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// maxPatchDepth is how deep objects and arrays of a patch may be nested. A patch
// library reads a patch again on every level, so that the cost of a deep one
// grows with the square of its size; no kind's schema comes near a hundred.
const maxPatchDepth = 100

// withPatchDepth refuses patches that are nested too deep.
func withPatchDepth(next http.Handler, serializer runtime.NegotiatedSerializer, maxBody int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := genericapirequest.RequestInfoFrom(req.Context()); ok && info.Verb == "patch" {
			if err := checkPatchDepth(req, maxBody); err != nil {
				version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
				responsewriters.ErrorNegotiated(err, serializer, version, w, req)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// checkPatchDepth reads the body, as far as it is not too large for the handler
// anyway, and puts it back.
func checkPatchDepth(req *http.Request, maxBody int64) error {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body can't be read: %v", err))
	}
	req.Body = readCloser{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
	if nestingExceeds(body, maxPatchDepth) {
		return apierrors.NewBadRequest(fmt.Sprintf("the patch is nested more than %d levels deep", maxPatchDepth))
	}
	return nil
}

// requestInfoResolver takes a path that looks like one of a resource but names
// none, such as /apis/<group>/<version>/watch, for any other path: it is
// authorized as such and not found, where the library would answer 500.
type requestInfoResolver struct {
	genericapirequest.RequestInfoResolver
}

func (r requestInfoResolver) NewRequestInfo(req *http.Request) (*genericapirequest.RequestInfo, error) {
	info, err := r.RequestInfoResolver.NewRequestInfo(req)
	if err != nil {
		//nolint:nilerr // The error says only that the path is not one of a resource.
		return &genericapirequest.RequestInfo{Path: req.URL.Path, Verb: strings.ToLower(req.Method)}, nil
	}
	return info, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// nestingExceeds tells whether objects and arrays are nested more than limit
// levels deep in JSON, or in the flow style of YAML. It does not mind whether the
// text is well-formed otherwise.
func nestingExceeds(text []byte, limit int) bool {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}
