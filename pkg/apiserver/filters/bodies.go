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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/quantities"
)

const (
	// maxPatchDepth is how deep objects and arrays of a patch may be nested. A patch
	// library reads a patch again on every level, so that the cost of a deep one
	// grows with the square of its size; no kind's schema comes near a hundred.
	// Upstream fault 1.
	maxPatchDepth = 100
	// maxPatchElements is how many elements a list of a strategic merge patch may
	// have. The library looks for each of them among all others, one by one.
	// Upstream fault 2.
	maxPatchElements = 1000
	// maxElements is how many elements all lists and objects of a body may have
	// together. To tell who owns which field, the library inserts the keys of each into
	// a sorted list, one by one: 200 000 labels kept a processor busy for half a minute.
	// Upstream fault 3.
	maxElements = 20_000
)

// WithRequestChecks refuses bodies that cost the library much more to decode than
// their size lets expect, and namespaces that etcd's keys can't have in them, for
// which it would answer 500.
func WithRequestChecks(next http.Handler, serializer runtime.NegotiatedSerializer, maxBody int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := genericapirequest.RequestInfoFrom(req.Context()); ok && info.IsResourceRequest {
			err := checkNamespace(info.Namespace)
			if err == nil {
				err = checkBody(req, info.Verb, maxBody)
			}
			if err != nil {
				version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
				responsewriters.ErrorNegotiated(err, serializer, version, w, req)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// WithBodyDeadline ends the wait for a body when the time for a request is over. The
// library only answers then: over HTTP/1.1 the answer itself waits for the body, and a
// client that stops in the middle of one keeps its share of the requests in flight from
// all others for as long as it likes.
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

// checkBody reads the body, as far as it is not too large for the handler anyway,
// and puts it back.
func checkBody(req *http.Request, verb string, maxBody int64) error {
	switch verb {
	case "create", "update", "patch":
	default:
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the body can't be read: %v", err))
	}
	req.Body = readCloser{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}

	if verb == "patch" && nestingExceeds(body, maxPatchDepth) {
		return apierrors.NewBadRequest(fmt.Sprintf("the patch is nested more than %d levels deep", maxPatchDepth))
	}
	mediaType := mediaTypeOf(req)
	if err := checkElements(mediaType, body); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if mediaType == string(types.StrategicMergePatchType) && listExceeds(body, maxPatchElements) {
		return apierrors.NewBadRequest(fmt.Sprintf("the patch has a list of more than %d elements: send a merge patch or an apply patch", maxPatchElements))
	}
	if err := quantities.Check(mediaType, body); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// mediaTypeOf ignores the parameters, as the handler of patches does, even if they
// are malformed: a parser that refuses them would take YAML for something else.
func mediaTypeOf(req *http.Request) string {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

type readCloser struct {
	io.Reader
	io.Closer
}

// checkElements refuses text with too many elements. A protobuf message is small until
// it is decoded, and is left to the boundedDecoder.
func checkElements(mediaType string, body []byte) error {
	switch mediaType {
	case runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR, string(types.ApplyCBORPatchType):
		return nil
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		if json.Valid(body) {
			break
		}
		// YAML in UTF-16 would be read differently from how it is checked.
		if !utf8.Valid(body) {
			return errors.New("YAML must be in UTF-8")
		}
		// What is in strings counts, too: to tell, it would have to be decoded, which
		// takes hundreds of times its size.
		// Upstream fault 4.
		separators := 0
		for _, separator := range []string{",", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
			separators += bytes.Count(body, []byte(separator))
		}
		if separators > maxElements {
			return fmt.Errorf("YAML must not have more than %d lines and commas: send JSON", maxElements)
		}
		return nil
	}
	return checkSeparators(body)
}

// checkSeparators refuses JSON with too many elements.
func checkSeparators(text []byte) error {
	commas := 0
	for c := range structure(text) {
		if c != ',' {
			continue
		}
		if commas++; commas >= maxElements {
			return fmt.Errorf("all lists and objects together must not have more than %d elements", maxElements)
		}
	}
	return nil
}

// structure returns what is in no string of JSON, or of the flow style of YAML. It does
// not mind whether the text is well-formed.
func structure(text []byte) iter.Seq[byte] {
	return func(yield func(byte) bool) {
		inString := false
		for i := 0; i < len(text); i++ {
			switch c := text[i]; {
			case inString && c == '\\':
				i++
			case c == '"':
				inString = !inString
			case !inString && !yield(c):
				return
			}
		}
	}
}

// nestingExceeds tells whether objects and arrays are nested more than limit levels deep.
func nestingExceeds(text []byte, limit int) bool {
	depth := 0
	for c := range structure(text) {
		switch c {
		case '{', '[':
			if depth++; depth > limit {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// listExceeds tells whether a list in JSON has more elements than the limit.
func listExceeds(text []byte, limit int) bool {
	var commas []int // In each list and object that is open; -1 is for objects.
	for c := range structure(text) {
		innermost := len(commas) - 1
		switch {
		case c == '{':
			commas = append(commas, -1)
		case c == '[':
			commas = append(commas, 0)
		case innermost < 0:
		case c == '}', c == ']':
			commas = commas[:innermost]
		case c == ',' && commas[innermost] >= 0:
			if commas[innermost]++; commas[innermost] >= limit {
				return true
			}
		}
	}
	return false
}
