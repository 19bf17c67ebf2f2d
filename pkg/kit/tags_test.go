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

package kit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

func schemaOf(t *testing.T, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	schema := &apiextensionsv1.JSONSchemaProps{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), schema))
	return schema
}

// accepts is what kube-apiserver says of a value.
func accepts(t *testing.T, schema *apiextensionsv1.JSONSchemaProps, value string) bool {
	t.Helper()
	var internal apiextensions.JSONSchemaProps
	require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &internal, nil))
	validator, _, err := validation.NewSchemaValidator(&internal)
	require.NoError(t, err)
	var parsed any
	require.NoError(t, utiljson.Unmarshal([]byte(value), &parsed))
	return len(validation.ValidateCustomResource(nil, parsed, validator)) == 0
}

// Tags refuse the integers that the bounds of a schema refuse. Where they don't, kube-apiserver refuses every value.
func TestBounds(t *testing.T) {
	t.Parallel()
	for bounds, test := range map[string]struct {
		format string
		tags   []string
	}{
		"minimum: 1, maximum: 10":                                     {tags: []string{"minimum=1", "maximum=10"}},
		"minimum: 1, exclusiveMinimum: true":                          {tags: []string{"minimum=2"}},
		"maximum: 1, exclusiveMaximum: true":                          {tags: []string{"maximum=0"}},
		"maximum: 9007199254740991":                                   {tags: []string{"maximum=9007199254740991"}},
		"minimum: 0.5":                                                {},
		"maximum: 1.5":                                                {},
		"maximum: 9223372036854775807":                                {},
		"maximum: 18446744073709551615":                               {},
		"minimum: -9223372036854775808, exclusiveMinimum: true":       {},
		"maximum: -9223372036854775808, exclusiveMaximum: true":       {},
		"minimum: -2147483648, maximum: 2147483647":                   {format: "int32", tags: []string{"minimum=-2147483648", "maximum=2147483647"}},
		"maximum: 4294967295":                                         {format: "int32"},
		"minimum: 2147483647, exclusiveMinimum: true":                 {format: "int32"},
		"maximum: -2147483648, exclusiveMaximum: true":                {format: "int32"},
		"minimum: 2147483646, exclusiveMinimum: true, maximum: 1e+09": {format: "int32", tags: []string{"minimum=2147483647", "maximum=1000000000"}},
	} {
		t.Run(bounds+test.format, func(t *testing.T) {
			t.Parallel()
			kind := &goType{text: "int64"}
			format := ""
			if test.format != "" {
				kind.text, format = test.format, ", format: "+test.format
			}
			schema := schemaOf(t, "{type: integer"+format+", "+bounds+"}")
			var want []string
			for _, tag := range test.tags {
				want = append(want, "+k8s:"+tag)
			}
			require.Equal(t, want, rules(kind, schema))
			beyond := boundsBeyond(kind, schema)
			require.Len(t, beyond, strings.Count(bounds, "imum: ")-strings.Count(bounds, "imum: true")-len(test.tags))
			for _, value := range []int64{-2147483648, -2147483647, -1, 0, 1, 2, 9, 10, 11, 1000000000, 1000000001, 2147483646, 2147483647, 9007199254740991, 9007199254740992} {
				if test.format == "int32" && value > 2147483647 {
					continue
				}
				isWithin := len(beyond) == 0
				for _, tag := range test.tags {
					name, text, _ := strings.Cut(tag, "=")
					bound, err := strconv.ParseInt(text, 10, 64)
					require.NoError(t, err)
					isWithin = isWithin && (name == "minimum" && value >= bound || name == "maximum" && value <= bound)
				}
				require.Equal(t, isWithin, accepts(t, schema, strconv.FormatInt(value, 10)), "%d", value)
			}
		})
	}
	require.Equal(t, []string{"the exclusive minimum 0.5", "the maximum 2"}, boundsBeyond(&goType{text: "float64"}, schemaOf(t, "{type: number, minimum: 0.5, exclusiveMinimum: true, maximum: 2}")))
	require.Equal(t, []string{"the maximum 1.5, so that kube-apiserver refuses every value"}, boundsBeyond(&goType{text: "int64"}, schemaOf(t, "{type: integer, maximum: 1.5}")))
}

