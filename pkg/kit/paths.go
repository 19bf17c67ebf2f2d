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
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// selector is a field selector, with the statements that return its value.
type selector struct{ Name, Value string }

// selectable returns the field selectors of a kind.
func selectable(root *goStruct, fields []apiextensionsv1.SelectableField) (made []selector, findings []string) {
	for _, field := range fields {
		value := expression(root, field.JSONPath)
		if value == "" {
			findings = append(findings, "the field selector "+field.JSONPath+": write it by hand")
			continue
		}
		made = append(made, selector{strings.TrimPrefix(field.JSONPath, "."), value})
	}
	return made, findings
}

// expression returns statements that return the value at a JSON path of an object o as a string. It returns
// "" if it can't follow the path.
func expression(root *goStruct, jsonPath string) string {
	var statements strings.Builder
	within, value := root, "o"
	var last *goField
	for segment := range strings.SplitSeq(strings.TrimPrefix(jsonPath, "."), ".") {
		if within == nil {
			return ""
		}
		if last = within.field(segment); last == nil {
			return ""
		}
		value += "." + last.name
		if last.pointer {
			fmt.Fprintf(&statements, "if %s == nil {\nreturn \"\"\n}\n", value)
		}
		within = last.goType.fields
	}
	text := last.goType.text
	if last.goType.fields != nil || last.goType.list || last.goType.dictionary || text == "runtime.RawExtension" {
		return ""
	}
	if text == "intstr.IntOrString" {
		value += ".String()"
	} else if last.pointer {
		value = "*" + value
	}
	if slices.Contains([]string{"int32", "int64", "bool", "float64"}, text) {
		value = "fmt.Sprint(" + value + ")"
	}
	return statements.String() + "return " + value + "\n"
}
