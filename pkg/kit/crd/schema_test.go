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

package crd

import (
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

const (
	thing     = "com.example.v1.Thing"
	part      = "com.example.v1.Part"
	quantity  = "io.k8s.apimachinery.pkg.api.resource.Quantity"
	extension = "io.k8s.apimachinery.pkg.runtime.RawExtension"
	duration  = "io.k8s.apimachinery.pkg.apis.meta.v1.Duration"
	fields    = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
	condition = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition"
)

// source is a Go type with tags, on itself and on a field.
func source(name, json, fieldTags, typeTags string) string {
	comments := func(tags string) (text string) {
		for tag := range strings.FieldsSeq(tags) {
			text += "// " + tag + "\n"
		}
		return text
	}
	return comments(typeTags) + "type " + name + " struct {\n" + comments(fieldTags) + "Field any `json:\"" + json + ",omitempty\"`\n}\n"
}

// read reads a schema or a part of one in YAML.
func read[T any](t *testing.T, text string) (value T) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &value))
	return value
}

// converted converts the definitions of a kind, in YAML, with the tags of Go types.
func converted(t *testing.T, types string, definitions map[string]string) (*props, []string, error) {
	t.Helper()
	tags, err := readTags(fstest.MapFS{"v1/types.go": {Data: []byte("package v1\n\n" + types)}}, "v1")
	require.NoError(t, err)
	e := &exporter{models: models{}}
	for name, text := range definitions {
		e.models[name] = common.OpenAPIDefinition{Schema: read[spec.Schema](t, text)}
	}
	root, err := (&converter{exporter: e, tags: tags, prefix: "com.example.v1.", where: "v1 Thing"}).root(thing)
	return root, e.findings, err
}

func ref(name string) string { return "{$ref: '#/definitions/" + name + "'}" }

