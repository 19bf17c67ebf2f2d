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

package objects_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/kit/objects"
)

// Each change of an object is listed with what the field becomes.
func TestChanges(t *testing.T) {
	for name, test := range map[string]struct {
		schema, object string
		changes        []string
	}{
		"string": {
			`{type: object, properties: {a: {type: string}}}`, `{"a":"x"}`,
			[]string{
				` unknown field: {"a":"x","unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a number for a string: {"a":1}`,
				`.a boolean for a string: {"a":true}`,
				`.a object for a string: {"a":{}}`,
				`.a empty string: {"a":""}`,
			},
		},
		"bounded string that is required": {
			`{type: object, required: [a], properties: {a: {type: string, minLength: 2, maxLength: 3, pattern: "^[a-z0-9]+$"}}}`, `{"a":"xy"}`,
			[]string{
				` unknown field: {"a":"xy","unknownField":"text"}`,
				`.a required, but missing: {}`,
				`.a null: {"a":null}`,
				`.a number for a string: {"a":1}`,
				`.a boolean for a string: {"a":true}`,
				`.a object for a string: {"a":{}}`,
				`.a empty string: {"a":""}`,
				`.a too short: {"a":"x"}`,
				`.a as long as may be: {"a":"xya"}`,
				`.a as long as may be, in umlauts: {"a":"äää"}`,
				`.a too long: {"a":"xyaa"}`,
				`.a not of the pattern: {"a":"!"}`,
			},
		},
		"enumeration": {
			`{type: object, properties: {a: {type: string, enum: [x]}}}`, `{"a":"x"}`,
			[]string{
				` unknown field: {"a":"x","unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a unknown value: {"a":"unknown-value"}`,
				`.a empty string: {"a":""}`,
				`.a number for a string: {"a":1}`,
				`.a boolean for a string: {"a":true}`,
				`.a object for a string: {"a":{}}`,
			},
		},
		"integer": {
			`{type: object, properties: {a: {type: integer, minimum: 0.5, maximum: 7}}}`, `{"a":4}`,
			[]string{
				` unknown field: {"a":4,"unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a integer as 1.0: {"a":4.0}`,
				`.a integer as 1e0: {"a":4e0}`,
				`.a integer as 1e3: {"a":1e3}`,
				`.a fraction for an integer: {"a":1.5}`,
				`.a zero: {"a":0}`,
				`.a minus one: {"a":-1}`,
				`.a beyond 32 bits: {"a":2147483648}`,
				`.a beyond 32 bits, negative: {"a":-2147483649}`,
				`.a largest of 64 bits: {"a":9223372036854775807}`,
				`.a beyond 64 bits: {"a":9223372036854775808}`,
				`.a string for an integer: {"a":"4"}`,
				`.a boolean for an integer: {"a":true}`,
				`.a at the minimum: {"a":1}`,
				`.a below the minimum: {"a":0}`,
				`.a at the maximum: {"a":7}`,
				`.a above the maximum: {"a":8}`,
			},
		},
		"list by keys, in what is not there": {
			`{type: object, properties: {a: {type: array, maxItems: 2, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: boolean}}}}, b: {type: string}}}`,
			`{"a":[{"k":true}]}`,
			[]string{
				` unknown field: {"a":[{"k":true}],"unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a object for a list: {"a":{}}`,
				`.a string for a list: {"a":"text"}`,
				`.a empty list: {"a":[]}`,
				`.a[] null: {"a":[null]}`,
				`.a[] string for an object: {"a":["text"]}`,
				`.a[] list for an object: {"a":[[]]}`,
				`.a[] empty object: {"a":[{}]}`,
				`.a[] unknown field: {"a":[{"k":true,"unknownField":"text"}]}`,
				`.a[].k required, but missing: {"a":[{}]}`,
				`.a[].k null: {"a":[{"k":null}]}`,
				`.a[].k string for a boolean: {"a":[{"k":"true"}]}`,
				`.a[].k number for a boolean: {"a":[{"k":1}]}`,
				`.a duplicate element: {"a":[{"k":true},{"k":true}]}`,
				`.a as many as may be: {"a":[{"k":true},{"k":1001}]}`,
				`.a too many: {"a":[{"k":true},{"k":1001},{"k":1002}]}`,
			},
		},
		"map": {
			`{type: object, properties: {a: {type: object, minProperties: 1, additionalProperties: {type: boolean}}}}`, `{"a":{"x":true}}`,
			[]string{
				` unknown field: {"a":{"x":true},"unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a string for an object: {"a":"text"}`,
				`.a list for an object: {"a":[]}`,
				`.a empty object: {"a":{}}`,
				`.a{} null: {"a":{"x":null}}`,
				`.a{} string for a boolean: {"a":{"x":"true"}}`,
				`.a{} number for a boolean: {"a":{"x":1}}`,
				`.a too few: {"a":{}}`,
				`.a key of any kind: {"a":{"x":true,"ä/b c":true}}`,
			},
		},
		"any object": {
			`{type: object, x-kubernetes-preserve-unknown-fields: true}`, `{}`,
			[]string{` field of any name: {"unknownField":"text"}`},
		},
		"number": {
			`{type: object, properties: {a: {type: number, minimum: 0.5}}}`, `{"a":2}`,
			[]string{
				` unknown field: {"a":2,"unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a string for a number: {"a":"1.5"}`,
				`.a integer for a number: {"a":1}`,
				`.a number as 1e3: {"a":1e3}`,
				`.a number as 1.0: {"a":1.0}`,
				`.a number of many digits: {"a":0.1234567890123456789}`,
				`.a large integer for a number: {"a":12345678901234567890}`,
				`.a beyond 53 bits of a number: {"a":9007199254740993}`,
				`.a beyond 64 bits of a number: {"a":1e400}`,
				`.a at the minimum: {"a":0.5}`,
				`.a below the minimum: {"a":0.25}`,
			},
		},
		"integer or string": {
			`{type: object, properties: {a: {x-kubernetes-int-or-string: true}}}`, `{"a":2}`,
			[]string{
				` unknown field: {"a":2,"unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a fraction for an integer or string: {"a":1.5}`,
				`.a boolean for an integer or string: {"a":true}`,
				`.a object for an integer or string: {"a":{}}`,
				`.a list for an integer or string: {"a":[]}`,
				`.a integer or string beyond 32 bits: {"a":3000000000}`,
				`.a any string: {"a":"any string"}`,
				`.a empty string: {"a":""}`,
				`.a negative: {"a":-1}`,
			},
		},
		"time": {
			`{type: object, properties: {a: {type: string, format: date-time}}}`, `{"a":"2026-01-02T03:04:05Z"}`,
			[]string{
				` unknown field: {"a":"2026-01-02T03:04:05Z","unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a number for a string: {"a":1}`,
				`.a boolean for a string: {"a":true}`,
				`.a object for a string: {"a":{}}`,
				`.a empty string: {"a":""}`,
				`.a time with a fraction: {"a":"2026-01-02T03:04:05.123456Z"}`,
				`.a time with nanoseconds: {"a":"2026-01-02T03:04:05.123456789Z"}`,
				`.a time with an offset: {"a":"2026-01-02T03:04:05+02:00"}`,
				`.a time with a lower-case t: {"a":"2026-01-02t03:04:05Z"}`,
				`.a time with a lower-case z: {"a":"2026-01-02T03:04:05z"}`,
				`.a time with a space: {"a":"2026-01-02 03:04:05Z"}`,
				`.a time without a zone: {"a":"2026-01-02T03:04:05"}`,
				`.a time without seconds: {"a":"2026-01-02T03:04Z"}`,
				`.a time of a leap second: {"a":"2026-06-30T23:59:60Z"}`,
				`.a time of a day without hours: {"a":"2026-01-02"}`,
				`.a time in no month: {"a":"2026-13-02T03:04:05Z"}`,
			},
		},
		"embedded object": {
			`{type: object, properties: {a: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}`,
			`{"a":{"apiVersion":"v1","kind":"Pod"}}`,
			[]string{
				` unknown field: {"a":{"apiVersion":"v1","kind":"Pod"},"unknownField":"text"}`,
				`.a missing: {}`,
				`.a null: {"a":null}`,
				`.a string for an object: {"a":"text"}`,
				`.a list for an object: {"a":[]}`,
				`.a empty object: {"a":{}}`,
				`.a field of any name: {"a":{"apiVersion":"v1","kind":"Pod","unknownField":"text"}}`,
				`.a apiVersion of an embedded object is missing: {"a":{"kind":"Pod"}}`,
				`.a kind of an embedded object is missing: {"a":{"apiVersion":"v1"}}`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(test.object), &object))
			withNumbers(object)
			var changes []string
			for _, change := range objects.Changes(schema(t, test.schema), object) {
				changes = append(changes, fmt.Sprintf("%s %s: %s", change.Path, change.Name, encode(t, change.Apply(object))))
			}
			require.Equal(t, test.changes, changes)
			require.JSONEq(t, test.object, encode(t, object), "the object itself has changed")
		})
	}
}

