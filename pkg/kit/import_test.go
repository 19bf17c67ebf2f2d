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

// importSpec imports a kind with a field in its spec. It returns the types of the version, the internal types,
// and the findings about the field.
func importSpec(t *testing.T, required, field string) (versioned, internal string, findings []string) {
	t.Helper()
	dir := newModule(t)
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{definition(t, required, "field: "+field)}, Report: func(finding string) {
		if finding = strings.TrimPrefix(finding, "breads.bakery.example.com: v1: "); strings.HasPrefix(finding, "Bread.spec.field") {
			findings = append(findings, finding)
		}
	}})
	require.NoError(t, err)
	return types(t, dir, "pkg/apis/bakery/v1/bread_types.go"), types(t, dir, "pkg/apis/bakery/bread_types.go"), findings
}

// definition returns a file with the definition of a kind that has a property in its spec.
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
          required: [spec]
          properties:
            spec:
              type: object
              required: [`+required+`]
              properties:
                `+property+"\n"), 0o600))
	return file
}

// types returns the types of a file, from the spec on.
func types(t *testing.T, dir, file string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, dir, file), "type BreadSpec struct {\n")
	require.True(t, found, file)
	text, _, _ = strings.Cut(text, "\n// +k8s:deepcopy-gen:interfaces")
	return text
}

func TestImportedFields(t *testing.T) {
	const optional, required = "\t// +optional\n", "\t// +required\n"
	for name, test := range map[string]struct {
		field    string
		required bool
		// versioned and internal are the first lines of the types.
		versioned, internal string
		findings            []string
	}{
		"integer": {
			field:     `{type: integer, format: int32, minimum: 1, maximum: 10, exclusiveMaximum: true}`,
			versioned: optional + "\tField *int32 `json:\"field,omitempty\"`\n", internal: "\tField *int32\n",
		},
		"default": {
			field: `{type: boolean, default: true}`, required: true,
			versioned: required + "\tField *bool `json:\"field,omitempty\"`\n", internal: "\tField *bool\n",
		},
		"required string that may be empty": {
			field: `{type: string}`, required: true,
			versioned: required + "\tField *string `json:\"field,omitempty\"`\n", internal: "\tField *string\n",
		},
		"required string": {
			field: `{type: string, minLength: 1, maxLength: 9}`, required: true,
			versioned: required + "\tField string `json:\"field\"`\n", internal: "\tField string\n",
		},
		"description": {
			field:     `{type: string, pattern: "^a+$", description: "field is a.\n+tag of theirs"}`,
			versioned: "\t// field is a.\n\t// \\+tag of theirs\n" + optional + "\tField *string", internal: "\t// field is a.\n\t// \\+tag of theirs\n\tField *string\n",
		},
		"integer or string": {
			field:     `{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`,
			versioned: optional + "\tField *intstr.IntOrString `json:\"field,omitempty\"`\n", internal: "\tField *intstr.IntOrString\n",
			findings: []string{"Bread.spec.field: integers beyond 32 bits are refused"},
		},
		"number": {
			field:     `{type: number, minimum: 0.5}`,
			versioned: optional + "\tField *float64 `json:\"field,omitempty\"`\n", internal: "\tField *float64\n",
			findings: []string{"Bread.spec.field: integers beyond 53 bits are rounded"},
		},
		"map": {
			field:     `{type: object, additionalProperties: {type: string, minLength: 0}}`,
			versioned: optional + "\tField map[string]string `json:\"field,omitzero\"`\n", internal: "\tField map[string]string\n",
		},
		"required list": {
			field: `{type: array, minItems: 1, items: {type: string, maxLength: 5}}`, required: true,
			versioned: required + "\t// +listType=atomic\n\tField []string `json:\"field,omitzero\"`\n", internal: "\tField []string\n",
		},
		"list by key": {
			field: `{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}}}}`,
			versioned: optional + "\t// +listType=map\n\t// +listMapKey=name\n\tField []BreadFieldItem `json:\"field,omitzero\"`\n}\n\n" +
				"// BreadFieldItem is the type of Bread.spec.field[].\ntype BreadFieldItem struct {\n" + required + "\tName *string `json:\"name,omitempty\"`\n}\n",
			internal: "\tField []BreadFieldItem\n}\n\n// BreadFieldItem is the type of Bread.spec.field[].\ntype BreadFieldItem struct {\n\tName *string\n}\n",
		},
		"null in a list": {
			field:     `{type: array, items: {type: string, nullable: true}}`,
			versioned: optional + "\t// +listType=atomic\n\tField []runtime.RawExtension `json:\"field,omitzero\"`\n", internal: "\tField []runtime.RawExtension\n",
		},
		"null that is required": {
			field: `{type: string, nullable: true, minLength: 1}`, required: true,
			versioned: required + "\tField *string `json:\"field\"`\n", internal: "\tField *string\n",
			findings: []string{"Bread.spec.field: becomes null if a server-side apply lacks it"},
		},
		"null without a default": {
			field:     `{type: string, nullable: true}`,
			versioned: optional + "\tField *string `json:\"field,omitempty\"`\n", internal: "\tField *string\n",
			findings: []string{"Bread.spec.field: null is dropped"},
		},
		"anything": {
			field:     `{type: object, x-kubernetes-preserve-unknown-fields: true}`,
			versioned: optional + "\tField *runtime.RawExtension `json:\"field,omitempty\"`\n", internal: "\tField *runtime.RawExtension\n",
		},
		"conditions": {
			field:     conditions,
			versioned: optional + "\t// +listType=map\n\t// +listMapKey=type\n\tField []metav1.Condition `json:\"field,omitzero\"`\n", internal: "\tField []metav1.Condition\n",
			findings: []string{"Bread.spec.field: times become UTC in seconds, and are refused with a small t or z; an observedGeneration of 0 is dropped; a message that is missing or null is empty"},
		},
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