// The valid values of a field follow from its type in the OpenAPI definition and from the tags in Go.
func TestFields(t *testing.T) {
	t.Parallel()
	const required = "+required +k8s:required"
	const present = "message: must be set, reason: FieldValueRequired, fieldPath: .field"
	for name, test := range map[string]struct {
		// field is the property "field" of the kind, and tags are the field's.
		field, tags string
		want        string
		required    bool
		// rules are the kind's.
		rules    string
		findings []string
	}{
		"a string":                           {field: "{type: string, description: text}", tags: "+optional", want: "{type: string, description: text}"},
		"a boolean":                          {field: "{type: boolean}", want: "{type: boolean}"},
		"an integer":                         {field: "{type: integer, format: int32}", want: "{type: integer, format: int32}"},
		"a number":                           {field: "{type: number, format: double}", want: "{type: number, format: double}"},
		"a time":                             {field: "{type: string, format: date-time}", want: "{type: string, format: date-time}"},
		"bytes":                              {field: "{type: string, format: byte}", want: "{type: string, format: byte}"},
		"anything":                           {field: "{}", want: "{x-kubernetes-preserve-unknown-fields: true}"},
		"a number or a string":               {field: "{type: string, format: int-or-string}", want: "{x-kubernetes-int-or-string: true}"},
		"one of two types":                   {field: "{oneOf: [{type: integer}, {type: string}]}", want: "{x-kubernetes-int-or-string: true}"},
		"a quantity":                         {field: ref(quantity), want: "{x-kubernetes-int-or-string: true, pattern: '" + quantityPattern + "'}"},
		"an object of any kind":              {field: ref(extension), want: "{type: object, x-kubernetes-preserve-unknown-fields: true}"},
		"a reference with a description":     {field: "{description: text, allOf: [" + ref(quantity) + "]}", want: "{description: text, x-kubernetes-int-or-string: true, pattern: '" + quantityPattern + "'}"},
		"a default":                          {field: "{type: integer, format: int32, default: 3}", tags: "+default=3 +k8s:optional", want: "{type: integer, format: int32, default: 3}"},
		"a default of a required field":      {field: "{type: integer, default: 3}", tags: "+default=3 " + required, want: "{type: integer, default: 3}"},
		"a value that Go has anyway":         {field: "{type: string, default: ''}", tags: required, want: "{type: string, minLength: 1}", required: true},
		"a required string":                  {field: "{type: string}", tags: required, want: "{type: string, minLength: 1}", required: true},
		"a required string with its own":     {field: "{type: string}", tags: required + " +k8s:minLength=3", want: "{type: string, minLength: 3}", required: true},
		"a required integer":                 {field: "{type: integer}", tags: required, want: "{type: integer}", required: true},
		"a required time":                    {field: "{type: string, format: date-time}", tags: required, want: "{type: string, format: date-time}", required: true},
		"a required list":                    {field: "{type: array, items: {type: string}}", tags: required, want: "{type: array, items: {type: string}, minItems: 1}", required: true},
		"a required map":                     {field: "{type: object, additionalProperties: {type: string}}", tags: required, want: "{type: object, additionalProperties: {type: string}, minProperties: 1}", required: true},
		"an enumeration":                     {field: "{type: string, enum: [a, b]}", tags: "+k8s:enum", want: "{type: string, enum: [a, b]}"},
		"a required enumeration":             {field: "{type: string, enum: [a]}", tags: required, want: "{type: string, enum: [a]}", required: true},
		"limits of a string":                 {field: "{type: string}", tags: "+k8s:minLength=2 +k8s:maxLength=5", want: "{type: string, minLength: 2, maxLength: 5}"},
		"limits of a list":                   {field: "{type: array, items: {type: string}}", tags: "+k8s:minItems=2 +k8s:maxItems=5", want: "{type: array, items: {type: string}, minItems: 2, maxItems: 5}"},
		"limits of a map":                    {field: "{type: object, additionalProperties: {type: string}}", tags: "+k8s:minProperties=2 +k8s:maxProperties=5", want: "{type: object, additionalProperties: {type: string}, minProperties: 2, maxProperties: 5}"},
		"bounds of an integer":               {field: "{type: integer}", tags: "+k8s:minimum=-1 +k8s:maximum=5", want: "{type: integer, minimum: -1, maximum: 5}"},
		"bounds of a number":                 {field: "{type: number}", tags: "+k8s:minimum=1", want: "{type: number}", findings: []string{"v1 Thing.field: the tag +k8s:minimum=1 is not exported"}},
		"a bound that no number is equal to": {field: "{type: integer, format: int64}", tags: "+k8s:maximum=9007199254740993 +k8s:minimum=-9007199254740991", want: "{type: integer, format: int64, minimum: -9007199254740991}", findings: []string{"v1 Thing.field: the tag +k8s:maximum=9007199254740993 is not exported"}},
		"a bound that is no integer":         {field: "{type: integer}", tags: "+k8s:minimum=1.5", want: "{type: integer}", findings: []string{"v1 Thing.field: the tag +k8s:minimum=1.5 is not exported"}},
		"an unknown tag":                     {field: "{type: string}", tags: "+k8s:unionMember", want: "{type: string}", findings: []string{"v1 Thing.field: the tag +k8s:unionMember is not exported"}},
		"a format":                           {field: "{type: string}", tags: "+k8s:format=k8s-short-name", want: "{type: string, maxLength: 63, x-kubernetes-validations: [{rule: '!format.dns1123Label().validate(self).hasValue()', messageExpression: 'format.dns1123Label().validate(self).value()[0]'}]}"},
		"a format with a limit":              {field: "{type: string}", tags: "+k8s:maxLength=5 +k8s:format=k8s-uuid", want: "{type: string, maxLength: 5, x-kubernetes-validations: [{rule: '!format.uuid().validate(self).hasValue()', messageExpression: 'format.uuid().validate(self).value()[0]'}]}"},
		"an unknown format":                  {field: "{type: string}", tags: "+k8s:format=k8s-ip", want: "{type: string}", findings: []string{"v1 Thing.field: the tag +k8s:format=k8s-ip is not exported"}},
		"an immutable field":                 {field: "{type: string}", tags: "+k8s:immutable", want: "{type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: field is immutable}]}"},
		"a set":                              {field: "{type: array, items: {type: string}, x-kubernetes-list-type: set}", tags: "+listType=set +k8s:listType=set", want: "{type: array, items: {type: string}, x-kubernetes-list-type: set}"},
		"a list with keys":                   {field: "{type: array, items: " + ref(part) + ", x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [field]}", want: "{type: array, items: {type: object, properties: {field: {type: string}}}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [field]}"},
		"an atomic map":                      {field: "{type: object, additionalProperties: {type: string}, x-kubernetes-map-type: atomic}", want: "{type: object, additionalProperties: {type: string}, x-kubernetes-map-type: atomic}"},
		"tags of elements":                   {field: "{type: array, items: {type: string}}", tags: "+k8s:eachVal=+k8s:maxLength=5", want: "{type: array, items: {type: string, maxLength: 5}}"},
		"tags of values":                     {field: "{type: object, additionalProperties: {type: string}}", tags: "+k8s:eachVal=+k8s:maxLength=5 +k8s:eachVal=+k8s:neq=x", want: "{type: object, additionalProperties: {type: string, maxLength: 5}}", findings: []string{"v1 Thing.field{}: the tag +k8s:neq=x is not exported"}},
		"a struct":                           {field: "{default: {}, allOf: [" + ref(part) + "]}", want: "{type: object, properties: {field: {type: string}}, default: {}}"},
		"a string that admission fills in":   {field: "{type: string}", tags: "+optional +k8s:required", want: "{type: string}", rules: "[{rule: has(self.field) && self.field.size() > 0, " + present + "}]"},
		"an integer that admission fills in": {field: "{type: integer}", tags: "+optional +k8s:required", want: "{type: integer}", rules: "[{rule: has(self.field), " + present + "}]"},
		"a list that admission fills in":     {field: "{type: array, items: {type: string}}", tags: "+optional +k8s:required", want: "{type: array, items: {type: string}}", rules: "[{rule: has(self.field) && self.field.size() > 0, " + present + "}]"},
		"a condition":                        {field: "{type: array, items: " + ref(condition) + "}", want: "{type: array, items: {type: object, required: [type], properties: {type: {type: string, maxLength: 316, pattern: '^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$'}, status: {type: string, enum: ['True', 'False', Unknown]}, observedGeneration: {type: integer, format: int64, minimum: 0}, reason: {type: string, minLength: 1, maxLength: 1024, pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'}, message: {type: string, maxLength: 32768}}}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, findings, err := converted(t, source("Thing", "field", test.tags, ""), map[string]string{
				thing:     "{type: object, properties: {apiVersion: {type: string}, metadata: {type: object}, field: " + test.field + "}}",
				part:      "{type: object, properties: {field: {type: string}}}",
				condition: "{type: object, required: [type], properties: {type: {type: string, default: ''}, status: {type: string, default: ''}, observedGeneration: {type: integer, format: int64}, reason: {type: string, default: ''}, message: {type: string, default: ''}}}",
			})
			require.NoError(t, err)
			want := &props{Type: "object", Properties: map[string]props{
				"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"}, "field": read[props](t, test.want),
			}}
			if test.required {
				want.Required = []string{"field"}
			}
			if test.rules != "" {
				require.NoError(t, yaml.UnmarshalStrict([]byte(test.rules), &want.XValidations))
			}
			require.Equal(t, want, root)
			require.Equal(t, test.findings, findings)
		})
	}
}

