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

package kit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

// importSpec imports a kind of which the spec has a field, as a definition writes it, and
// returns what is written about the field, and the findings.
func importSpec(t *testing.T, required, field string) (versioned, internal string, findings []string) {
	t.Helper()
	dir := newModule(t)
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{definition(t, required, "field: "+field)}, Report: func(finding string) {
		findings = append(findings, strings.TrimPrefix(finding, "breads.bakery.example.com: v1: "))
	}})
	require.NoError(t, err)
	return types(t, dir, "pkg/apis/bakery/v1/bread_types.go"), types(t, dir, "pkg/apis/bakery/bread_types.go"), findings
}

// definition is a file with the definition of a kind, of which the spec has a property.
func definition(t *testing.T, required, property string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "crd.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: breads.bakery.example.com}
spec:
  group: bakery.example.com
  names: {kind: Bread, plural: breads}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [`+required+`]
              properties:
                `+property+"\n"), 0o600))
	return file
}

// types are those of a file, from the spec on.
func types(t *testing.T, dir, file string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, dir, file), "type BreadSpec struct {\n")
	require.True(t, found, file)
	text, _, _ = strings.Cut(text, "\n// +k8s:deepcopy-gen:interfaces")
	return text
}

func TestImportedFields(t *testing.T) {
	const optional, required = "\t// +optional\n\t// +k8s:optional\n", "\t// +required\n\t// +k8s:required\n"
	const numbers = "Bread: integers that are written with a point or an exponent, such as 1.0 or 1e6, which are refused"
	const everyValue = ", so that kube-apiserver refuses every value"
	for name, test := range map[string]struct {
		field    string
		required bool
		// versioned and internal are the first lines of the types.
		versioned, internal string
		findings            []string
	}{
		"integer": {field: `{type: integer, format: int32, minimum: 1, maximum: 10, exclusiveMaximum: true}`,
			versioned: optional + "\t// +k8s:minimum=1\n\t// +k8s:maximum=9\n\tField *int32 `json:\"field,omitempty\" protobuf:\"varint,1,opt,name=field\"`\n",
			internal:  "\tField *int32\n",
			findings:  []string{numbers, "Bread: integers beyond int32: server-side apply takes their last 32 bits rather than refuse them"}},
		"default": {field: `{type: boolean, default: true}`, required: true,
			versioned: "\t// +default=true\n" + optional + "\tField *bool `json:\"field,omitempty\" protobuf:\"varint,1,opt,name=field\"`\n",
			internal:  "\tField bool\n"},
		"required string that may be empty": {field: `{type: string}`, required: true,
			versioned: required + "\tField *string `json:\"field,omitempty\" protobuf:\"bytes,1,opt,name=field\"`\n",
			internal:  "\tField *string\n"},
		"required string": {field: `{type: string, minLength: 1, maxLength: 9}`, required: true,
			versioned: required + "\t// +k8s:minLength=1\n\t// +k8s:maxLength=9\n\tField string `json:\"field\" protobuf:\"bytes,1,opt,name=field\"`\n",
			internal:  "\tField string\n"},
		"enumeration": {field: `{type: string, enum: [a-b, "", c]}`,
			versioned: optional + "\tField *BreadField `json:\"field,omitempty\" protobuf:\"bytes,1,opt,name=field\"`\n}\n\n" +
				"// BreadField is one of a few values.\n//\n// +enum\n// +k8s:enum\ntype BreadField string\n\nconst (\n\tBreadFieldAB    BreadField = \"a-b\"\n\tBreadFieldEmpty BreadField = \"\"\n\tBreadFieldC     BreadField = \"c\"\n)\n",
			internal: "\tField *BreadField\n}\n\n// BreadField is one of a few values.\ntype BreadField string\n"},
		"pattern": {field: `{type: string, pattern: "^a+$", description: "field is a.\n+tag of theirs"}`,
			versioned: "\t// field is a.\n\t// \\+tag of theirs\n\t// TODO: no tag says the pattern ^a+$\n" + optional + "\tField *string",
			internal:  "\t// field is a.\n\t// \\+tag of theirs\n\tField *string\n",
			findings:  []string{"Bread.spec.field: the pattern ^a+$"}},
		"rules in CEL": {field: `{type: string, x-kubernetes-validations: [{rule: "self == oldSelf"}, {rule: "self != 'b'"}]}`,
			versioned: "\t// TODO: no tag says the rule self != 'b'\n" + optional + "\t// +k8s:immutable\n\tField *string",
			internal:  "\tField *string\n",
			findings:  []string{"Bread.spec.field: the rule self != 'b'"}},
		"quantity": {field: `{x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: "isQuantity(self)"}]}`,
			versioned: "\t// TODO: no tag says the rule isQuantity(self)\n\t// TODO: no tag says how the quantity is written, such as 1000m, which becomes 1\n" + optional + "\tField *resource.Quantity `json:\"field,omitempty\" protobuf:\"bytes,1,opt,name=field\"`\n",
			internal:  "\tField *resource.Quantity\n",
			findings:  []string{"Bread.spec.field: the rule isQuantity(self)", "Bread.spec.field: how the quantity is written, such as 1000m, which becomes 1"}},
		"integer or string": {field: `{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`,
			versioned: "\t// TODO: no tag says integers beyond 32 bits, which are refused\n" + optional + "\t// +k8s:opaqueType\n\tField *intstr.IntOrString `json:\"field,omitempty\" protobuf:\"bytes,1,opt,name=field\"`\n",
			internal:  "\tField *intstr.IntOrString\n",
			findings:  []string{"Bread.spec.field: integers beyond 32 bits, which are refused", numbers}},
		"number": {field: `{type: number, minimum: 0.5}`,
			versioned: "\t// TODO: no tag says the minimum 0.5\n" + optional + "\tField *float64 `json:\"field,omitempty\" protobuf:\"fixed64,1,opt,name=field\"`\n",
			internal:  "\tField *float64\n",
			findings:  []string{"Bread.spec.field: the minimum 0.5"}},
		"integer with bounds that are none": {field: `{type: integer, minimum: 0.5, maximum: 1e20}`,
			versioned: "\t// TODO: no tag says the minimum 0.5" + everyValue + "\n\t// TODO: no tag says the maximum 1e+20" + everyValue + "\n" + optional + "\tField *int64 `json:\"field,omitempty\" protobuf:\"varint,1,opt,name=field\"`\n",
			internal:  "\tField *int64\n",
			findings:  []string{"Bread.spec.field: the minimum 0.5" + everyValue, "Bread.spec.field: the maximum 1e+20" + everyValue, numbers}},
		"map whose values may be empty": {field: `{type: object, additionalProperties: {type: string, minLength: 0}}`,
			versioned: optional + "\tField map[string]string `json:\"field,omitempty\" protobuf:\"bytes,1,rep,name=field\"`\n",
			internal:  "\tField map[string]string\n"},
		"list of strings": {field: `{type: array, minItems: 1, items: {type: string, maxLength: 5}}`, required: true,
			versioned: required + "\t// +k8s:minItems=1\n\t// +listType=atomic\n\t// +k8s:eachVal=+k8s:maxLength=5\n\tField []string `json:\"field\" protobuf:\"bytes,1,rep,name=field\"`\n",
			internal:  "\tField []string\n"},
		"required list that may be empty": {field: `{type: array, items: {type: integer}}`, required: true,
			versioned: "\t// TODO: no tag says that it must be there, though it may be empty\n\t// +required\n\t// +k8s:optional\n\t// +listType=atomic\n\tField []int64 `json:\"field\" protobuf:\"varint,1,rep,name=field\"`\n",
			internal:  "\tField []int64\n",
			findings:  []string{"Bread.spec.field: that it must be there, though it may be empty", numbers}},
		"list by key": {field: `{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}}}}`,
			versioned: optional + "\t// +listType=map\n\t// +k8s:listType=map\n\t// +listMapKey=name\n\t// +k8s:listMapKey=name\n\tField []BreadFieldItem `json:\"field,omitempty\" protobuf:\"bytes,1,rep,name=field\"`\n}\n\n" +
				"// BreadFieldItem is the type of Bread.spec.field[].\ntype BreadFieldItem struct {\n" + required + "\tName string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"`\n}\n",
			internal: "\tField []BreadFieldItem\n}\n\n// BreadFieldItem is the type of Bread.spec.field[].\ntype BreadFieldItem struct {\n\tName string\n}\n"},
		"map of lists": {field: `{type: object, additionalProperties: {type: array, items: {type: string}}}`,
			versioned: optional + "\t// +k8s:eachVal=+k8s:opaqueType\n\tField map[string]BreadFieldItem `json:\"field,omitempty\" protobuf:\"bytes,1,rep,name=field\"`\n}\n\n" +
				"// BreadFieldItem is a part of a list or a map.\n//\n// +protobuf.nullable=true\n// +protobuf.options.(gogoproto.goproto_stringer)=false\ntype BreadFieldItem []string\n",
			internal: "\tField map[string]BreadFieldItem\n}\n\n// BreadFieldItem is a part of a list or a map.\ntype BreadFieldItem []string\n"},
		"default in a map of lists": {field: `{type: object, additionalProperties: {type: array, items: {type: object, properties: {a: {type: string, default: b}}}}}`,
			versioned: optional + "\t// +k8s:eachVal=+k8s:opaqueType\n\tField map[string]BreadFieldItem `json:\"field,omitempty\" protobuf:\"bytes,1,rep,name=field\"`\n}\n",
			internal:  "\tField map[string]BreadFieldItem\n}\n\n// BreadFieldItemItem is the type of Bread.spec.field{}[].\ntype BreadFieldItemItem struct {\n\tA *string\n}\n",
			findings:  []string{"Bread.spec.field{}: what the elements of the list must be"}},
		"anything": {field: `{type: object, x-kubernetes-preserve-unknown-fields: true}`,
			versioned: "\t// TODO: no tag says that it is an object\n" + optional + "\t// +k8s:opaqueType\n\tField *runtime.RawExtension `json:\"field,omitempty\" protobuf:\"bytes,1,opt,name=field\"`\n",
			internal:  "\tField *runtime.RawExtension\n",
			findings:  []string{"Bread.spec.field: that it is an object"}},
		"alternatives": {field: `{type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}`,
			versioned: "\t// TODO: no tag says oneOf [{\"required\":[\"a\"]},{\"required\":[\"b\"]}]\n" + optional + "\tField *BreadField `json:",
			internal:  "\tField *BreadField\n",
			findings:  []string{`Bread.spec.field: oneOf [{"required":["a"]},{"required":["b"]}]`}},
	} {
		t.Run(name, func(t *testing.T) {
			requiredFields := ""
			if test.required {
				requiredFields = "field"
			}
			versioned, internal, findings := importSpec(t, requiredFields, test.field)
			require.Equal(t, test.versioned, versioned[:min(len(test.versioned), len(versioned))])
			require.Equal(t, test.internal, internal[:min(len(test.internal), len(internal))])
			require.Equal(t, test.findings, findings)
		})
	}
}

