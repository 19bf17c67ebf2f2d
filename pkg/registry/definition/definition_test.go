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

package definition_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry/definition"
)

const sites = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.workshop.example.com}
spec:
  group: workshop.example.com
  scope: Cluster
  names: {kind: Site, plural: sites}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            spec:
              type: object
              required: [region, tags]
              properties:
                region: {type: string, minLength: 1, pattern: "^[a-z]+$"}
                tags: {type: array, maxItems: 3, items: {type: string, maxLength: 5}, x-kubernetes-list-type: set}
                size: {type: integer, default: 3, multipleOf: 3}
                note: {type: string, nullable: true}
                fixed: {type: integer, x-kubernetes-validations: [{rule: self == oldSelf, message: is fixed}]}
                embedded: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, properties: {ready: {type: boolean}}}
`

// schema is the schema of version v1.
func schema(t *testing.T) registry.Schema {
	t.Helper()
	of, err := definition.New(sites).Schema("v1")
	require.NoError(t, err)
	return of
}

func object(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	if text == "" {
		return nil
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, utiljson.Unmarshal(raw, &object))
	object["apiVersion"], object["kind"] = "workshop.example.com/v1", "Site"
	return object
}

// Objects are coerced and defaulted like custom resources.
func TestCoerce(t *testing.T) {
	for name, test := range map[string]struct {
		sent, want string
		unknown    []string
	}{
		"unknown fields":     {`{spec: {region: a, other: 1}, more: {}}`, `{spec: {region: a, size: 3}}`, []string{"more", "spec.other"}},
		"null":               {`{spec: {region: null, note: null, size: null}}`, `{spec: {note: null, size: 3}}`, nil},
		"null in a list":     {`{spec: {tags: [null]}}`, `{spec: {tags: [null], size: 3}}`, nil},
		"metadata":           {`{metadata: {name: a, labels: {b: c}, other: 1}}`, `{metadata: {name: a, labels: {b: c}}}`, []string{"metadata.other"}},
		"embedded resources": {`{spec: {embedded: {kind: A, apiVersion: v1, metadata: {name: a, other: 1}, more: 1}}}`, `{spec: {size: 3, embedded: {kind: A, apiVersion: v1, metadata: {name: a}, more: 1}}}`, []string{"spec.embedded.metadata.other"}},
	} {
		t.Run(name, func(t *testing.T) {
			sent, of := object(t, test.sent), schema(t)
			unknown, err := of.Coerce(sent)
			require.NoError(t, err)
			of.Default(sent)
			require.ElementsMatch(t, test.unknown, unknown)
			require.Equal(t, asJSON(t, object(t, test.want)), asJSON(t, sent))
		})
	}
}

// Objects are shown as kube-apiserver shows custom resources. A version without columns shows the age.
func TestTable(t *testing.T) {
	const columns = `
      additionalPrinterColumns:
        - {name: Region, type: string, jsonPath: .spec.region, description: where it is, priority: 1}
        - {name: Size, type: integer, jsonPath: .spec.size}
        - {name: First, type: string, jsonPath: ".spec.tags[0]"}
        - {name: All, type: string, jsonPath: .spec.tags}
        - {name: Opened, type: date, jsonPath: .spec.note}