// An omitted struct is empty, so that the struct around it requires its fields.
func TestPresenceWithin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// outer is the field of the kind with a struct, and inner a field of the struct.
		outer, inner string
		// around is the rule of the kind, and within the rule of a struct that is not left out.
		around, within string
		findings       []string
	}{
		"plain names":       {"outer", "inner", "has(self.outer) && has(self.outer.inner) && self.outer.inner.size() > 0", "has(self.inner) && self.inner.size() > 0", nil},
		"names with a dash": {"my-part", "its-name", "has(self.my__dash__part) && has(self.my__dash__part.its__dash__name) && self.my__dash__part.its__dash__name.size() > 0", "has(self.its__dash__name) && self.its__dash__name.size() > 0", nil},
		"a name in no rule": {"outer", "a$b", "", "", []string{"v1 Thing.list[].a$b: no rule can say that it must be set", "v1 Thing.outer.a$b: no rule can say that it must be set"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, findings, err := converted(t, source("Thing", test.outer, "", "")+source("Part", test.inner, "+optional +k8s:required", "+k8s:immutable"), map[string]string{
				thing: "{type: object, properties: {" + test.outer + ": {default: {}, allOf: [" + ref(part) + "]}, list: {type: array, items: " + ref(part) + "}}}",
				part:  "{type: object, properties: {" + test.inner + ": {type: string}}}",
			})
			require.NoError(t, err)
			require.Equal(t, test.findings, findings)
			rules := func(rule, path string) apiextensionsv1.ValidationRules {
				if rule == "" {
					return nil
				}
				reason := apiextensionsv1.FieldValueRequired
				return apiextensionsv1.ValidationRules{{Rule: rule, Message: "must be set", Reason: &reason, FieldPath: path}}
			}
			immutable := apiextensionsv1.ValidationRule{Rule: "self == oldSelf", Message: "field is immutable"}
			require.Equal(t, rules(test.around, "."+test.outer+"."+test.inner), root.XValidations)
			require.Equal(t, apiextensionsv1.ValidationRules{immutable}, root.Properties[test.outer].XValidations)
			require.Equal(t, append(rules(test.within, "."+test.inner), immutable), root.Properties["list"].Items.Schema.XValidations)
			delete(root.Properties, "list") // The rule of its elements would have to know which is which.
			require.NoError(t, validateDefinition(&apiextensionsv1.CustomResourceDefinition{
				ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
				Spec: apiextensionsv1.CustomResourceDefinitionSpec{
					Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
					Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: root}}},
				},
			}), "kube-apiserver refuses the rule")
		})
	}
}