// TestImportOfTheRestaurant imports this repository's own definitions.
func TestImportOfTheRestaurant(t *testing.T) {
	dir := newModule(t)
	write(t, dir, "pkg/apis/bakery/doc.go", "// +groupName=restaurant.programming-kubernetes.info\n\npackage bakery\n")
	var findings []string
	options := kit.ImportOptions{
		Files: []string{"../../artifacts/crd/pizzas.yaml", "../../artifacts/crd/toppings.yaml"}, Versions: []string{"v1", "v1beta1"},
		Report: func(finding string) { findings = append(findings, finding) },
	}
	_, err := kit.ImportCRD(t.Context(), dir, options)
	require.NoError(t, err)
	const pizzas, toppings = "pizzas.restaurant.programming-kubernetes.info: ", "toppings.restaurant.programming-kubernetes.info: "
	require.Equal(t, []string{
		pizzas + "the column Toppings: a function can show .spec.toppings, write it by hand",
		pizzas + "v1: Pizza.status.conditions: what its elements must be, which are taken as they are but for the fractions of their times",
		pizzas + "v1: Pizza.status.cost: the rule !self.matches('[eE][+-]?[0-9]{3}') && isQuantity(self) && !quantity(self).isLessThan(quantity('0')) && !quantity(self).isGreaterThan(quantity('640000000000'))",
		pizzas + "v1: Pizza.status.cost: the maxLength 64",
		pizzas + "v1: Pizza.status.cost: how the quantity is written, such as 1000m, which becomes 1",
		pizzas + "v1: Pizza: the rule has(self.spec) && has(self.spec.toppings) && self.spec.toppings.size() > 0",
		pizzas + "v1: Pizza: integers that are written with a point or an exponent, such as 1.0 or 1e6, which are refused",
		pizzas + "v1: Pizza: integers beyond int32: server-side apply takes their last 32 bits rather than refuse them",
		toppings + "v1: Topping.spec.cost: the rule !string(self).matches('[eE][+-]?[0-9]{3}') && isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('0')) && !quantity(string(self)).isGreaterThan(quantity('1000000000'))",
		toppings + "v1: Topping.spec.cost: the maxLength 64",
		toppings + "v1: Topping.spec.cost: how the quantity is written, such as 1000m, which becomes 1",
	}, findings)

	declaration := read(t, dir, "pkg/registry/bakery/pizza.go")
	for _, want := range []string{
		"\t\tNamespaced: true,\n\t\tShortNames: []string{\"pz\"},\n\t\tCategories: []string{\"restaurant\"},\n",
		"\t\t\t\tTableColumnDefinition: metav1.TableColumnDefinition{Name: \"Desired\", Type: \"integer\", Description: \"How many of the pizza the kitchen keeps baked.\"},\n",
		"\t\t\t\t\tif o.Status.Cost == nil {\n\t\t\t\t\t\treturn nil\n\t\t\t\t\t}\n\t\t\t\t\treturn o.Status.Cost.String()\n",
		"Description: \"The reason of the condition.\", Priority: 1},\n\t\t\t\tCell: func(o *bakery.Pizza) any {\n\t\t\t\t\tif c := meta.FindStatusCondition(o.Status.Conditions, \"Ready\"); c != nil {\n\t\t\t\t\t\treturn c.Reason\n",
		"\t\t\tregistry.AgeColumn[*bakery.Pizza](),\n",
		"\t\t\t\"status.replicas\": func(o *bakery.Pizza) string {\n\t\t\t\treturn fmt.Sprint(o.Status.Replicas)\n",
		"\t\t\tReplicas: func(o *bakery.Pizza) *int32 { return &o.Spec.Replicas },\n",
		"\t\t\tSelector: func(o *bakery.Pizza) string {\n\t\t\t\tif o.Status.Selector == nil {\n\t\t\t\t\treturn \"\"\n\t\t\t\t}\n\t\t\t\treturn *o.Status.Selector\n",
	} {
		require.Contains(t, declaration, want)
	}
	require.Contains(t, read(t, dir, "pkg/apis/bakery/v1beta1/pizza_types.go"), "\t// +k8s:format=k8s-long-name\n\tName string `json:\"name\"")
	require.Contains(t, read(t, dir, "artifacts/deploy/base/rbac-topping.yaml"), "name: bakery:topping-editor\n")

	again, err := kit.ImportCRD(t.Context(), dir, options)
	require.NoError(t, err)
	require.Empty(t, again.Files)
}