// Lists become metav1.Condition only if that can hold all that their schemas accept.
func TestImportedConditions(t *testing.T) {
	for name, change := range map[string][2]string{
		"a time without a format":             {"type: string, format: date-time", "type: string"},
		"a reason that may be empty":          {"type: string, minLength: 1", "type: string"},
		"a pattern of an empty reason":        {"type: string, minLength: 1", `type: string, pattern: "^[A-Za-z]*$"`},
		"another property":                    {"message: {", "severity: {type: string}, message: {"},
		"unknown properties":                  {"items: {type: object,", "items: {type: object, x-kubernetes-preserve-unknown-fields: true,"},
		"nullable elements":                   {"items: {type: object,", "items: {type: object, nullable: true,"},
		"an optional time":                    {"required: [lastTransitionTime, ", "required: ["},
		"nothing that is required":            {"required: [lastTransitionTime, message, reason, status, type], ", ""},
		"a nullable reason":                   {"reason: {type: string,", "reason: {type: string, nullable: true,"},
		"a nullable message":                  {"message: {type: string", "message: {type: string, nullable: true"},
		"a time with a pattern":               {"format: date-time", `format: date-time, pattern: "\\.[0-9]{3}Z$"`},
		"a nullable time":                     {"format: date-time", "format: date-time, nullable: true"},
		"a nullable generation":               {"format: int64", "format: int64, nullable: true"},
		"a default of the generation":         {"format: int64", "format: int64, default: 1"},
		"another key":                         {"keys: [type]", "keys: [reason]"},
		"another key beside the type":         {"keys: [type]", "keys: [type, reason]"},
		"a list without keys":                 {"x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [type], ", ""},
		"a generation of another type":        {"observedGeneration: {type: integer, format: int64}", "observedGeneration: {type: string}"},
		"a status that is missing everywhere": {`, status: {type: string, enum: ["True", "False"]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(conditions, change[0], change[1], 1)
			require.NotEqual(t, conditions, changed)
			versioned, _, _ := importSpec(t, "", changed)
			require.NotContains(t, versioned, "metav1.Condition")
		})
	}
}

// conditions is a list of conditions.
const conditions = `{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [type], items: {type: object,
                  required: [lastTransitionTime, message, reason, status, type], properties: {lastTransitionTime: {type: string, format: date-time},
                  message: {type: string}, observedGeneration: {type: integer, format: int64}, reason: {type: string, minLength: 1}, status: {type: string, enum: ["True", "False"]}, type: {type: string, pattern: "^[A-Z]+$"}}}}`

// TestImportOfTheRestaurant imports this repository's own definitions.
func TestImportOfTheRestaurant(t *testing.T) {
	dir := newModule(t)
	write(t, dir, "pkg/apis/bakery/doc.go", "// +groupName=restaurant.programming-kubernetes.info\n\npackage bakery\n")
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{
		Files: []string{"../../artifacts/crd/pizzas.yaml", "../../artifacts/crd/toppings.yaml"}, Versions: []string{"v1", "v1beta1"},
	})
	require.NoError(t, err)
	declaration := read(t, dir, "pkg/registry/bakery/pizza.go")
	for _, want := range []string{
		"\t\tNamespaced: true,\n\t\tShortNames: []string{\"pz\"},\n\t\tCategories: []string{\"restaurant\"},\n",
		"\t\t\t\"status.replicas\": func(o *bakery.Pizza) string {\n\t\t\t\tif o.Status.Replicas == nil {\n\t\t\t\t\treturn \"\"\n\t\t\t\t}\n\t\t\t\treturn fmt.Sprint(*o.Status.Replicas)\n",
		"//go:embed pizza.yaml\nvar pizzaDefinition string\n",
		"\t\tDefinition: definition.New(pizzaDefinition),\n",
	} {
		require.Contains(t, declaration, want)
	}
	for _, ofDefinition := range []string{"Columns:", "Scale:"} {
		require.NotContains(t, declaration, ofDefinition)
	}
	require.Contains(t, read(t, dir, "pkg/registry/bakery/pizza.yaml"), "\nkind: CustomResourceDefinition\nmetadata:\n  name: pizzas.restaurant.programming-kubernetes.info\nspec:\n")
	require.Contains(t, read(t, dir, "artifacts/deploy/base/rbac-topping.yaml"), "name: bakery:topping-editor\n")
	require.Contains(t, read(t, dir, "artifacts/deploy/base/rbac-pizza.yaml"), "resources: [pizzas, pizzas/scale]\n")
}

// TestImportedDefinitions imports definitions with difficult names and types. Each loss is a finding, and nothing
// is declared twice.
func TestImportedDefinitions(t *testing.T) {
	for file, test := range map[string]struct {
		// findings are by the path of what is lost, and lines are in the types of the version.
		findings, lines []string
	}{
		"names": {
			findings: []string{"Oven: an empty spec or status is dropped", "OvenRecipe: an empty spec is dropped"},
			lines: []string{
				"Größe *int64 `json:\"größe,omitempty\"`",
				"X2fa *bool `json:\"2fa,omitempty\"`",
				"FooBar2 *string `json:\"foo-bar,omitempty\"`",
				"Recipe *OvenRecipe2 `json:\"recipe,omitempty\"",
				"Status *OvenStatus2 `json:\"status,omitempty\"",
				"RecipeStep *OvenRecipeStep `json",
				"Step *OvenRecipeStep2 `json",
				"\t// +listMapKey=$key\n",
			},
		},
		"unknown": {
			findings: []string{
				"Task: fields beside spec and status are dropped",
				"Note: an empty status is dropped",
				"Memo: an empty spec is dropped",
				"Memo: fields beside spec are dropped",
			},
			lines: []string{
				"Spec *runtime.RawExtension `json:\"spec,omitempty\"`",
				"Status *runtime.RawExtension `json:\"status,omitempty\"`",
				"Status NoteStatus `json:\"status,omitzero\"`",
				"type NoteStatus struct {\n}",
				"Steps []runtime.RawExtension `json",
				"Open *runtime.RawExtension `json",
				"Empty *MemoEmpty2 `json",
				"Empties []MemoEmpty `json",
				"Values map[string]runtime.RawExtension `json",
			},
		},
		"merging": {
			findings: []string{"Policy.spec.note: null is dropped", "Policy.spec.tier: null becomes the default", "Policy: an empty spec is dropped"},
			lines: []string{
				"// +structType=atomic\ntype PolicySelector struct {",
				"\t// +mapType=atomic\n\tData map[string]string",
				"// +structType=atomic\ntype PolicySelector2 struct {",
				"\tLists map[string][]string",
				"\tNested []map[string]string",
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

// checkTypes returns the files of a package with types. It fails if a scope has a name twice, and looks at no
// other package.
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

// A definition that Go can't express, or that tries to inject code, is not written.
func TestRefusedDefinitions(t *testing.T) {
	const (
		code     = "\"x\\n}\\nfunc init() {}\""
		none     = "nothing has been written, since these can't be written in Go:\nbreads.bakery.example.com: "
		within   = none + "v1: Bread.spec"
		property = "field: {type: string}"
		list     = `field: {type: array, x-kubernetes-list-type: map, items: {type: object, properties: {name: {type: string}}}, `
		letters  = "use letters, digits and _$./-, and at least one letter or digit"
	)
	for name, test := range map[string]struct{ old, replacement, want string }{
		"a property that ends its tag": {
			property, `"x` + "`" + `\n}\nfunc init() { println(\"imported\") }\nvar _ struct {\n\tA string ` + "`" + `json:\"x": {type: string}`,
			within + `: the name of the property "x` + "`" + `\n}\nfunc init() { println(\"imported\") }\nvar _ struct {\n\tA string ` + "`" + `json:\"x": ` + letters,
		},
		"a key that ends its comment": {
			property, list + `x-kubernetes-list-map-keys: ["name\n\tA string\n}\nfunc init() { println(\"imported\") }\ntype x struct {"]}`,
			within + `.field: the key "name\n\tA string\n}\nfunc init() { println(\"imported\") }\ntype x struct {" of the list: name a property of its elements`,
		},
		"a list type that ends its comment": {
			property, `field: {type: array, x-kubernetes-list-type: "set\nfunc init() {}", items: {type: string}}`,
			within + `.field: the list type "set\nfunc init() {}": use atomic, set or map`,
		},
		"a map type that ends its comment": {
			property, `field: {type: object, x-kubernetes-map-type: "atomic\nfunc init() {}", additionalProperties: {type: string}}`,
			within + `.field: the map type "atomic\nfunc init() {}": use atomic or granular`,
		},
		"a property that JSON in Go ignores": {property, `"m²": {type: string}`, within + `: the name of the property "m²": ` + letters},
		"a property without letters":         {property, `"-": {type: string}`, within + `: the name of the property "-": ` + letters},
		"a key of strings":                   {property, `field: {type: array, x-kubernetes-list-map-keys: [a], items: {type: string}}`, within + `.field: the key "a" of the list: name a property of its elements`},
		"a property in a list":               {property, `field: {type: array, items: {type: object, properties: {"a b": {type: string}}}}`, within + `.field[]: the name of the property "a b": ` + letters},
		"a property in a map":                {property, `field: {type: object, additionalProperties: {type: object, properties: {"": {type: string}}}}`, within + `.field{}: the name of the property "": ` + letters},
		"unknown fields":                     {"scope: Namespaced", "scope: Namespaced\n  preserveUnknownFields: true", none + "preserveUnknownFields: a kind would drop what its schema lacks: set it to false, with a structural schema"},
		"the kind":                           {"kind: Bread,", "kind: " + code + ",", `breads.bakery.example.com: "x\n}\nfunc init() {}" can't be a kind: use letters and digits, beginning with a capital, such as Bread`},
		"the plural":                         {"plural: breads", "plural: " + code, `breads.bakery.example.com: "x\n}\nfunc init() {}" can't be the name of a resource: use small letters and digits, and dashes between them`},
		"a version":                          {"name: v1\n", "name: " + code + "\n", `breads.bakery.example.com: "x\n}\nfunc init() {}" can't be a version: use v1, v1beta1, v2alpha1 and the like`},
		"a group of Kubernetes": {
			"group: bakery.example.com", "group: bakery.k8s.io",
			`breads.bakery.example.com: the API group "bakery.k8s.io" belongs to the Kubernetes project, which has to approve it: use a domain of yours`,
		},
		"another group": {
			"group: bakery.example.com", "group: dairy.example.com",
			`breads.bakery.example.com: the module has no group dairy.example.com, but bakery.example.com: create it by "kit create group"`,
		},
		"an old definition": {
			"apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1",
			"FILE: breads.bakery.example.com has the version apiextensions.k8s.io/v1beta1: write it in apiextensions.k8s.io/v1",
		},
		"something else": {"kind: CustomResourceDefinition", "kind: Deployment", "FILE has no CustomResourceDefinition of apiextensions.k8s.io/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			before := tree(t, dir)
			file := definition(t, "", property)
			text := read(t, "", file)
			require.Contains(t, text, test.old)
			write(t, "", file, strings.Replace(text, test.old, test.replacement, 1))
			_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{file}})
			require.EqualError(t, err, strings.Replace(test.want, "FILE", file, 1))
			require.Equal(t, before, tree(t, dir))
		})
	}
}

