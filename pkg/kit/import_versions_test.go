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
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

// Parts of a version that a kind has in all versions, or in none, are reported.
func TestImportedVersions(t *testing.T) {
	const status, scale = "subresources: {status: {}}", "subresources: {scale: {specReplicasPath: .spec.field, statusReplicasPath: .status.field}}"
	for name, test := range map[string]struct {
		// v1 and v1beta1 are lines of these versions, and conversion is one of the definition.
		v1, v1beta1, conversion string
		// served is the value of the annotation of a definition that crd-apiserver serves.
		served string
		// field is the field in v1beta1.
		field    string
		findings []string
		// declared is a part of the declaration or the roles.
		declared string
	}{
		"equal versions": {v1: status, v1beta1: status},
		"other columns":  {v1beta1: "additionalPrinterColumns: [{name: Field, type: integer, jsonPath: .spec.field}]"},
		"a status of the preferred version": {v1: status, findings: []string{
			"v1beta1: the subresource status of v1 is added",
		}},
		"a status of another version": {v1beta1: status, findings: []string{
			"v1beta1: the subresource status, which v1 lacks",
		}},
		"a scale of the preferred version": {v1: scale, findings: []string{"v1beta1: the subresource scale is in discovery, and answers 404"}, declared: "resources: [breads, breads/scale]"},
		"a scale of another version":       {v1beta1: scale, findings: []string{"v1: the subresource scale is in discovery, and answers 404"}, declared: "resources: [breads, breads/scale]"},
		"field selectors": {
			v1: "selectableFields: [{jsonPath: .spec.field}]", v1beta1: "selectableFields: [{jsonPath: .spec.other}]",
			findings: []string{
				"v1: the field selector .spec.other of another version is added",
				"v1beta1: the field selector .spec.field of another version is added",
			},
			declared: `"spec.other": func(o *bakery.Bread) string {`,
		},
		"other fields":                       {field: "field: {type: string}"},
		"other fields and a webhook":         {field: "field: {type: string}", conversion: "conversion: {strategy: Webhook}", findings: []string{"the conversion webhook: write its conversions in Go"}},
		"another rule":                       {field: "field: {type: integer, maximum: 3}"},
		"a version that is not served":       {v1beta1: "served: false", findings: []string{"the version v1beta1, which is not served"}},
		"versions that are served elsewhere": {v1: "served: false", v1beta1: "served: false", served: "v1,v1beta1"},
		"a deprecation of another version":   {v1beta1: "deprecated: true", findings: []string{"v1beta1: the deprecation: write the methods that https://restaurant.programming-kubernetes.info/apiserver/blob/main/docs/adding-a-kind.md#adding-a-version shows"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			file := filepath.Join(t.TempDir(), "crd.yaml")
			version := func(name, line, field string) string {
				if !strings.Contains(line, "served") {
					line = "served: true\n      " + line
				}
				return "\n    - name: " + name + "\n      " + line + "\n      storage: " + fmt.Sprint(name == "v1") + "\n      schema: {openAPIV3Schema: {type: object, required: [spec], properties: {spec: {type: object, required: [other], properties: {other: {type: string}, " + field + "}}}}}"
			}
			const field = "field: {type: integer}"
			write(t, "", file, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: breads.bakery.example.com, annotations: {crd-apiserver/served: "`+test.served+`"}}
spec:
  group: bakery.example.com
  names: {kind: Bread, plural: breads}
  scope: Namespaced
  `+test.conversion+`
  versions:`+version("v1", test.v1, field)+version("v1beta1", test.v1beta1, cmp.Or(test.field, field))+"\n")
			var findings []string
			_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{file}, Report: func(finding string) {
				finding = strings.TrimPrefix(finding, "breads.bakery.example.com: ")
				if !strings.Contains(finding, "an empty status is dropped") {
					findings = append(findings, finding)
				}
			}})
			require.NoError(t, err)
			require.Equal(t, test.findings, findings)
			require.Contains(t, read(t, dir, "pkg/registry/bakery/bread.go")+read(t, dir, "artifacts/deploy/base/rbac-bread.yaml"), test.declared)
		})
	}
}

// As of custom resources, the generation counts changes of all but the metadata and a status with its subresource.
func TestImportedGeneration(t *testing.T) {
	const status, data = "\n            status: {type: object, properties: {a: {type: string}}}", "\n            data: {type: string}"
	for name, test := range map[string]struct {
		subresource bool
		properties  string
		// fields are those that count, or nil for the spec alone.
		fields []string
	}{
		"a spec":                          {false, "", nil},
		"a spec and a status":             {true, status, nil},
		"a status without a subresource":  {false, status, []string{"Spec", "Status"}},
		"fields beside the spec":          {false, data, []string{"Data", "Spec"}},
		"fields beside spec and a status": {true, data + status, []string{"Data", "Spec"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, file := newModule(t), definition(t, "", "field: {type: string}")
			text := strings.Replace(read(t, "", file), "          properties:\n", "          properties:"+test.properties+"\n", 1)
			if test.subresource {
				text = strings.Replace(text, "served: true", "served: true\n      subresources: {status: {}}", 1)
			}
			write(t, "", file, text)
			_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{file}})
			require.NoError(t, err)
			declaration := read(t, dir, "pkg/registry/bakery/bread.go")
			if test.fields == nil {
				require.Contains(t, declaration, "any { return o.Spec },\n")
				return
			}
			require.Contains(t, declaration, "\t\t\tkeepBread(spec, o)\n")
			_, kept, _ := strings.Cut(declaration, "func keepBread(to, from *bakery.Bread) {\n")
			want := ""
			for _, field := range test.fields {
				want += "\tto." + field + " = from." + field + "\n"
			}
			require.Equal(t, want+"}\n", kept)
		})
	}
}
