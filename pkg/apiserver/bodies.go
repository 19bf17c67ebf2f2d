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
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
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
	// maxPatchElements is how many elements a list of a strategic merge patch may
	// have. The library looks for each of them among all others, one by one.
	maxPatchElements = 5000
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
	if mediaType == string(types.StrategicMergePatchType) && listExceeds(body, maxPatchElements) {
		return apierrors.NewBadRequest(fmt.Sprintf("the patch has a list of more than %d elements: send a merge patch or an apply patch", maxPatchElements))
	}
	if number := expensiveNumber(mediaType, body); number != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("a number has more than %d characters, or an exponent below -999 or of more than 9 digits: %.32s", maxNumberLength, number))
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

// listExceeds tells whether a list in JSON has more elements than the limit.
func listExceeds(text []byte, limit int) bool {
	var commas []int // In each list and object that is open; -1 is for objects.
	inString := false
	for i := 0; i < len(text); i++ {
		innermost := len(commas) - 1
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
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

// isExpensive tells whether the text is a number that resource.ParseQuantity would
// spend minutes and gigabytes on: it writes out 1e-999999999 before it rounds it
// (kubernetes/kubernetes#141306). It is no regular expression, as those are slow on
// long numbers themselves.
func isExpensive(text []byte) bool {
	// The longest ending that is neither part of a number nor a tiny exponent.
	const maxSuffix = len("e+123456789")

	text = bytes.TrimLeft(text, "+-")
	suffix := bytes.TrimLeft(text, "0123456789.")
	length := len(text) - len(suffix)
	switch {
	case length == 0:
		return false
	case len(suffix) > 0 && (suffix[0] == 'e' || suffix[0] == 'E') && isTinyExponent(suffix[1:]):
		return len(bytes.TrimLeft(suffix[2:], "0123456789")) == 0
	default:
		return length > maxNumberLength && len(suffix) <= maxSuffix
	}
}

// isTinyExponent tells whether the text, which follows an "e", begins with a very
// small exponent. One of ten digits overflows: to the library, 1e3000000000 is
// 1e-1294967296.
func isTinyExponent(text []byte) bool {
	digits := 10
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		if text[0] == '-' {
			digits = 4
		}
		text = text[1:]
	}
	return len(text) >= digits && len(bytes.TrimLeft(text[:digits], "0123456789")) == 0
}

// isSuspicious tells whether an expensive number may be in any text, so that other
// texts need not be parsed.
func isSuspicious(text []byte) bool {
	length := 0
	for i, c := range text {
		switch {
		case '0' <= c && c <= '9' || c == '.':
			if length++; length > maxNumberLength {
				return true
			}
		case length > 0 && (c == 'e' || c == 'E') && isTinyExponent(text[i+1:]):
			return true
		default:
			length = 0
		}
	}
	return false
}

// expensiveNumber returns a value in the body that is expensive as a quantity,
// whichever field it is in: fields are known only after decoding.
func expensiveNumber(mediaType string, body []byte) string {
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		if isSuspicious(body) {
			return expensiveInProtobuf(body, 0)
		}
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		// Only YAML has tags, which can turn into strings what does not look like them.
		if isSuspicious(body) || bytes.ContainsAny(body, `\!`) {
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
		if isSuspicious(body) || bytes.ContainsRune(body, '\\') {
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
		if value = strings.TrimSpace(value); isExpensive([]byte(value)) {
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
		if isExpensive(value) {
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