// Objects are those that kube-apiserver accepts, and all fields appear in some of them.
func TestValid(t *testing.T) {
	for name, test := range map[string]struct {
		schema string
		fields []string
	}{
		"numbers": {
			`{type: object, required: [a, b, c, d, e], properties: {
				a: {type: integer, minimum: 1, maximum: 2}, b: {type: integer, minimum: -3, exclusiveMinimum: true, maximum: -1},
				c: {type: number, minimum: 0.5, maximum: 2}, d: {type: integer, maximum: -5}, e: {type: integer, multipleOf: 7}}}`,
			[]string{"a", "b", "c", "d", "e"},
		},
		"strings": {
			`{type: object, properties: {
				a: {type: string, minLength: 3, maxLength: 4}, b: {type: string, pattern: "^([a-z]{2}|[0-9]+)$"}, c: {type: string, enum: [x, ""]},
				d: {type: string, format: date-time}, e: {type: string, format: ipv6}, f: {type: string, pattern: "^v[0-9]+$", maxLength: 3}}}`,
			[]string{"a", "b", "c", "d", "e", "f"},
		},
		"lists and maps": {
			`{type: object, properties: {
				a: {type: array, minItems: 2, items: {type: boolean}}, b: {type: array, x-kubernetes-list-type: set, items: {type: string, enum: [x]}},
				c: {type: object, minProperties: 2, additionalProperties: {type: object, required: [x], properties: {x: {type: string}}}}}}`,
			[]string{"a", "b", "c"},
		},
		"alternatives": {
			`{type: object, properties: {a: {type: string}, b: {type: string}, c: {type: integer}},
				oneOf: [{required: [a]}, {required: [b]}], anyOf: [{properties: {c: {minimum: 5}}, required: [c]}, {properties: {c: {maximum: 3}}, required: [c]}]}`,
			[]string{"a", "b", "c"},
		},
		"the spec": {`{type: object, properties: {spec: {type: object, nullable: true}}}`, []string{"spec"}},
	} {
		t.Run(name, func(t *testing.T) {
			schema := schema(t, test.schema)
			var internal apiextensions.JSONSchemaProps
			require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &internal, nil))
			validator, _, err := validation.NewSchemaValidator(&internal)
			require.NoError(t, err)
			structural, err := structuralschema.NewStructural(&internal)
			require.NoError(t, err)
			fields := map[string]bool{}
			generator, again := objects.New(schema, 1), objects.New(schema, 1)
			for range 200 {
				object := generator.Valid()
				require.Equal(t, object, again.Valid())
				text := encode(t, object)
				var decoded map[string]any
				require.NoError(t, yaml.Unmarshal([]byte(text), &decoded))
				require.Empty(t, validation.ValidateCustomResource(nil, decoded, validator), text)
				require.Empty(t, listtype.ValidateListSetsAndMaps(nil, structural, decoded), text)
				for field := range object {
					fields[field] = true
				}
			}
			require.Len(t, fields, len(test.fields))
			for _, field := range test.fields {
				require.Contains(t, fields, field)
			}
		})
	}
}

func schema(t *testing.T, text string) *objects.Schema {
	t.Helper()
	made := &objects.Schema{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), made))
	return made
}

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// withNumbers writes numbers as the generator does.
func withNumbers(object map[string]any) {
	for name, value := range object {
		if number, ok := value.(float64); ok {
			object[name] = json.Number(fmt.Sprint(number))
		}
	}
}