// TestImportedDefinitions imports definitions that names, or types of Go, could be in the way of: each thing that
// is lost is a finding, and nothing is declared twice.
func TestImportedDefinitions(t *testing.T) {
	const numbers = "integers that are written with a point or an exponent, such as 1.0 or 1e6, which are refused"
	const short, everyValue = "integers beyond int32: server-side apply takes their last 32 bits rather than refuse them", ", so that kube-apiserver refuses every value"
	for file, test := range map[string]struct {
		// findings are by the path of what is lost, and lines are in the types of the version.
		findings, lines []string
	}{
		"names": {
			findings: []string{
				"Oven: " + numbers,
				"Oven: " + short,
			},
			lines: []string{
				"Größe *int64 `json:\"größe,omitempty\" protobuf:\"varint,9,opt,name=gre\"`",
				"X2Fa *bool `json:\"2fa,omitempty\" protobuf:\"varint,2,opt,name=x2Fa\"`",
				"FooBar2 *string `json:\"foo-bar,omitempty\" protobuf:\"bytes,6,opt,name=fooBar2\"`",
				"Recipe *OvenRecipe2 `json:\"recipe,omitempty\"",
				"Status *OvenStatus2 `json:\"status,omitempty\"",
				"RecipeStep *OvenRecipeStep `json",
				"Step *OvenRecipeStep2 `json",
				"\t// +k8s:listMapKey=\"$key\"\n",
			},
		},
		"methods": {
			findings: []string{
				"Mixer: " + numbers,
				"Mixer: " + short,
			},
			lines: []string{
				"SizeValue *int32 `json:\"size,omitempty\" protobuf:\"varint,9,opt,name=size\"`",
				"NameValue *string `json:\"name,omitempty\" protobuf:\"bytes,5,opt,name=name\"`",
			},
		},
		"enums": {
			findings: []string{
				"Route.spec.size: the values [1,2,3]",
				"Route.spec.tier: null, which becomes what is left out",
				"Route: " + numbers,
			},
			lines: []string{
				"\tMode *RouteMode `json:\"mode,omitempty\"",
				"\tAxis RouteAxis `json:\"axis\"",
				"// +k8s:enum\ntype RouteAxis string\n",
				"\tRouteTierGold RouteTier = \"gold\"\n)",
				"\tRouteMatchTypeSymbol2 RouteMatchType = \"=\"\n",
			},
		},
		"quantities": {
			findings: []string{
				"Scale.spec.amount: the rule isQuantity(self)",
				"Scale.spec.amount: the maxLength 20",
				"Scale.spec.amount: how the quantity is written, such as 1000m, which becomes 1",
				"Scale.spec.either: the rule self == '' || isQuantity(self)",
				"Scale.spec.limits: the rule self.all(k, quantity(self[k]).isGreaterThan(quantity('0')))",
				"Scale.spec.resources.max: integers beyond 32 bits, which are refused",
				"Scale.spec.resources.min: integers beyond 32 bits, which are refused",
				"Scale.spec.resources: the rule quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",
				"Scale.spec.sizes: the rule self.all(s, isQuantity(s))",
				"Scale: " + numbers,
			},
			lines: []string{
				"Amount *resource.Quantity `json",
				"Either *string `json",
				"Limits map[string]string `json",
				"Sizes []string `json",
				"Resources *ScaleResources `json",
				"Max *intstr.IntOrString `json",
			},
		},
		"unknown": {
			findings: []string{
				"Task: fields beside spec and status, which are dropped",
				"Memo.spec.map: that it is an object",
				"Memo.spec.open: that it is an object",
				"Memo.spec.open: what its properties must be, as it keeps what is unknown",
				"Memo.spec.steps[]: that it is an object",
				"Memo: fields beside spec, which are dropped",
			},
			lines: []string{
				"Spec *runtime.RawExtension `json:\"spec,omitempty\" protobuf:\"bytes,2,opt,name=spec\"`",
				"Status *runtime.RawExtension `json:\"status,omitempty\" protobuf:\"bytes,3,opt,name=status\"`",
				"Status NoteStatus `json",
				"type NoteStatus struct {\n}",
				"Steps []runtime.RawExtension `json",
				"Open *runtime.RawExtension `json",
				"Empty *MemoEmpty2 `json",
				"Empties []MemoEmpty `json",
				"Values map[string]runtime.RawExtension `json",
			},
		},
		"embedded": {
			findings: []string{
				"Batch.spec.object: that it is an object with an apiVersion, a kind and valid metadata",
				"Batch.spec.strict: that it is an object with an apiVersion, a kind and valid metadata",
				"Batch.spec.strict: what its properties must be, as it keeps what is unknown",
				"Batch.spec.strict: that it keeps nothing unknown",
			},
			lines: []string{
				"Object *runtime.RawExtension `json",
				"Strict *runtime.RawExtension `json",
				"Metadata *BatchTemplateMetadata `json",
				"type BatchTemplateMetadata struct {\n}",
				"Labels map[string]string `json",
			},
		},
		"merging": {
			findings: []string{
				"Policy.spec.any: that it is an object",
				"Policy.spec.any: the map type atomic, so that what several apply is merged",
				"Policy.spec.lists{}: the list type set",
				"Policy.spec.lists{}: what the elements of the list must be",
				"Policy.spec.maps{}: what a list or a map within another has, which may be any JSON",
				"Policy.spec.nested[]: what a list or a map within another has, which may be any JSON",
				"Policy.spec.note: null, which becomes what is left out",
				"Policy.spec.objects{}: what the elements of the list must be",
				"Policy.spec.sets[]: what a list or a map within another has, which may be any JSON",
				"Policy.spec.tier: null, which becomes the default",
			},
			lines: []string{
				"// +structType=atomic\ntype PolicySelector struct {",
				"\t// +mapType=atomic\n\tData map[string]string",
				"// +structType=atomic\ntype PolicySelector2 struct {",
				"\t// +default=\"gold\"\n",
				"\t// +k8s:eachVal=+k8s:opaqueType\n\tLists map[string]PolicyList2",
			},
		},
		"bounds": {
			findings: []string{
				"Bound.spec.fraction: the minimum 0.5",
				"Bound.spec.fraction: the maximum 2",
				"Bound.spec.half: the minimum 0.5" + everyValue,
				"Bound.spec.half: the maximum 1.5" + everyValue,
				"Bound.spec.largest: the maximum 9.223372036854776e+18" + everyValue,
				"Bound.spec.least: the exclusive minimum -9.223372036854776e+18" + everyValue,
				"Bound.spec.negative: the exclusive maximum -9.223372036854776e+18" + everyValue,
				"Bound.spec.none: the exclusive minimum 2.147483647e+09" + everyValue,
				"Bound.spec.small: the maximum 4.294967295e+09" + everyValue,
				"Bound.spec.unsigned: the maximum 1.8446744073709552e+19" + everyValue,
				"Bound: " + numbers,
				"Bound: " + short,
			},
			lines: []string{
				"\t// +k8s:minimum=0\n\tUnsigned",
				"\t// +k8s:minimum=1\n\t// +k8s:maximum=65535\n\tPort",
				"\t// +k8s:maxLength=9223372036854775807\n",
				"\t// +k8s:minimum=-2147483648\n\tSmall",
			},
		},
		"defaults": {
			findings: []string{`Lamp.status: the default {"phase":"Off"}`},
			lines: []string{
				"Spec LampSpec `json",
				"Status LampStatus `json",
				"V1Beta2 *LampStatusV1Beta2 `json:\"v1beta2,omitempty\" protobuf:\"bytes,2,opt,name=v1beta2\"`",
			},
		},
		"times": {
			findings: []string{
				"Rental.spec.any: integers beyond 32 bits, which are refused",
				"Rental.spec.day: the format date",
				"Rental.spec.key: that it is not empty",
				"Rental.spec.renewTime: the format date-time",
				"Rental: " + numbers,
				"Rental: " + short,
			},
			lines: []string{
				"RenewTime *string `json",
				"Any *intstr.IntOrString",
				"Key []byte `json",
			},
		},
	} {
		t.Run(file, func(t *testing.T) {
			dir := newModule(t)
			var findings []string
			_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{"testdata/crds/" + file + ".yaml"}, Report: func(finding string) {
				_, finding, _ = strings.Cut(finding, ".bakery.example.com: v1: ")
				findings = append(findings, finding)
				require.NoFileExists(t, dir+"/pkg/apis/bakery/v1/doc.go")
			}})
			require.NoError(t, err)
			require.Equal(t, test.findings, findings)
			versioned := checkTypes(t, dir+"/pkg/apis/bakery/v1")
			checkTypes(t, dir+"/pkg/apis/bakery")
			for _, line := range test.lines {
				require.Contains(t, versioned, line)
			}
		})
	}
}