`
	const site = `{metadata: {name: a}, spec: {region: north, size: 3, tags: [b, c], note: today}}`
	for name, test := range map[string]struct {
		columns, object string
		headers         []string
		cells           []any
	}{
		"columns":         {columns, site, []string{"Name", "Region", "Size", "First", "All", "Opened"}, []any{"a", "north", int64(3), "b", `["b","c"]`, "<invalid>"}},
		"what is missing": {columns, `{metadata: {name: a}, spec: {}}`, []string{"Name", "Region", "Size", "First", "All", "Opened"}, []any{"a", nil, nil, nil, nil, nil}},
		"no columns":      {"\n", site, []string{"Name", "Age"}, []any{"a", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			of, err := definition.New(sites[:len(sites)-1] + test.columns).Schema("v1")
			require.NoError(t, err)
			table, err := of.Table().ConvertToTable(t.Context(), &unstructured.Unstructured{Object: object(t, test.object)}, nil)
			require.NoError(t, err)
			require.Equal(t, test.headers, headers(table))
			require.Equal(t, test.cells, table.Rows[0].Cells)
		})
	}
	_, err := definition.New(sites[:len(sites)-1] + "\n      additionalPrinterColumns: [{name: A, type: string, jsonPath: \"[\"}]\n").Schema("v1")
	require.EqualError(t, err, `sites.workshop.example.com in version v1: unrecognized column definition "["`)
}

// The numbers of replicas are where the definition has them.
func TestScale(t *testing.T) {
	of, err := definition.New(strings.Replace(sites, "status: {}}", "status: {}, "+
		"scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.parts.size, labelSelectorPath: .status.selector}}", 1)).Schema("v1")
	require.NoError(t, err)
	require.Equal(t, "spec.size", strings.TrimPrefix(of.Replicas().String(), "."))
	for name, test := range map[string]struct {
		object string
		spec   int32
		status autoscalingv1.ScaleStatus
		err    string
	}{
		"all":          {`{spec: {size: 3}, status: {parts: {size: 2}, selector: a=b}}`, 3, autoscalingv1.ScaleStatus{Replicas: 2, Selector: "a=b"}, ""},
		"too many":     {`{spec: {size: 3000000000}}`, 2147483647, autoscalingv1.ScaleStatus{}, ""},
		"nothing":      {`{spec: {}}`, 0, autoscalingv1.ScaleStatus{}, ""},
		"another type": {`{spec: {size: "3"}}`, 0, autoscalingv1.ScaleStatus{}, `.spec.size accessor error: 3 is of the type string, expected int64`},
	} {
		t.Run(name, func(t *testing.T) {
			object := object(t, test.object)
			spec, status, err := of.Scale(object)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.spec, spec.Replicas)
			require.Equal(t, test.status, status)
			require.NoError(t, of.SetReplicas(object, 6))
			spec, _, err = of.Scale(object)
			require.NoError(t, err)
			require.EqualValues(t, 6, spec.Replicas)
		})
	}
	require.Nil(t, schema(t).Replicas())
	_, _, err = schema(t).Scale(object(t, `{}`))
	require.True(t, apierrors.IsNotFound(err))
}

func headers(table *metav1.Table) (names []string) {
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	return names
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	return string(raw)
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		object, old string
		status      bool
		errs        []string
	}{
		"valid":                      {object: `{spec: {region: a, tags: []}}`},
		"missing":                    {object: `{spec: {}}`, errs: []string{"spec.region: Required value", "spec.tags: Required value", blocked}},
		"pattern":                    {object: `{spec: {region: A, tags: []}}`, errs: []string{`spec.region: Invalid value: "A": spec.region in body should match '^[a-z]+$'`}},
		"null in a list":             {object: `{spec: {region: a, tags: [null]}}`, errs: []string{`spec.tags[0]: Invalid value: "null": spec.tags[0] in body must be of type string: "null"`, blocked}},
		"a set":                      {object: `{spec: {region: a, tags: [b, b]}}`, errs: []string{`spec.tags[1]: Duplicate value: "b"`}},
		"multiples":                  {object: `{spec: {region: a, tags: [], size: 4}}`, errs: []string{`spec.size: Invalid value: 4: spec.size in body should be a multiple of 3`}},
		"embedded resources":         {object: `{spec: {region: a, tags: [], embedded: {}}}`, errs: []string{"spec.embedded.apiVersion: Required value", "spec.embedded.kind: Required value", blocked}},
		"a rule about a change":      {object: `{spec: {region: a, tags: [], fixed: 1}}`, old: `{spec: {region: a, tags: [], fixed: 2}}`, errs: []string{`spec.fixed: Invalid value: 1: is fixed`}},
		"what was invalid already":   {object: `{spec: {region: A, tags: [b]}}`, old: `{spec: {region: A, tags: []}}`},
		"a status of a new object":   {object: `{spec: {region: a, tags: []}, status: {ready: 1}}`},
		"a status without its spec":  {object: `{spec: {}, status: {ready: true}}`, old: `{spec: {}}`, status: true},
		"a status that is no object": {object: `{spec: {}, status: 1}`, old: `{spec: {}}`, status: true, errs: []string{`status: Invalid value: "integer":  in body must be of type object: "integer"`, blocked}},
	} {
		t.Run(name, func(t *testing.T) {
			var errs []string
			changed, old := object(t, test.object), object(t, test.old)
			for _, of := range []map[string]any{changed, old} {
				if of != nil {
					of["metadata"] = map[string]any{"name": "a", "resourceVersion": "1"}
				}
			}
			for _, err := range schema(t).Validate(t.Context(), changed, old, test.status) {
				errs = append(errs, err.Error())
			}
			require.ElementsMatch(t, test.errs, errs)
		})
	}
}

const blocked = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// Defaults that would add too much are refused before they are filled in.
func TestCheckDefaults(t *testing.T) {
	of, err := definition.New(`
