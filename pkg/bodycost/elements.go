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

// Package bodycost refuses bodies that cost much more to decode than their length suggests. They have too many
// elements in their lists and objects, or numbers that are expensive to read as a resource.Quantity. Code that
// decodes a client's body checks it first.
package bodycost

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// CheckElements returns an error if a body has more elements than the limit. JSON is assumed if the media type is not
// a known one. YAML must also not have more than maxBytes of text when its aliases are replaced. A body that is
// malformed otherwise is no error.
func CheckElements(mediaType string, body []byte, limit int, maxBytes int64) error {
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		return checkProtobuf(body, limit)
	case runtime.ContentTypeCBOR, string(types.ApplyCBORPatchType):
		return checkCBOR(body, limit)
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		if !json.Valid(body) {
			return checkYAML(body, limit, maxBytes)
		}
	}
	return CheckJSONElements(body, limit)
}

func errTooMany(limit int) error {
	return fmt.Errorf("all lists and objects together must not have more than %d elements", limit)
}

// CheckJSONElements is CheckElements of JSON.
func CheckJSONElements(text []byte, limit int) error {
	if JSONElements(text) > limit {
		return errTooMany(limit)
	}
	return nil
}

// smallBody has too few elements to count them.
const smallBody = 4 << 10

// Elements returns how many elements all lists and objects of a body have together, if it is not a small one. JSON is
// assumed if the media type is not a known one. Protobuf has none. Call CheckElements first.
func Elements(mediaType string, body []byte) int {
	if len(body) < smallBody && !bytes.ContainsRune(body, '*') {
		return 0
	}
	return JSONElements(asJSON(mediaType, body))
}

// JSONElements returns how many elements all lists and objects of a text in JSON have together.
func JSONElements(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	count := 1
	for c := range structure(text) {
		if c == ',' {
			count++
		}
	}
	return count
}

// Object has the bounded numbers of an object. Its managed fields are counted by themselves: they name each field
// once more, and no client asks for them.
type Object struct{ Elements, Managed, Owners int }

// OfObject returns the bounded numbers of an object. It counts elements only if the encoding is larger than the
// limit.
func OfObject(object any, size, limit int) (has Object, err error) {
	metadata, ok := object.(metav1.Object)
	if ok {
		has.Owners = len(metadata.GetOwnerReferences())
	}
	if size <= limit {
		return has, nil
	}
	all, err := json.Marshal(object)
	if err != nil {
		return has, err
	}
	if ok {
		managed, err := json.Marshal(metadata.GetManagedFields())
		if err != nil {
			return has, err
		}
		has.Managed = JSONElements(managed)
	}
	has.Elements = JSONElements(all) - has.Managed
	return has, nil
}

// Check returns an error if a number exceeds its limit.
func (o Object) Check(limit Object) error {
	switch {
	case o.Owners > limit.Owners:
		return fmt.Errorf("metadata.ownerReferences: must have at most %d items, not %d", limit.Owners, o.Owners)
	case o.Managed > limit.Managed:
		return fmt.Errorf("metadata.managedFields: %w", errTooMany(limit.Managed))
	case o.Elements > limit.Elements:
		return errTooMany(limit.Elements)
	}
	return nil
}

// Or returns the higher limit of each.
func (o Object) Or(other Object) Object {
	return Object{max(o.Elements, other.Elements), max(o.Managed, other.Managed), max(o.Owners, other.Owners)}
}

// structure returns the bytes outside of strings in JSON, or in the flow style of YAML. The text may be malformed.
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

// NestingExceeds tells whether objects and arrays are nested more than limit levels deep.
func NestingExceeds(text []byte, limit int) bool {
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

// ListExceeds tells whether a list in JSON has more elements than the limit.
func ListExceeds(text []byte, limit int) bool {
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