// A column of the type date shows an age, and one of another type the time as it is.
func TestImportedAges(t *testing.T) {
	dir := newModule(t)
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{"testdata/crds/times.yaml"}})
	require.NoError(t, err)
	declaration := read(t, dir, "pkg/registry/bakery/rental.go")
	for _, want := range []string{
		"\t\"k8s.io/apimachinery/pkg/api/meta/table\"\n",
		"Name: \"Renewed\", Type: \"string\", Description: \"\"},\n\t\t\t\tCell: func(o *bakery.Rental) any {\n\t\t\t\t\tif o.Spec.RenewTime == nil {\n\t\t\t\t\t\treturn nil\n\t\t\t\t\t}\n" +
			"\t\t\t\t\tvar at metav1.Time\n\t\t\t\t\tif at.UnmarshalQueryParameter(*o.Spec.RenewTime) != nil {\n\t\t\t\t\t\treturn \"<invalid>\"\n\t\t\t\t\t}\n\t\t\t\t\treturn table.ConvertToHumanReadableDateType(at)\n",
		"\t\t\t\t\treturn *o.Spec.Day\n",
	} {
		require.Contains(t, declaration, want)
	}
}

// checkTypes returns the files of a package with types, after it has found no name twice in a scope. It looks at
// no other package.
func checkTypes(t *testing.T, dir string) (text string) {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	names, err := filepath.Glob(filepath.Join(dir, "*_types.go"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, file)
		text += read(t, "", name)
	}
	config := gotypes.Config{Importer: noImporter{}, Error: func(err error) {
		require.NotContains(t, err.Error(), "declared")
	}}
	_, _ = config.Check("bakery", files, parsed, nil)
	return text
}

