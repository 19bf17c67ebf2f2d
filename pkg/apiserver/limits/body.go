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

package limits

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	sigsyaml "sigs.k8s.io/yaml"
)

// maxYAMLBytes bounds YAML, which takes much more time and memory to decode than JSON.
const maxYAMLBytes = 256 << 10

// CheckBody returns how many bytes of memory a body takes while it is worked on, or why it would cost much more than its
// size suggests. JSON is assumed if the media type is not a known one. A body that is malformed otherwise is no error,
// since its decoder says so.
func (b *Bounds) CheckBody(verb, mediaType string, body []byte) (memory int64, err error) {
	text, factor := body, factorOf(mediaType)
	switch {
	case mediaType == runtime.ContentTypeProtobuf:
		if mayBeExpensive(body) {
			return 0, errors.New("a number may be too long, or have too large an exponent: send JSON")
		}
		return int64(len(body)) * factor, nil
	case factor == binaryFactor:
		text = cborToJSON(body)
	case factor == yamlFactor:
		if text, err = yamlToJSON(body); err != nil {
			return 0, err
		}
	}
	shape := shapeOf(text)
	switch {
	case verb == "patch" && shape.depth > b.PatchDepth:
		return 0, fmt.Errorf("the patch is nested more than %d levels deep", b.PatchDepth)
	case shape.elements > b.BodyElements:
		return 0, errTooManyElements(b.BodyElements)
	case shape.paths > b.FieldPathBytes:
		return 0, fmt.Errorf("the paths of all elements together must not be longer than %d bytes: use shorter names for fields with many elements", b.FieldPathBytes)
	case mediaType == string(types.StrategicMergePatchType) && shape.list > b.PatchListElements:
		return 0, fmt.Errorf("the patch has a list of more than %d elements: send a merge patch or an apply patch", b.PatchListElements)
	}
	return int64(len(body))*factor + int64(shape.elements)*elementBytes, CheckQuantities(text)
}

func errTooManyElements(limit int) error {
	return fmt.Errorf("all lists and objects together must not have more than %d elements", limit)
}

func factorOf(mediaType string) int64 {
	switch mediaType {
	case runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR, string(types.ApplyCBORPatchType):
		return binaryFactor
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		return yamlFactor
	default:
		return textFactor
	}
}

// cborToJSON returns nil if the body can't be read, since the decoder reports that.
func cborToJSON(body []byte) []byte {
	var object any
	if err := direct.Unmarshal(body, &object); err != nil {
		return nil
	}
	converted, _ := json.Marshal(object)
	return converted
}

// directive matches a directive of YAML: a percent sign that begins a line.
var directive = regexp.MustCompile(`(^|[\n\r\x{85}\x{2028}\x{2029}\x{FEFF}])%`)

// yamlToJSON returns nil if the body can't be read, since the decoder reports that.
// Upstream fault 4.
func yamlToJSON(body []byte) ([]byte, error) {
	switch {
	case json.Valid(body):
		return body, nil
	case len(body) > maxYAMLBytes:
		return nil, fmt.Errorf("YAML must not have more than %d bytes: send JSON", maxYAMLBytes)
	case !utf8.Valid(body):
		return nil, errors.New("YAML must be in UTF-8")
	case directive.Match(body):
		return nil, errors.New("YAML must not have directives: remove the lines that begin with %")
	case bytes.ContainsRune(body, '*'):
		var document yaml.Node
		if err := yaml.Unmarshal(body, &document); err != nil || hasAlias(&document) {
			return nil, errors.New("YAML must not have aliases: repeat what they stand for, or send JSON")
		}
	}
	converted, err := sigsyaml.YAMLToJSON(body)
	if err != nil {
		return nil, nil //nolint:nilerr // See above.
	}
	return converted, nil
}

func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || slices.ContainsFunc(node.Content, hasAlias)
}

// shape is what decoders and validation spend their time on.
type shape struct {
	// elements counts those in all lists and objects, list those in the longest list.
	elements, list int
	// depth is how deep lists and objects are nested.
	depth int
	// paths is the length of the paths of all elements, such as spec.rules.a.hosts[3].
	// Upstream fault 84.
	paths int
}

// shapeOf looks at a text in JSON, which may be malformed. Decoders refuse what is deeper than it looks.
func shapeOf(text []byte) (s shape) {
	const index, maxDepth = len("[0]"), 10_000
	type container struct {
		isList              bool
		elements, path, key int
	}
	in := container{}
	var around []container
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			start := i + 1
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			in.key = i - start
		case ':':
			s.paths += in.path + in.key
		case '{', '[':
			around = append(around, in)
			if s.depth = max(s.depth, len(around)); s.depth > maxDepth {
				return s
			}
			in = container{isList: c == '[', path: in.path + in.key, elements: 1}
			if in.isList {
				in.key = index
				s.paths += in.path + index
			} else {
				in.path++
			}
		case ',':
			s.elements++
			in.elements++
			if in.isList {
				in.key = index
				s.paths += in.path + index
				s.list = max(s.list, in.elements)
			}
		case '}', ']':
			if last := len(around) - 1; last >= 0 {
				in, around = around[last], around[:last]
			}
		}
	}
	if len(text) > 0 {
		s.elements++
	}
	return s
}

// CheckObject checks what only the decoded object shows, such as the result of a patch. Its elements, managed fields and
// all, are counted if its encoding, of so many bytes, could have more than the limit.
func (b *Bounds) CheckObject(object metav1.Object, size, limit int) error {
	if owners := len(object.GetOwnerReferences()); owners > b.Owners {
		return fmt.Errorf("metadata.ownerReferences: must have at most %d items, not %d", b.Owners, owners)
	}
	if size <= limit {
		return nil
	}
	encoded, err := json.Marshal(object)
	if err == nil && shapeOf(encoded).elements > limit {
		err = errTooManyElements(limit)
	}
	return err
}
