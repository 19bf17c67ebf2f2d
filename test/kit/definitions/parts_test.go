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

package definitions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"
)

func TestCompareAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		defined, typed answer
		verdicts       []string
	}{
		"both refuse it":                 {refused(422), refused(400), nil},
		"one refuses it":                 {accepted(t, `{}`), refused(422), []string{"defined 201, typed 422"}},
		"the other refuses it":           {refused(422), accepted(t, `{}`), []string{"defined 422, typed 201"}},
		"both accept the same":           {accepted(t, `{"a":[1.0,"x",null,{"b":true}]}`), accepted(t, `{"a":[1,"x",null,{"b":true}]}`), nil},
		"a number becomes another one":   {accepted(t, `{"a":1}`), accepted(t, `{"a":2}`), both(`.a: both have a number, but not the same`)},
		"a large number loses a digit":   {accepted(t, `{"a":9007199254740993}`), accepted(t, `{"a":9007199254740992}`), both(`.a: both have a number, but not the same`)},
		"a number becomes a string":      {accepted(t, `{"a":1}`), accepted(t, `{"a":"1"}`), both(`.a: defined has a number, typed a string`)},
		"null becomes an empty string":   {accepted(t, `{"a":null}`), accepted(t, `{"a":""}`), both(`.a: defined has null, typed an empty string`)},
		"a field of one":                 {accepted(t, `{"a":{}}`), accepted(t, `{}`), both(`.a: defined has an empty object, typed lacks it`)},
		"a field of the other":           {accepted(t, `{}`), accepted(t, `{"a":[]}`), both(`.a: defined lacks it, typed has an empty list`)},
		"lists of different lengths":     {accepted(t, `{"a":[1]}`), accepted(t, `{"a":[1,2]}`), both(`.a: the lists have different lengths`)},
		"the same in all of a list":      {accepted(t, `{"a":[{"b":1},{"b":1}]}`), accepted(t, `{"a":[{},{}]}`), both(`.a[].b: defined has a number, typed lacks it`)},
		"the same at all keys of a map":  {accepted(t, `{"a":{"key-0":true,"key-12":true}}`), accepted(t, `{"a":{"key-0":false,"key-12":false}}`), both(`.a{}: defined has true, typed false`)},
		"several fields":                 {accepted(t, `{"a":1}`), accepted(t, `{"b":{"c":1}}`), both(`.a: defined has a number, typed lacks it`, `.b: defined lacks it, typed has an object`)},
		"a list in the place of objects": {accepted(t, `{"a":{"b":1}}`), accepted(t, `{"a":[1]}`), both(`.a: defined has an object, typed a list`)},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.verdicts, compareAnswers(test.defined, test.typed)) })
	}
}

func refused(code int) answer { return answer{code: code} }

func accepted(t *testing.T, text string) answer {
	t.Helper()
	answer := answer{code: 201}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&answer.object))
	return answer
}

func both(verdicts ...string) (all []string) {
	for _, verdict := range verdicts {
		all = append(all, "both accept it, but "+verdict)
	}
	return all
}

func TestCompareSchemas(t *testing.T) {
	for name, test := range map[string]struct {
		imported, exported string
		differences        []string
	}{
		"descriptions, messages and orders": {
			`{type: object, required: [a, b], properties: {a: {type: string, description: A., enum: [x, y], x-kubernetes-validations: [{rule: "self  != 'z'", message: Not z.}]}}}`,
			`{type: object, required: [b, a], properties: {a: {type: string, enum: [y, x], x-kubernetes-validations: [{rule: "self != 'z'"}]}}}`,
			nil,
		},
		"what all objects have": {
			`{type: object, required: [metadata], properties: {apiVersion: {type: string}, kind: {type: string}, metadata: {type: object}}}`, `{type: object}`, nil,
		},
		"within lists, maps and structs": {
			`{type: object, properties: {a: {type: array, items: {type: object, additionalProperties: {type: object, properties: {b: {type: string, maxLength: 3}}}}}}}`,
			`{type: object, properties: {a: {type: array, items: {type: object, additionalProperties: {type: object, properties: {b: {type: string, pattern: x}}}}}}}`,
			[]string{
				`d .a[]{}.b: schema: maxLength: imported 3, exported nothing`,
				`d .a[]{}.b: schema: pattern: imported nothing, exported "x"`,
			},
		},
		"bounds that are integers": {
			`{type: object, properties: {a: {type: integer, minimum: 0, exclusiveMinimum: true, maximum: 10, exclusiveMaximum: true}, b: {type: number, minimum: 0, exclusiveMinimum: true}}}`,
			`{type: object, properties: {a: {type: integer, minimum: 1, maximum: 9}, b: {type: number, minimum: 1}}}`,
			[]string{
				`d .b: schema: exclusiveMinimum: imported true, exported nothing`,
				`d .b: schema: minimum: imported 0, exported 1`,
			},
		},
		"a field of one": {
			`{type: object, properties: {a: {type: string}}}`, `{type: object}`, []string{`d .a: schema: type: imported "string", exported nothing`},
		},
		"another default, and a rule less": {
			`{type: object, properties: {a: {type: string, default: x, x-kubernetes-validations: [{rule: self == oldSelf}]}}}`,
			`{type: object, properties: {a: {type: string, default: ""}}}`,
			[]string{
				`d .a: schema: default: imported "x", exported ""`,
				`d .a: schema: x-kubernetes-validations: imported [{"rule":"self == oldSelf"}], exported nothing`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var imported, exported apiextensionsv1.JSONSchemaProps
			require.NoError(t, yaml.UnmarshalStrict([]byte(test.imported), &imported))
			require.NoError(t, yaml.UnmarshalStrict([]byte(test.exported), &exported))
			all := differences{}
			compareSchemas(all, "d", &imported, &exported)
			var lines []string
			for _, d := range all.sorted() {
				lines = append(lines, d.String())
			}
			require.Equal(t, test.differences, lines)
		})
	}
}