type noImporter struct{}

func (noImporter) Import(path string) (*gotypes.Package, error) {
	imported := gotypes.NewPackage(path, filepath.Base(path))
	imported.MarkComplete()
	return imported, nil
}

// A definition of strangers can't write code: nothing is written of one that tries to.
func TestImportedNames(t *testing.T) {
	const intro = "nothing has been written, since these can't be written in Go:\nbreads.bakery.example.com: v1: Bread.spec"
	const list = `field: {type: array, x-kubernetes-list-type: map, items: {type: object, properties: {name: {type: string}}}, `
	for name, test := range map[string]struct{ property, want string }{
		"a property that ends its tag": {
			`"x` + "`" + `\n}\nfunc init() { println(\"imported\") }\nvar _ struct {\n\tA string ` + "`" + `json:\"x": {type: string}`,
			`: the name of the property "x` + "`" + `\n}\nfunc init() { println(\"imported\") }\nvar _ struct {\n\tA string ` + "`" + `json:\"x": use letters, digits and _$./-, and at least one letter or digit`,
		},
		"a key that ends its comment": {
			list + `x-kubernetes-list-map-keys: ["name\n\tA string\n}\nfunc init() { println(\"imported\") }\ntype x struct {"]}`,
			`.field: the key "name\n\tA string\n}\nfunc init() { println(\"imported\") }\ntype x struct {" of the list: name a property of its elements`,
		},
		"a list type that ends its comment": {
			`field: {type: array, x-kubernetes-list-type: "set\nfunc init() {}", items: {type: string}}`,
			`.field: the list type "set\nfunc init() {}": use atomic, set or map`,
		},
		"a map type that ends its comment": {
			`field: {type: object, x-kubernetes-map-type: "atomic\nfunc init() {}", additionalProperties: {type: string}}`,
			`.field: the map type "atomic\nfunc init() {}": use atomic or granular`,
		},
		"a property without letters":           {`"-": {type: string}`, `: the name of the property "-": use letters, digits and _$./-, and at least one letter or digit`},
		"a key that is none of the properties": {list + `x-kubernetes-list-map-keys: [other]}`, `.field: the key "other" of the list: name a property of its elements`},
		"a key of strings":                     {`field: {type: array, x-kubernetes-list-map-keys: [a], items: {type: string}}`, `.field: the key "a" of the list: name a property of its elements`},
		"a property in a list":                 {`field: {type: array, items: {type: object, properties: {"a b": {type: string}}}}`, `.field[]: the name of the property "a b": use letters, digits and _$./-, and at least one letter or digit`},
		"a property in a map":                  {`field: {type: object, additionalProperties: {type: object, properties: {"": {type: string}}}}`, `.field{}: the name of the property "": use letters, digits and _$./-, and at least one letter or digit`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			before := tree(t, dir)
			_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{definition(t, "", test.property)}})
			require.EqualError(t, err, intro+test.want)
			require.Equal(t, before, tree(t, dir))
		})
	}
}

