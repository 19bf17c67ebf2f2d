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
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// A message of empty owners once was decoded before they were counted, and took fifty
// times its size.
func TestProtobufBounds(t *testing.T) {
	const limit, tooMany = 100, "all lists and objects together must not have more than 100 elements"
	object := func(meta metav1.ObjectMeta) string {
		return string(encode(t, &metav1.PartialObjectMetadata{ObjectMeta: meta}))
	}
	empty := strings.Repeat("\x6a\x00", limit+2)
	field := func(number protowire.Number, value string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
	}
	for name, test := range map[string]struct{ body, want string }{
		"an object":               {object(metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b", "c": "d"}}), ""},
		"finalizers":              {object(metav1.ObjectMeta{Finalizers: make([]string, 90)}), ""},
		"many finalizers":         {object(metav1.ObjectMeta{Finalizers: make([]string, 102)}), tooMany},
		"many owners":             {object(metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, 102)}), tooMany},
		"many empty owners":       {"k8s\x00" + field(2, field(1, empty)), tooMany},
		"many, then malformed":    {"k8s\x00" + field(2, field(1, empty+"\xff")), tooMany},
		"many, and cut off":       {"k8s\x00" + field(2, field(1, empty)+"\x12\x7f"), tooMany},
		"many of two messages":    {"k8s\x00" + field(2, field(1, empty[:110])+field(1, empty[:110])), tooMany},
		"many as text":            {"k8s\x00" + field(2, field(1, strings.Repeat(field(14, "example.com/a"), 102))), tooMany},
		"text":                    {object(metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("j0\n", 1000)}}), ""},
		"numbers without a list":  {"k8s\x00" + field(2, strings.Repeat("\x08\x01", 102)), ""},
		"nothing":                 {"", ""},
		"no more than the prefix": {"k8s\x00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireError(t, checkProtobuf([]byte(test.body), limit), test.want)
		})
	}
}

// encode returns an object as the body of a request.
func encode(t testing.TB, object interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := object.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := runtime.Unknown{Raw: raw}
	body, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

func TestCBORBounds(t *testing.T) {
	const limit, tooMany = 100, "all lists and objects together must not have more than 100 elements"
	cbor := func(value any) string {
		data, err := direct.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for name, test := range map[string]struct{ body, want string }{
		"an object":             {cbor(map[string]any{"a": []any{1, 2.5, "b", nil, true}, "c": strings.Repeat("\x80", 1000)}), ""},
		"a list":                {cbor(make([]int, 90)), ""},
		"a long list":           {cbor(make([]int, 201)), tooMany},
		"lists in lists":        {strings.Repeat("\x81", 202), tooMany},
		"a list without length": {"\x9f" + strings.Repeat("\x80", 201) + "\xff", tooMany},
		"a huge length":         {"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x01", ""},
		"a huge string":         {"\x7b\xff\xff\xff\xff\xff\xff\xff\xff\x01", ""},
		"cut off":               {"\x1b\x01", ""},
		"nothing":               {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireError(t, checkCBOR([]byte(test.body), limit), test.want)
		})
	}
}

// FuzzProtobuf looks for messages with more elements than are counted before they are
// decoded.
func FuzzProtobuf(f *testing.F) {
	f.Add(encode(f, &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b", "c": "d"}, Finalizers: []string{"a", "b"},
		OwnerReferences: make([]metav1.OwnerReference, 3),
		ManagedFields:   []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1("{}")}},
	}}, {}}}))
	f.Add([]byte("k8s\x00\x12\x06\x0a\x04\x6a\x00\x6a\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 4<<10 {
			return
		}
		counted := 0
		repeatsExceed(bytes.TrimPrefix(body, []byte("k8s\x00")), &counted, len(body), 0)

		var unknown runtime.Unknown
		var list metav1.PartialObjectMetadataList
		if unknown.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00"))) != nil || list.Unmarshal(unknown.Raw) != nil {
			return
		}
		// The first element of a list is not counted.
		elements, lists := len(list.Items), 1
		for _, item := range list.Items {
			elements += len(item.Labels) + len(item.Annotations) + len(item.OwnerReferences) + len(item.Finalizers) + len(item.ManagedFields)
			lists += 5
		}
		if elements > counted+lists {
			t.Errorf("%q has %d elements, and %d were counted", body, elements, counted)
		}
	})
}

// FuzzCBOR looks for data with more items than are counted before it is decoded.
func FuzzCBOR(f *testing.F) {
	for _, seed := range []string{"\xa1\x61a\x83\x01\x02\x03", "\x9f\x80\xa0\xff", "\x5f\x41a\xff", "\xfb\x00\x00\x00\x00\x00\x00\x00\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 4<<10 {
			return
		}
		counted := 0
		for rest := body; len(rest) > 0; counted++ {
			n := cborItem(rest)
			if n == 0 {
				break
			}
			if n > len(rest) {
				t.Fatalf("an item of %d bytes was found in %d bytes", n, len(rest))
			}
			rest = rest[n:]
		}
		var object any
		if direct.Unmarshal(body, &object) != nil {
			return
		}
		text, err := json.Marshal(object)
		if err != nil {
			return
		}
		elements := 0
		for c := range structure(text) {
			if c == ',' {
				elements++
			}
		}
		if elements > counted {
			t.Errorf("%q has %d elements, and %d items were counted", body, elements, counted)
		}
	})
}
