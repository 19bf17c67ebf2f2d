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

package bodycost

import (
	"bytes"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// Paths returns the length in bytes of the paths of all elements of a body, such as spec.rules.a.hosts[3]. JSON is
// assumed if the media type is not a known one. A body that can't exceed the limit may count as less. Call
// CheckElements first. Protobuf is of types in Go, whose validation makes paths of few elements.
// Upstream fault 84.
func Paths(mediaType string, body []byte, limit int) int {
	// Each element has a byte, and a path shorter than the body, unless aliases of YAML repeat both.
	if len(body) <= limit/max(1, len(body)) && !bytes.ContainsRune(body, '*') {
		return 0
	}
	return JSONPaths(asJSON(mediaType, body))
}

// asJSON returns a body as JSON, or nil if it can't be read, since the decoder reports that. It also returns nil for
// protobuf.
func asJSON(mediaType string, body []byte) []byte {
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		return nil
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		if json.Valid(body) {
			break
		}
		converted, err := yaml.YAMLToJSON(body)
		if err != nil {
			return nil
		}
		return converted
	case runtime.ContentTypeCBOR, string(types.ApplyCBORPatchType):
		return cborToJSON(body)
	}
	return body
}

// JSONPaths is Paths for a text in JSON.
func JSONPaths(text []byte) (total int) {
	const index, maxDepth = len("[0]"), 10_000 // Decoders refuse what is deeper.
	type container struct {
		isList    bool
		path, key int
	}
	in := container{}
	var around []container
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			start := i + 1
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			in.key = i - start
		case ':':
			total += in.path + in.key
		case '{', '[':
			if around = append(around, in); len(around) > maxDepth {
				return total
			}
			in = container{isList: text[i] == '[', path: in.path + in.key}
			if in.isList {
				in.key = index
				total += in.path + index
			} else {
				in.path++
			}
		case ',':
			if in.isList {
				in.key = index
				total += in.path + index
			}
		case '}', ']':
			if last := len(around) - 1; last >= 0 {
				in, around = around[last], around[:last]
			}
		}
	}
	return total
}

// LongestPointer returns the length of the longest string in a JSON patch that may be a path.
func LongestPointer(text []byte) (longest int) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		token, err := decoder.Token()
		if err != nil {
			return longest // The end, or the decoder says what is wrong.
		}
		if value, ok := token.(string); ok && strings.HasPrefix(value, "/") {
			longest = max(longest, len(value))
		}
	}
}

func cborToJSON(body []byte) []byte {
	var object any
	if err := direct.Unmarshal(body, &object); err != nil {
		return nil
	}
	converted, err := json.Marshal(object)
	if err != nil {
		return nil
	}
	return converted
}