// A kind keeps the parts of its definition outside of the schema, or they are reported.
func TestImportedKind(t *testing.T) {
	dir := newModule(t)
	file := definition(t, "", "field: {type: string}")
	write(t, "", file, strings.NewReplacer(
		"plural: breads", "plural: breads, singular: loaf, listKind: Loaves, categories: [all, baked]",
		"scope: Namespaced", "scope: Namespaced\n  conversion: {strategy: Webhook}",
		"served: true", "served: true\n      deprecated: true",
	).Replace(read(t, "", file)))
	var findings []string
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{file}, Report: func(finding string) {
		findings = append(findings, strings.TrimPrefix(finding, "breads.bakery.example.com: "))
	}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"the singular name loaf, which becomes bread",
		"the name of lists Loaves, which becomes BreadList",
		`the category all, which is left out: "kubectl get all" would fail for users without permission to list breads`,
		"the conversion webhook: write its conversions in Go",
		"v1: the deprecation: write the methods that https://restaurant.programming-kubernetes.info/apiserver/blob/main/docs/adding-a-kind.md#adding-a-version shows",
		"v1: Bread.spec: becomes empty if a server-side apply lacks it",
	}, findings)
	require.Contains(t, read(t, dir, "pkg/registry/bakery/bread.go"), "\t\tCategories: []string{\"baked\"},\n")
}

