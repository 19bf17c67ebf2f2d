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
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

const (
	// maxPatchDepth is how deep objects and arrays of a patch may be nested. A patch
	// library reads a patch again on every level, so that the cost of a deep one
	// grows with the square of its size; no kind's schema comes near a hundred.
	maxPatchDepth = 100
	// maxNumberLength is how many characters a number may have.
	maxNumberLength = 256
)

// withRequestChecks refuses bodies that cost the library much more to decode than
// their size lets expect, and namespaces that etcd's keys can't have in them, for
// which it would answer 500.
func withRequestChecks(next http.Handler, serializer runtime.NegotiatedSerializer, maxBody int64) http.Handler {
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

func checkNamespace(namespace string) error {
	if reasons := path.IsValidPathSegmentName(namespace); len(reasons) > 0 {
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
	mediaType, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if number := expensiveNumber(mediaType, body); number != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("a number has more than %d characters, or an exponent below -999 or of more than 9 digits: %.32s", maxNumberLength, number))
	}
	return nil
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

var (
	// expensive matches a whole number that resource.ParseQuantity would spend
	// minutes and gigabytes on: it writes out 1e-999999999 before it rounds it
	// (kubernetes/kubernetes#141306). An exponent of ten digits overflows: to the
	// library, 1e3000000000 is 1e-1294967296.
	expensive = regexp.MustCompile(fmt.Sprintf(`^[+-]?[0-9.]+(?:[eE]-[0-9]{4,}|[eE]\+?[0-9]{10,}|[0-9.]{%d,}(?:[eE][+-]?[0-9]+)?[a-zA-Z]{0,2})$`, maxNumberLength))
	// suspicious finds in any text where such a number may be, so that other texts
	// need not be parsed.
	suspicious = regexp.MustCompile(fmt.Sprintf(`[0-9.][eE]-[0-9]{4}|[0-9.][eE]\+?[0-9]{10}|[0-9.]{%d}`, maxNumberLength))
)

// expensiveNumber returns a value in the body that is expensive as a quantity,
// whichever field it is in: fields are known only after decoding.
func expensiveNumber(mediaType string, body []byte) string {
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		if suspicious.Match(body) {
			return expensiveInProtobuf(body, 0)
		}
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		// Only YAML has tags, which can turn into strings what does not look like them.
		if suspicious.Match(body) || bytes.ContainsAny(body, `\!`) {
			converted, err := yaml.YAMLToJSON(body)
			if err != nil {
				return "" // The handler says what is wrong.
			}
			return expensiveInJSON(converted)
		}
	case runtime.ContentTypeCBOR, string(types.ApplyCBORPatchType):
		// It is served behind an alpha feature gate only.
		var object any
		if err := direct.Unmarshal(body, &object); err != nil {
			return "" // The handler says what is wrong.
		}
		converted, err := json.Marshal(object)
		if err != nil {
			return ""
		}
		return expensiveInJSON(converted)
	default:
		if suspicious.Match(body) || bytes.ContainsRune(body, '\\') {
			return expensiveInJSON(body)
		}
	}
	return ""
}

func expensiveInJSON(text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return "" // The end, or the handler says what is wrong.
		}
		var value string
		switch token := token.(type) {
		case string:
			value = token
		case json.Number:
			value = token.String()
		}
		// The library does not mind spaces around a quantity.
		if value = strings.TrimSpace(value); expensive.MatchString(value) {
			return value
		}
	}
}

// maxMessageDepth is deeper than the messages of any kind are nested.
const maxMessageDepth = 32

// expensiveInProtobuf takes every field of variable length for a string and for a
// message, since only the schema could tell.
func expensiveInProtobuf(message []byte, depth int) string {
	if depth == 0 {
		message = bytes.TrimPrefix(message, []byte("k8s\x00"))
	}
	for len(message) > 0 {
		_, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return ""
		}
		message = message[n:]
		if wireType != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(1, wireType, message); n < 0 {
				return ""
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return ""
		}
		message = message[n:]
		if expensive.Match(value) {
			return string(value)
		}
		if depth < maxMessageDepth {
			if number := expensiveInProtobuf(value, depth+1); number != "" {
				return number
			}
		}
	}
	return ""
}
