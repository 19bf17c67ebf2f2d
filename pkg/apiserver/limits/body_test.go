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
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	jsonType, yamlType, applyType = "application/json", "application/yaml", "application/apply-patch+yaml"
	strategicType                 = "application/strategic-merge-patch+json"
	protobufType, cborType        = "application/vnd.kubernetes.protobuf", "application/cbor"
)

func TestCheckBody(t *testing.T) {
	const (
		limit     = 100
		tooMany   = "all lists and objects together must not have more than 100 elements"
		directive = "YAML must not have directives: remove the lines that begin with %"
		aliases   = "YAML must not have aliases: repeat what they stand for, or send JSON"
		tooDeep   = "the patch is nested more than 3 levels deep"
		tooLong   = "the paths of all elements together must not be longer than 10000 bytes: use shorter names for fields with many elements"
		number    = "a number has more than 256 characters, or an exponent below -999 or of more than 9 digits, or of more than 3 after 18 digits: "
		binary    = "a number may be too long, or have too large an exponent: send JSON"
		tiny      = "1e-999999999"
	)
	bounds := DefaultBounds()
	bounds.BodyElements, bounds.PatchDepth, bounds.PatchListElements, bounds.FieldPathBytes = limit, 3, 10, 10_000
	list := func(elements int) string { return "[" + strings.Repeat("0,", elements-1) + "0]" }
	long, key := strings.Repeat("1", maxNumberLength+1), strings.Repeat("k", 1000)
	protobuf := func(payload string) string {
		inner := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), payload)
		return "k8s\x00" + string(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner))
	}
	for name, test := range map[string]struct{ verb, mediaType, body, want string }{
		"at the limit":            {"create", jsonType, list(limit), ""},
		"a list":                  {"create", jsonType, list(limit + 1), tooMany},
		"an object":               {"create", jsonType, "{" + strings.Repeat(`"a":1,`, limit) + `"a":1}`, tooMany},
		"two lists":               {"create", jsonType, `{"a":` + list(51) + `,"b":` + list(51) + `}`, tooMany},
		"a list that is cut off":  {"create", jsonType, strings.TrimSuffix(list(limit+1), "]"), tooMany},
		"commas in a string":      {"create", jsonType, `{"a":"` + strings.Repeat(`\",`, limit+1) + `"}`, ""},
		"no media type":           {"create", "", list(limit + 1), tooMany},
		"YAML":                    {"create", yamlType, strings.Repeat("- a\n", limit), ""},
		"YAML of one more":        {"create", yamlType, strings.Repeat("- a\n", limit+1), tooMany},
		"JSON as YAML":            {"patch", applyType, list(limit + 1), tooMany},
		"large YAML":              {"create", yamlType, "a: " + strings.Repeat("x", maxYAMLBytes), fmt.Sprintf("YAML must not have more than %d bytes: send JSON", maxYAMLBytes)},
		"large JSON as YAML":      {"create", yamlType, `"` + strings.Repeat("x", maxYAMLBytes) + `"`, ""},
		"YAML in UTF-16":          {"create", yamlType, "\xff\xfea\x00", "YAML must be in UTF-8"},
		"a directive":             {"create", yamlType, "%TAG !a! b\n---\na: !a!c d", directive},
		"a later directive":       {"create", yamlType, "a: b\u2028%TAG !a! b", directive},
		"a directive after a BOM": {"create", yamlType, "\ufeff%YAML 1.1\n---\na: b", directive},
		"a percent sign":          {"create", yamlType, "a: 100%\nb: \"%d\"", ""},
		"an alias":                {"create", yamlType, "a: &a b\nc: *a", aliases},
		"a merged alias":          {"patch", applyType, "a: &a {b: c}\nd: {<<: *a}", aliases},
		"an alias without anchor": {"create", yamlType, "a: *b", aliases},
		"stars in text":           {"create", yamlType, "a: '*b'\nc: d * e\nf: \"*.example.com\"", ""},
		"what is no YAML":         {"create", yamlType, "a: b: c", ""},
		"a nested patch":          {"patch", jsonType, `[[[0]]]`, ""},
		"a deeper patch":          {"patch", jsonType, `[[[[0]]]]`, tooDeep},
		"a patch that is cut off": {"patch", jsonType, `[[[[`, tooDeep},
		"brackets in a string":    {"patch", jsonType, `{"a\"":"\"[[[[["}`, ""},
		"a deep object":           {"create", jsonType, `[[[[0]]]]`, ""},
		"more ends than starts":   {"patch", jsonType, `]]]][[[`, ""},
		"a strategic patch":       {"patch", strategicType, `{"a":` + list(10) + `,"b":` + list(10) + `}`, ""},
		"a longer list":           {"patch", strategicType, `{"a":{"b":` + list(11) + `}}`, "the patch has a list of more than 10 elements: send a merge patch or an apply patch"},
		"a longer list elsewhere": {"patch", "application/merge-patch+json", list(11), ""},
		"a long key of a list":    {"create", jsonType, `{"` + key + `":` + list(10) + `}`, tooLong},
		"one of YAML":             {"create", yamlType, "? " + key + "\n: " + list(10), tooLong},
		"a long key of a few":     {"create", jsonType, `{"` + key + `":` + list(8) + `}`, ""},
		"a number":                {"create", jsonType, `{"a":[{"b":` + tiny + `}]}`, number + tiny},
		"a string":                {"create", jsonType, `{"a":"` + tiny + `"}`, number + tiny},
		"an escaped string":       {"create", jsonType, `{"a":"1\u0065\u002d999999999"}`, number + tiny},
		"between spaces":          {"create", jsonType, `{"a":"\u00a0 ` + tiny + ` "}`, number + tiny},
		"signed, with a point":    {"create", jsonType, `{"a":"-1.5E-01000"}`, number + "-1.5E-01000"},
		"overflowing":             {"create", jsonType, `{"a":1E+2147483648}`, number + "1E+2147483648"},
		"many digits":             {"create", jsonType, `{"a":"1000000000000000000e1000"}`, number + "1000000000000000000e1000"},
		"an int64":                {"create", jsonType, `{"a":"100000000000000000e999999999"}`, ""},
		"a long number":           {"create", jsonType, `{"a":"` + long + `Ki"}`, number + long[:32]},
		"an ordinary exponent":    {"create", jsonType, `{"a":"1e-999","b":"1E6","c":1e-3,"d":"1e999999999"}`, ""},
		"a UUID and a commit":     {"create", jsonType, `{"a":"550e8400-e29b-41d4-a71e-446655440000","b":"1e1234567"}`, ""},
		"a number in a path":      {"create", jsonType, `{"a":"x/` + tiny + `"}`, ""},
		"a number in YAML":        {"create", yamlType, "a: '" + tiny + "'", number + tiny},
		"a plain one in YAML":     {"create", yamlType, "a: " + tiny, ""}, // Its decoder makes it a zero.
		"an escape of YAML":       {"patch", applyType, `a: "1\x65-999999999"`, number + tiny},
		"binary YAML":             {"patch", applyType, "a: !!binary MWUtOTk5OTk5OTk5", number + tiny},
		"a number in protobuf":    {"create", protobufType, protobuf(tiny), binary},
		"a long one in protobuf":  {"create", protobufType, protobuf(long), binary},
		"after another length":    {"create", protobufType, "k8s\x00\n\x8c\x80\x00" + tiny, binary},
		"after another tag":       {"create", protobufType, "k8s\x00\x8a\x80\x80\x80\x80a," + strings.Repeat("0", 32) + tiny, binary},
		"before another field":    {"create", protobufType, "k8s\x00\x8a\x80\x80\x80\x80a," + strings.Repeat("0", 32) + tiny + "00", binary},
		"a UID in protobuf":       {"create", protobufType, protobuf("550e8400-e29b-41de-9716-4e6e-7161"), ""},
		"a number in CBOR":        {"create", cborType, "\xa1\x61a\x6c" + tiny, number + tiny},
		"chunks of CBOR":          {"create", cborType, "\xa1\x61a\x7f\x62" + tiny[:2] + "\x6a" + tiny[2:] + "\xff", number + tiny},
		"a list in CBOR":          {"create", cborType, "\x9f" + strings.Repeat("\x00", limit+1) + "\xff", tooMany},
		"what is no CBOR":         {"create", cborType, "\xa1", ""},
		"protobuf":                {"create", protobufType, protobuf("1e3"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bounds.CheckBody(test.verb, test.mediaType, []byte(test.body))
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}

func TestMemoryOfBody(t *testing.T) {
	bounds := DefaultBounds()
	for name, test := range map[string]struct {
		mediaType, body string
		want            int64
	}{
		"JSON":     {jsonType, `{"a":[1,2]}`, 11*textFactor + 2*elementBytes},
		"YAML":     {yamlType, "a: [1, 2]", 9*yamlFactor + 2*elementBytes},
		"protobuf": {protobufType, "k8s\x00", 4 * binaryFactor},
		"nothing":  {jsonType, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			memory, err := bounds.CheckBody("create", test.mediaType, []byte(test.body))
			require.NoError(t, err)
			require.Equal(t, test.want, memory)
		})
	}
}

func TestCheckObject(t *testing.T) {
	const limit = 100
	labels := func(count int) map[string]string {
		all := map[string]string{}
		for n := range count {
			all[fmt.Sprint(n)] = "a"
		}
		return all
	}
	for name, test := range map[string]struct {
		object metav1.ObjectMeta
		size   int
		want   string
	}{
		"owners":              {metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, 2)}, 0, ""},
		"too many owners":     {metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, 3)}, 0, "metadata.ownerReferences: must have at most 2 items, not 3"},
		"elements":            {metav1.ObjectMeta{Labels: labels(limit)}, 1000, ""},
		"too many elements":   {metav1.ObjectMeta{Labels: labels(limit + 1)}, 1000, "all lists and objects together must not have more than 100 elements"},
		"too few bytes":       {metav1.ObjectMeta{Labels: labels(limit + 1)}, limit, ""},
		"many managed fields": {metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, limit+1)}, 1000, "all lists and objects together must not have more than 100 elements"},
	} {
		t.Run(name, func(t *testing.T) {
			bounds := Bounds{Owners: 2}
			if err := bounds.CheckObject(&test.object, test.size, limit); test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	for name, test := range map[string]struct{ text, paths string }{
		"nothing":              {``, ""},
		"a scalar":             {`"abc"`, ""},
		"two fields":           {`{"abc":1,"d":{}}`, ".abc.d"},
		"a field within":       {`{"abc":{"d":1},"e":1}`, ".abc.abc.d.e"},
		"a list":               {`{"abc":[1,2]}`, ".abc.abc[0].abc[1]"},
		"a list of objects":    {`{"a":[{"b":1},{"b":1}]}`, ".a.a[0].a[0].b.a[1].a[1].b"},
		"brackets in a string": {`{"a":"[{,:"}`, ".a"},
		"quotes in a key":      {`{"a\"b":1}`, `.a\"b`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, len(test.paths), shapeOf([]byte(test.text)).paths)
		})
	}
}

// FuzzQuantity looks for text that is not found expensive, but that takes long to read.
func FuzzQuantity(f *testing.F) {
	for _, seed := range []string{"1", "-1.5Ki", "1e3", "1e-998", "1E+6", "1e999999999", "0.1m", " 1 ", "1e", "e5", "+.5e-3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body, err := json.Marshal(map[string]string{"a": text})
		require.NoError(t, err)
		if CheckQuantities(body) != nil {
			return
		}
		// A number this long has been written out in full.
		if quantity, err := resource.ParseQuantity(text); err == nil {
			require.LessOrEqual(t, quantity.AsDec().UnscaledBig().BitLen(), 1<<12, "%q", text)
		}
	})
}