// A struct that requires a field is required itself.
func TestRequiredWithin(t *testing.T) {
	t.Parallel()
	root, findings, err := converted(t, source("Part", "field", "+required +k8s:required", ""), map[string]string{
		thing: "{type: object, properties: {part: {default: {}, allOf: [" + ref(part) + "]}}}",
		part:  "{type: object, required: [field], properties: {field: {type: string, default: ''}}}",
	})
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, []string{"part"}, root.Required)
	require.Equal(t, read[props](t, "{type: object, required: [field], properties: {field: {type: string, minLength: 1}}}"), root.Properties["part"])
}

// A missing definition ends the export. A recursive type is cut off where it begins again.
func TestInexpressible(t *testing.T) {
	t.Parallel()
	_, _, err := converted(t, source("Thing", "field", "", ""), map[string]string{thing: "{type: object, properties: {field: " + ref("com.example.v1.Other") + "}}"})
	require.EqualError(t, err, "there is no OpenAPI definition of com.example.v1.Other: generate the code")
	for name, test := range map[string]struct{ field, want, path string }{
		"a type within itself": {ref(part), "{type: object, properties: {field: {type: object, x-kubernetes-preserve-unknown-fields: true}}}", ".field.field"},
		"a list of the type":   {"{type: array, items: " + ref(part) + "}", "{type: array, items: {type: object, properties: {field: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}", ".field[].field"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, findings, err := converted(t, source("Thing", "field", "", "")+source("Part", "field", "", ""), map[string]string{
				thing: "{type: object, properties: {field: " + test.field + "}}",
				part:  "{type: object, properties: {field: " + ref(part) + "}}",
			})
			require.NoError(t, err)
			require.Equal(t, []string{"v1 Thing" + test.path + ": " + part + " contains itself, so that any object is accepted from there on"}, findings)
			require.Equal(t, read[props](t, test.want), root.Properties["field"])
		})
	}
}

// The rules of a type apply to each field of that type, however the field contains it.
func TestTypesOfFields(t *testing.T) {
	t.Parallel()
	const percent = "// +k8s:minimum=0\n// +k8s:maximum=100\ntype Percent int32\n\n"
	for name, test := range map[string]struct {
		types, definition, want string
		findings                []string
	}{
		"a named type": {percent + "type Thing struct {\nField Percent `json:\"field\"`\n}\n", "{type: integer, format: int32}", "{type: integer, format: int32, minimum: 0, maximum: 100}", nil},
		"a pointer, and a tag of the field": {percent + "type Thing struct {\n// +k8s:maximum=50\nField *Percent `json:\"field\"`\n}\n",
			"{type: integer}", "{type: integer, minimum: 0, maximum: 50}", nil},
		"a list":                   {percent + "type Thing struct {\nField []Percent `json:\"field\"`\n}\n", "{type: array, items: {type: integer}}", "{type: array, items: {type: integer, minimum: 0, maximum: 100}}", nil},
		"a map":                    {percent + "type Thing struct {\nField map[string]*Percent `json:\"field\"`\n}\n", "{type: object, additionalProperties: {type: integer}}", "{type: object, additionalProperties: {type: integer, minimum: 0, maximum: 100}}", nil},
		"an embedded struct":       {"type Common struct {\n// +k8s:minimum=1\nField int32 `json:\"field\"`\n}\ntype Thing struct {\nCommon `json:\",inline\"`\n}\n", "{type: integer}", "{type: integer, minimum: 1}", nil},
		"embedded by a pointer":    {"type Common struct {\n// +k8s:minimum=1\nField int32 `json:\"field\"`\n}\ntype Thing struct {\n*Common\n}\n", "{type: integer}", "{type: integer, minimum: 1}", nil},
		"a field of both":          {"type Common struct {\n// +k8s:minimum=1\nField int32 `json:\"field\"`\n}\ntype Thing struct {\nCommon\n// +k8s:minimum=2\nField int32 `json:\"field\"`\n}\n", "{type: integer}", "{type: integer, minimum: 2}", nil},
		"another package's struct": {"type Thing struct {\nother.Common\n}\n", "{type: integer}", "{type: integer}", []string{"v1 Thing: what tags of the embedded type Common demand is not exported"}},
		"a tag of the embedded struct": {"// +k8s:immutable\ntype Common struct {\nField int32 `json:\"field\"`\n}\ntype Thing struct {\nCommon\n}\n",
			"{type: integer}", "{type: integer}", []string{"v1 Thing: what tags of the embedded type Common demand is not exported"}},
		"metadata": {"type Thing struct {\nmetav1.TypeMeta\nmetav1.ObjectMeta `json:\"metadata\"`\nField int32 `json:\"field\"`\n}\n", "{type: integer}", "{type: integer}", nil},
		"itself":   {"type Loop []Loop\ntype Thing struct {\nField Loop `json:\"field\"`\n}\n", "{type: array, items: {type: object}}", "{type: array, items: {type: object}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, findings, err := converted(t, test.types, map[string]string{thing: "{type: object, properties: {field: " + test.definition + "}}"})
			require.NoError(t, err)
			require.Equal(t, read[props](t, test.want), root.Properties["field"])
			require.Equal(t, test.findings, findings)
		})
	}
}