// A kind is not written if it, or something with its name, exists already.
func TestImportedTwice(t *testing.T) {
	recipe := definition(t, "", "field: {type: string}")
	write(t, "", recipe, strings.NewReplacer("Bread", "BreadField", "breads", "breadfields").Replace(read(t, "", recipe)))
	bread := definition(t, "", "field: {type: object, properties: {a: {type: string}}}")
	dir := newModule(t)
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread}})
	require.NoError(t, err)
	before := tree(t, dir)
	_, err = kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{recipe}})
	require.EqualError(t, err, "breadfields.bakery.example.com: the packages of the group have something else that is called BreadField: rename that, or import the CRD into a module of its own")
	_, err = kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread, bread}})
	require.EqualError(t, err, "nothing has been written, since these can't be written in Go:\nbreads.bakery.example.com: the kind Bread: it is defined twice, name one of the definitions")
	require.Equal(t, before, tree(t, dir))

	// Type names of kinds that are imported together do not collide, and a later import keeps them.
	dir = newModule(t)
	_, err = kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread, recipe}})
	require.NoError(t, err)
	require.Contains(t, checkTypes(t, dir+"/pkg/apis/bakery/v1"), "Field *BreadField2 `json")
	again, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{bread}})
	require.NoError(t, err)
	require.Empty(t, again.Files)
}