func TestExplain(t *testing.T) {
	all := differences{}
	for i, path := range []string{".spec.a", ".spec.b", ".spec.bc"} {
		for range i + 1 {
			all.add(difference{"pizzas.example.com/v1", path, "null", "defined 201, typed 422"}, fmt.Sprint("example ", path))
		}
	}
	explanations := []*explanation{
		{Path: `\.spec\.b`, Reason: "It is a b."},
		{Definition: `pizzas\..*`, Path: `.*\.b`, Change: "null|missing", Verdict: "defined 201, typed .*", Reason: "It is a b, too."},
		{Definition: `pizzas`, Reason: "The whole name is compared."},
		{Change: "missing", Reason: "Nothing is missing."},
	}
	explained, unexplained := explain(all, explanations)
	require.Equal(t, 2, explained)
	var lines []string
	for _, d := range unexplained {
		lines = append(lines, fmt.Sprint(all[d].count, " ", d, ": ", all[d].example))
	}
	require.Equal(t, []string{
		"1 pizzas.example.com/v1 .spec.a: null: defined 201, typed 422: example .spec.a",
		"3 pizzas.example.com/v1 .spec.bc: null: defined 201, typed 422: example .spec.bc",
	}, lines)
	var counts []int
	for _, explanation := range explanations {
		counts = append(counts, explanation.count)
	}
	require.Equal(t, []int{2, 2, 0, 0}, counts)
}

// The small definitions are such that kube-apiserver accepts them.
func TestSmallDefinitions(t *testing.T) {
	for _, definition := range small(t) {
		t.Run(definition.Name, func(t *testing.T) {
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(definition)
			var internal apiextensions.CustomResourceDefinition
			require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, &internal, nil))
			internal.Status.StoredVersions = []string{"v1"}
			require.Empty(t, validation.ValidateCustomResourceDefinition(t.Context(), &internal))
		})
	}
}

// Definitions that one module can't serve have their own, and so have groups whose first labels are
// those of others, and further versions.
func TestModules(t *testing.T) {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, name := range []string{"a.one.example.com", "b.two.example.com", "c.one.example.org", "broken.one.example.com", "d.one.example.com", "e.one.example.org", "d.one.example.com"} {
		_, group, _ := strings.Cut(name, ".")
		definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group}}
		definition.Name = name
		definitions = append(definitions, definition)
	}
	var names [][]string
	for _, module := range modules(definitions, []*explanation{{Definition: `broken\..*`, Change: "build"}, {Definition: `a\..*`, Change: "null"}}) {
		var of []string
		for _, definition := range module {
			of = append(of, definition.Name)
		}
		names = append(names, of)
	}
	require.Equal(t, [][]string{
		{"a.one.example.com", "b.two.example.com", "d.one.example.com"},
		{"c.one.example.org", "e.one.example.org"},
		{"broken.one.example.com"},
		{"d.one.example.com"},
	}, names)
}

// Versions are apart if their schemas differ.
func TestApart(t *testing.T) {
	versions := func(schemas ...string) (all []apiextensionsv1.CustomResourceDefinitionVersion) {
		for i, schema := range schemas {
			version := apiextensionsv1.CustomResourceDefinitionVersion{
				Name: fmt.Sprintf("v%d", i+1), Served: i < 2, Storage: i == 1, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{}},
			}
			require.NoError(t, yaml.UnmarshalStrict([]byte(schema), version.Schema.OpenAPIV3Schema))
			all = append(all, version)
		}
		return all
	}
	equal, different := &apiextensionsv1.CustomResourceDefinition{}, &apiextensionsv1.CustomResourceDefinition{}
	equal.Spec.Versions = versions(`{type: object, description: A.}`, `{type: object}`)
	different.Spec.Versions = versions(`{type: object}`, `{type: object, minProperties: 1}`, `{type: object}`)
	all := apart([]*apiextensionsv1.CustomResourceDefinition{equal, different})
	var names [][]string
	for _, definition := range all {
		var of []string
		for _, version := range definition.Spec.Versions {
			of = append(of, fmt.Sprint(version.Name, " ", version.Storage))
		}
		names = append(names, of)
	}
	require.Equal(t, [][]string{{"v1 false", "v2 true"}, {"v1 true"}, {"v2 true"}}, names)
}