// A scalar is a quantity only if everything else is refused.
func TestQuantities(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		schema string
		want   bool
	}{
		"asked":                           {`{type: string, x-kubernetes-validations: [{rule: "isQuantity(self)"}]}`, true},
		"compared":                        {`{type: string, x-kubernetes-validations: [{rule: "!quantity(self).isLessThan(quantity('0'))"}]}`, true},
		"an integer or a string":          {`{x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: "isQuantity(string(self))"}]}`, true},
		"one of several terms":            {`{type: string, x-kubernetes-validations: [{rule: "self.size() > 1 && (isQuantity(self) && self != '7')"}]}`, true},
		"the pattern of controller-gen":   {`{x-kubernetes-int-or-string: true, pattern: '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'}`, true},
		"or something else":               {`{type: string, x-kubernetes-validations: [{rule: "self == '' || isQuantity(self)"}]}`, false},
		"read, or something else":         {`{type: string, x-kubernetes-validations: [{rule: "self == '' || quantity(self).isGreaterThan(quantity('0'))"}]}`, false},
		"read on a condition":             {`{type: string, x-kubernetes-validations: [{rule: "self == '' ? true : quantity(self).isGreaterThan(quantity('0'))"}]}`, false},
		"on a condition":                  {`{type: string, x-kubernetes-validations: [{rule: "self == '' ? true : isQuantity(self)"}]}`, false},
		"none":                            {`{type: string, x-kubernetes-validations: [{rule: "!isQuantity(self)"}]}`, false},
		"within a negation":               {`{type: string, x-kubernetes-validations: [{rule: "!(self == '' && isQuantity(self))"}]}`, false},
		"only a change":                   {`{type: string, x-kubernetes-validations: [{rule: "isQuantity(self) && self != oldSelf"}]}`, false},
		"a text that says so":             {`{type: string, x-kubernetes-validations: [{rule: "self != 'isQuantity(self)'"}]}`, false},
		"another value":                   {`{type: string, x-kubernetes-validations: [{rule: "isQuantity('1')"}]}`, false},
		"no expression":                   {`{type: string, x-kubernetes-validations: [{rule: "isQuantity(self) &&"}]}`, false},
		"a property of an object":         {`{type: object, x-kubernetes-validations: [{rule: "isQuantity(self.a)"}]}`, false},
		"an object":                       {`{type: object, x-kubernetes-validations: [{rule: "isQuantity(self)"}]}`, false},
		"the elements of a list":          {`{type: array, x-kubernetes-validations: [{rule: "self.all(e, isQuantity(e))"}]}`, false},
		"the values of a map":             {`{type: object, additionalProperties: {type: string}, x-kubernetes-validations: [{rule: "self.all(k, isQuantity(self[k]))"}]}`, false},
		"a number, which has no quantity": {`{type: integer, x-kubernetes-validations: [{rule: "isQuantity(string(self))"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, isQuantity(schemaOf(t, test.schema)))
		})
	}
}

// What kube-apiserver ignores, a type need not have.
func TestFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]bool{"date-time": true, "date": true, "duration": true, "email": true, "uuid": true, "ipv4": true, "k8s-short-name": true, "uint32": false, "port": false, "": false} {
		schema := schemaOf(t, fmt.Sprintf("{type: string, format: %q}", format))
		require.Equal(t, want, isFormat(schema), format)
		require.Equal(t, want, !accepts(t, schema, `"."`), format)
	}
}

func TestTagValue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"name": "name", "my-key": "my-key", "$ref": `"$ref"`, "kubernetes.io/name": `"kubernetes.io/name"`, "2fa": `"2fa"`} {
		require.Equal(t, want, tagValue(text))
	}
}