// Types of libraries accept what the server reads into them.
func TestLibraries(t *testing.T) {
	t.Parallel()
	const opaque, object = "com.example.other.Opaque", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	const own, alias, empty = "com.example.v1.Own", "com.example.v1.Alias", "com.example.v1.Empty"
	for name, test := range map[string]struct{ field, want string }{
		"a duration":                      {ref(duration), "{type: string, pattern: '" + durationPattern + "'}"},
		"a duration that is always there": {"{default: 0, allOf: [" + ref(duration) + "]}", "{type: string, default: 0s, pattern: '" + durationPattern + "'}"},
		"metadata of a template":          {"{default: {}, allOf: [" + ref(object) + "]}", "{type: object, default: {}, properties: {labels: {type: object, additionalProperties: {type: string}}, managed: {type: object, x-kubernetes-preserve-unknown-fields: true}}}"},
		"an object of a library":          {ref(opaque), "{type: object, x-kubernetes-preserve-unknown-fields: true}"},
		"an object with JSON of its own":  {ref(alias), "{type: object, x-kubernetes-preserve-unknown-fields: true}"},
		"a struct without fields":         {ref(empty), "{type: object}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, findings, err := converted(t, "type Thing struct{}\ntype Empty struct{}\ntype Alias json.RawMessage\n", map[string]string{
				thing:    "{type: object, properties: {metadata: " + ref(object) + ", field: " + test.field + "}}",
				duration: "{type: string}", opaque: "{type: object}", own: "{type: object}", alias: "{type: object}", empty: "{type: object}",
				object: "{type: object, properties: {labels: {type: object, additionalProperties: {type: string}}, managed: " + ref(fields) + "}}",
				fields: "{type: object}",
			})
			require.NoError(t, err)
			require.Empty(t, findings)
			require.Equal(t, read[props](t, test.want), root.Properties["field"])
			require.Equal(t, props{Type: "object"}, root.Properties["metadata"])
		})
	}
	for text, want := range map[string]bool{"0": true, "-0": true, "3h": true, "1h30m": true, "-1.5s": true, ".5s": true, "1.s": true, "1µs": true, "3d": false, "": false, "3": false, "h": false, ".s": false, "1h 2m": false, "1h-2m": false} {
		_, err := time.ParseDuration(text)
		require.Equal(t, want, err == nil, text)
		require.Equal(t, want, regexp.MustCompile(durationPattern).MatchString(text), text)
	}
}

// A kind may have nothing but metadata.
func TestNoFields(t *testing.T) {
	t.Parallel()
	root, findings, err := converted(t, "type Thing struct{}\n", map[string]string{thing: "{type: object}"})
	require.NoError(t, err)
	require.Empty(t, findings)
	require.Equal(t, read[*props](t, "{type: object, properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object}}}"), root)
}