// Nor do the names of a kind write code.
func TestImportedNamesOfKinds(t *testing.T) {
	const code = "\"x\\n}\\nfunc init() {}\""
	for name, test := range map[string]struct{ old, replacement, want string }{
		"the kind":     {"kind: Bread,", "kind: " + code + ",", `"x\n}\nfunc init() {}" can't be a kind: use letters and digits, beginning with a capital, such as Bread`},
		"the plural":   {"plural: breads", "plural: " + code, `"x\n}\nfunc init() {}" can't be the name of a resource: use small letters and digits`},
		"a short name": {"plural: breads", "plural: breads, shortNames: [" + code + "]", `"x\n}\nfunc init() {}" can't be the name of a resource: use small letters and digits`},
		"a version":    {"name: v1\n", "name: " + code + "\n", `"x\n}\nfunc init() {}" can't be a version: use v1, v1beta1, v2alpha1 and the like`},
		"the group": {"group: bakery.example.com", "group: " + code,
			"the module has no group x\n}\nfunc init() {}, but bakery.example.com: create it by \"kit create group\""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			before := tree(t, dir)
			file := definition(t, "", "field: {type: string}")
			text := read(t, "", file)
			require.Contains(t, text, test.old)
			write(t, "", file, strings.Replace(text, test.old, test.replacement, 1))
			_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{file}})
			require.EqualError(t, err, "breads.bakery.example.com: "+test.want)
			require.Equal(t, before, tree(t, dir))
		})
	}
}