// tree returns all files of a directory.
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		files = append(files, path)
		return err
	}))
	return files
}

// The texts of a definition do not change the code of its kinds.
func TestImportedTexts(t *testing.T) {
	const code = "`\\n*/\\n}\\nfunc init() { println(\\\"imported\\\") }\\n//"
	for name, property := range map[string]string{
		"description": `field: {type: string, description: "` + code + `", title: "` + code + `", pattern: "` + code + `", format: "` + code + `"}`,
		"values":      `field: {type: string, enum: ["` + code + `"], default: "` + code + `"}`,
		"rules":       `field: {type: string, x-kubernetes-validations: [{rule: "` + code + `", message: "` + code + `"}], anyOf: [{pattern: "` + code + `"}]}`,
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
				// Generators write the values of tags into code and raw strings.
				for _, group := range parsed.Comments {
					for _, comment := range group.List {
						require.False(t, strings.HasPrefix(comment.Text, "// +") && strings.Contains(comment.Text, "`"), "%s: %s", file, comment.Text)
					}
				}
			}
		})
	}
}

func TestVersionsThatNoDefinitionServes(t *testing.T) {
	const pizzas = "../../artifacts/crd/pizzas.yaml"
	for want, options := range map[string]kit.ImportOptions{
		"no definition serves the version v2 with a schema: name others by --versions":                                         {Files: []string{pizzas}, Versions: []string{"v1beta1", "v2"}},
		"breads.bakery.example.com: it serves no version with a schema among v1beta1: name others by --versions, or serve one": {Files: []string{definition(t, "", "field: {type: string}"), pizzas}, Versions: []string{"v1beta1"}},
	} {
		_, err := kit.ImportCRD(t.Context(), newModule(t), options)
		require.EqualError(t, err, want)
	}
}

