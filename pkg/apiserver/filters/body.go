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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/bodycost"
)

// WithBodyBounds refuses bodies that cost the library much more to decode than their size suggests. It also refuses
// namespaces that can't be in keys of etcd, since the library would answer 500. The body of an update or patch may
// have as many more elements as the stored object has. It belongs behind authorization, so that the server reads
// bodies only from clients that may write.
func WithBodyBounds(next http.Handler, serializer runtime.NegotiatedSerializer, longRunning genericapirequest.LongRunningRequestCheck, bounds limits.Bounds, watches limits.Watches, maxBody int64) http.Handler {
	server := next
	next = limits.WithMemoryBounds(next, serializer, longRunning, bounds, watches, maxBody, func(req *http.Request, verb string, body []byte) error {
		var noMemory error
		stored := func() (object []byte) {
			object, noMemory = storedObject(server, req)
			return object
		}
		mediaType, elements := mediaTypeOf(req), 0
		err := checkText(bounds, verb, mediaType, body, maxBody, stored)
		if err == nil && noMemory == nil {
			elements = elementsOf(mediaType, body, stored)
		}
		switch {
		case noMemory != nil:
			return noMemory
		case err != nil:
			return apierrors.NewBadRequest(err.Error())
		}
		return limits.TakeElementsMemory(req.Context(), elements, bounds.BodyElements)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := genericapirequest.RequestInfoFrom(req.Context()); ok && info.IsResourceRequest {
			if err := checkNamespace(info.Namespace); err != nil {
				version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
				responsewriters.ErrorNegotiated(err, serializer, version, w, req)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// WithBodyDeadline ends the wait for a body when the time for a request is over. The library only answers then, but
// over HTTP/1.1 the answer itself waits for the body. A client that stops in the middle of a body would keep its
// share of the requests in flight as long as it likes.
// Upstream fault 9.
func WithBodyDeadline(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength != 0 {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)); err != nil {
				klog.FromContext(req.Context()).Error(err, "A body is waited for without a limit")
			}
		}
		next.ServeHTTP(w, req)
	})
}

// Upstream fault 16.
func checkNamespace(namespace string) error {
	if reasons := content.IsPathSegmentName(namespace); len(reasons) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace %q %s", namespace, strings.Join(reasons, ", ")))
	}
	return nil
}

func checkText(b limits.Bounds, verb, mediaType string, body []byte, maxBody int64, stored func() []byte) error {
	if verb == "patch" && bodycost.NestingExceeds(body, b.PatchDepth) {
		return fmt.Errorf("the patch is nested more than %d levels deep", b.PatchDepth)
	}
	err := bodycost.CheckElements(mediaType, body, b.BodyElements, maxBody)
	if err != nil && (verb == "update" || verb == "patch") {
		err = bodycost.CheckElements(mediaType, body, b.BodyElements+bodycost.JSONElements(stored()), maxBody)
	}
	if err == nil {
		err = checkPaths(b, verb, mediaType, body, stored)
	}
	if err != nil {
		return err
	}
	if mediaType == string(types.StrategicMergePatchType) && bodycost.ListExceeds(body, b.PatchListElements) {
		return fmt.Errorf("the patch has a list of more than %d elements: send a merge patch or an apply patch", b.PatchListElements)
	}
	return bodycost.CheckQuantities(mediaType, body)
}

// elementsOf returns the number of elements in a body, plus those that a JSON patch can copy from the stored
// object.
func elementsOf(mediaType string, body []byte, stored func() []byte) int {
	elements := bodycost.Elements(mediaType, body)
	// An escaped name may also be "from".
	if mediaType == string(types.JSONPatchType) && (bytes.Contains(body, []byte("from")) || bytes.Contains(body, []byte(`\`))) {
		elements += bodycost.JSONElements(stored())
	}
	return elements
}

// checkPaths refuses bodies whose elements have long paths. A patch adds its elements to those that are stored, and
// a JSON patch moves stored ones, too.
func checkPaths(b limits.Bounds, verb, mediaType string, body []byte, stored func() []byte) error {
	limit := b.FieldPathBytes
	small := limit / 8
	paths := bodycost.Paths(mediaType, body, small)
	switch {
	case mediaType == string(types.JSONPatchType):
		if longest := bodycost.LongestPointer(body); paths+longest*b.BodyElements > limit {
			paths += longest * (bodycost.JSONElements(body) + bodycost.JSONElements(stored()))
		}
	case verb == "patch" && paths > small:
		paths += bodycost.JSONPaths(stored())
		limit *= 2
	case verb == "update" && paths > limit:
		limit += bodycost.JSONPaths(stored())
	}
	if paths > limit {
		return fmt.Errorf("the paths of all elements together must not be longer than %d bytes: use shorter names for fields with many elements", b.FieldPathBytes)
	}
	return nil
}

// storedObject returns the stored object of a request as JSON, or nil. The error says that there is no memory for the
// object, which the request has to take.
func storedObject(server http.Handler, req *http.Request) ([]byte, error) {
	info, _ := genericapirequest.RequestInfoFrom(req.Context())
	who, _ := genericapirequest.UserFrom(req.Context())
	reading := *info
	reading.Verb = "get"
	// The context is new, so that audit does not record this read as the response.
	ctx, cancel := context.WithCancel(limits.WithMemoryOf(genericapirequest.WithUser(genericapirequest.WithRequestInfo(genericapirequest.NewContext(), &reading), who), req.Context()))
	defer cancel()
	defer context.AfterFunc(req.Context(), cancel)()
	get := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Path: req.URL.Path, RawQuery: "resourceVersion=0"},
		Header: http.Header{"Accept": {runtime.ContentTypeJSON}},
		Body:   http.NoBody,
	}).WithContext(ctx)
	response := responsewriter.NewInMemoryResponseWriter()
	server.ServeHTTP(response, get)
	switch response.RespCode() {
	case http.StatusOK:
		return response.Data(), nil
	case http.StatusTooManyRequests:
		var refusal apierrors.StatusError
		if err := json.Unmarshal(response.Data(), &refusal.ErrStatus); err != nil {
			return nil, err
		}
		return nil, &refusal
	}
	return nil, nil
}

// mediaTypeOf ignores the parameters, as the handler of patches does, even if they are malformed. A parser that
// refuses them would take YAML for something else.
func mediaTypeOf(req *http.Request) string {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}