// A kind is not written where its name, or the kind itself, exists already.
func TestImportedTwice(t *testing.T) {
	recipe := definition(t, "", "field: {type: string}")
	write(t, "", recipe, strings.NewReplacer("Bread", "BreadField", "breads", "breadfields").Replace(read(t, "", recipe)))
	bread := definition(t, "", "field: {type: object, properties: {a: {type: string}}}")
	dir := newModule(t)
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread}})
	require.NoError(t, err)
	before := tree(t, dir)
	_, err = kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{recipe}})
	require.EqualError(t, err, "breadfields.bakery.example.com: the packages of the group have something else that is called BreadField: rename it")
	_, err = kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread, bread}})
	require.EqualError(t, err, "nothing has been written, since these can't be written in Go:\nbreads.bakery.example.com: the kind Bread: it is defined twice, name one of the definitions")
	require.Equal(t, before, tree(t, dir))

	// Both at once avoid each other, and so does what is imported later.
	dir = newModule(t)
	_, err = kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread, recipe}})
	require.NoError(t, err)
	require.Contains(t, checkTypes(t, dir+"/pkg/apis/bakery/v1"), "Field *BreadField2 `json")
	again, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread}})
	require.NoError(t, err)
	require.Empty(t, again.Files)
}

// tree is all files of a directory.
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		files = append(files, path)
		return err
	}))
	return files
}