// Messages can't hold all that a definition accepts.
func TestImportIntoMessages(t *testing.T) {
	dir := newModule(t)
	write(t, dir, "pkg/apis/bakery/v1/doc.go", "// +k8s:protobuf-gen=package\n// +groupName=bakery.example.com\n\npackage v1\n")
	before := tree(t, dir)
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{definition(t, "", "field: {type: string}")}})
	require.EqualError(t, err, "breads.bakery.example.com: the types of version v1 have protobuf messages, which have no null in lists, and no empty lists: "+
		"remove +k8s:protobuf-gen=package from pkg/apis/bakery/v1/doc.go, or import into a group that \"kit create group\" makes for it")
	require.Equal(t, before, tree(t, dir))
}

// Equal differences of many fields are one line.
func TestTogether(t *testing.T) {
	dir := newModule(t)
	file := definition(t, "", "{a: {type: number}, b: {type: number}, c: {type: number}, d: {type: number}, e: {x-kubernetes-int-or-string: true}}")
	var findings []string
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{file}, Report: func(finding string) { findings = append(findings, finding) }})
	require.NoError(t, err)
	require.Contains(t, findings, "breads.bakery.example.com: v1: Bread.spec.a, Bread.spec.b, Bread.spec.c and 1 more: integers beyond 53 bits are rounded")
	require.Contains(t, findings, "breads.bakery.example.com: v1: Bread.spec.e: integers beyond 32 bits are refused")
}