metadata: {name: sites.workshop.example.com}
spec:
  group: workshop.example.com
  names: {kind: Site, plural: sites}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            few: {type: array, items: {type: object, properties: {a: {type: string, default: b}, c: {type: string, nullable: true, default: d}}}}
            long: {type: array, items: {type: object, properties: {a: {type: string, default: ` + strings.Repeat("b", 1000) + `}}}}
            nulls: {type: array, items: {type: string, default: b}}
            nested: {type: object, additionalProperties: {type: object, properties: {a: {type: object, default: {}, properties: {b: {type: array, items: {type: string}, default: [c, d]}}}}}}
`).Schema("v1")
	require.NoError(t, err)
	const tooMuch = "the defaults of fields that are missing must not be more than 20000 values or 3145728 bytes together"
	list := func(name, item string, count int) string {
		return `{"` + name + `":[` + strings.TrimSuffix(strings.Repeat(item+",", count), ",") + `]}`
	}
	entries := func(count int) string {
		all := map[string]any{}
		for i := range count {
			all[fmt.Sprint(i)] = map[string]any{}
		}
		text, err := json.Marshal(map[string]any{"nested": all})
		require.NoError(t, err)
		return string(text)
	}
	for name, test := range map[string]struct{ object, err string }{
		"many values":                {list("few", `{}`, 10_000), ""},
		"too many values":            {list("few", `{}`, 10_001), tooMuch},
		"values that are there":      {list("few", `{"a":"b","c":"d"}`, 10_001), ""},
		"null that has a default":    {list("few", `{"a":null,"c":"d"}`, 20_001), tooMuch},
		"null in a list":             {list("nulls", `null`, 20_001), tooMuch},
		"null that stays":            {list("few", `{"a":"b","c":null}`, 20_001), ""},
		"many bytes":                 {list("long", `{}`, 3000), ""},
		"too many bytes":             {list("long", `{}`, 3200), tooMuch},
		"defaults of a default":      {entries(5000), ""},
		"too many of them":           {entries(5001), tooMuch},
		"what the schema lacks":      {`{"other":[{},{}]}`, ""},
		"what is of another type":    {`{"few":{"a":[{}]},"nested":1}`, ""},
		"an object without anything": {`{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := of.CheckDefaults(object(t, test.object))
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestOpenAPI(t *testing.T) {
	made := schema(t).OpenAPI(func(name string) spec.Ref { return spec.MustCreateRef("#/" + name) })
	require.Equal(t, []string{"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}, made.Dependencies)
	second, ok := made.Schema.Extensions["x-kubernetes-v2-schema"].(spec.Schema)
	require.True(t, ok)
	for version, of := range map[string]spec.Schema{"v3": made.Schema, "v2": second} {
		metadata, embedded := of.Properties["metadata"], of.Properties["spec"].Properties["embedded"]
		require.Equal(t, "#/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", metadata.Ref.String(), version)
		_, hasMetadata := embedded.Properties["metadata"]
		require.Equal(t, version == "v3", hasMetadata, version)
		require.Equal(t, version == "v3", of.Properties["spec"].Properties["note"].Nullable, version)
	}
}

func TestErrors(t *testing.T) {
	for name, test := range map[string]struct{ text, version, want string }{
		"another version": {sites, "v2", "it has no version v2: add that to the CustomResourceDefinition"},
		"no definition":   {"spec: 1", "v1", "the CustomResourceDefinition can't be read: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal number into Go struct field CustomResourceDefinition.spec of type v1.CustomResourceDefinitionSpec"},
		"no schema":       {"metadata: {name: a}\nspec: {versions: [{name: v1}]}", "v1", "a in version v1: it has no schema"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := definition.New(test.text).Schema(test.version)
			require.EqualError(t, err, test.want)
		})
	}
}