// Whatever texts a definition has, its kinds consist of what they consist of without them.
func TestImportedTexts(t *testing.T) {
	const code = "`\\n*/\\n}\\nfunc init() { println(\\\"imported\\\") }\\n//"
	for name, property := range map[string]string{
		"description":        `field: {type: string, description: "` + code + `"}`,
		"enumeration":        `field: {type: string, enum: ["` + code + `"]}`,
		"numbers":            `field: {type: integer, enum: ["` + code + `"]}`,
		"pattern":            `field: {type: string, pattern: "` + code + `"}`,
		"format":             `field: {type: string, format: "` + code + `"}`,
		"rule":               `field: {type: string, x-kubernetes-validations: [{rule: "` + code + `", message: "` + code + `"}]}`,
		"alternatives":       `field: {type: string, anyOf: [{pattern: "` + code + `"}], not: {pattern: "` + code + `"}}`,
		"default":            `field: {type: string, default: "` + code + `"}`,
		"default of objects": `field: {type: object, properties: {a: {type: string, title: "` + code + `"}}, default: {a: "` + code + `"}}`,
		"default of numbers": `field: {type: integer, default: "` + code + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{definition(t, "", property)}})
			require.NoError(t, err)
			for _, file := range tree(t, dir) {
				if !strings.HasSuffix(file, ".go") || strings.Contains(file, "/test/") {
					continue
				}
				parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
				require.NoError(t, err)
				for _, declared := range parsed.Decls {
					function, is := declared.(*ast.FuncDecl)
					require.False(t, is && function.Name.Name == "init", "%s has an init()", file)
				}
				// Generators write what they are told by tags into code and raw strings.
				for _, group := range parsed.Comments {
					for _, comment := range group.List {
						require.False(t, strings.HasPrefix(comment.Text, "// +") && strings.Contains(comment.Text, "`"), "%s: %s", file, comment.Text)
					}
				}
			}
		})
	}
}

func TestImportErrorsNameTheFix(t *testing.T) {
	other := filepath.Join(t.TempDir(), "deployment.yaml")
	require.NoError(t, os.WriteFile(other, []byte("apiVersion: apps/v1\nkind: Deployment\n"), 0o600))
	for name, test := range map[string]struct {
		options kit.ImportOptions
		want    string
	}{
		"another group": {kit.ImportOptions{Files: []string{"../../artifacts/crd/pizzas.yaml"}},
			`pizzas.restaurant.programming-kubernetes.info: the module has no group restaurant.programming-kubernetes.info, but bakery.example.com: create it by "kit create group"`},
		"no such version": {kit.ImportOptions{Files: []string{"../../artifacts/crd/pizzas.yaml"}, Versions: []string{"v2"}},
			"pizzas.restaurant.programming-kubernetes.info: it serves none of these versions: v2"},
		"something else": {kit.ImportOptions{Files: []string{other}}, other + " has no CustomResourceDefinition of apiextensions.k8s.io/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kit.ImportCRD(t.Context(), newModule(t), test.options)
			require.EqualError(t, err, test.want)
		})
	}
}
