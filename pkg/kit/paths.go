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
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// conditionPath is a JSON path to a field of a condition.
var conditionPath = regexp.MustCompile(`^\.(\w+)\.conditions\[\?\(@\.type ?== ?['"](\w+)['"]\)\]\.(status|reason|message)$`)

// expression returns the statements that return the value at a JSON path of an object o, or
// none if it is not there. It is "" for paths that can't be followed. The function format writes the last
// statements, which return a value.
func expression(root *goStruct, jsonPath, none string, format func(*goType, string) string) string {
	if found := conditionPath.FindStringSubmatch(jsonPath); found != nil {
		status := root.field(found[1])
		if status == nil || status.pointer || status.goType.fields == nil {
			return ""
		}
		conditions := status.goType.fields.field("conditions")
		if conditions == nil || conditions.goType.String() != "[]metav1.Condition" {
			return ""
		}
		value := "c." + goName(found[3])
		if found[3] == "status" {
			value = "string(c.Status)"
		}
		return fmt.Sprintf("if c := meta.FindStatusCondition(o.%s.Conditions, %q); c != nil {\nreturn %s\n}\nreturn %s\n", status.name, found[2], value, none)
	}
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
			fmt.Fprintf(&statements, "if %s == nil {\nreturn %s\n}\n", value, none)
		}
		within = last.goType.fields
	}
	if last.goType.fields != nil || last.goType.list || last.goType.dictionary || last.goType.text == "runtime.RawExtension" {
		return ""
	}
	if last.pointer && last.goType.text != "intstr.IntOrString" {
		value = "*" + value
	}
	return statements.String() + format(last.goType, value)
}

// returned returns a value as it is in Go.
func returned(_ *goType, value string) string { return "return " + value + "\n" }

// label returns a value of a field selector.
func label(t *goType, value string) string {
	if slices.Contains([]string{"int32", "int64", "bool", "float64"}, t.text) {
		value = "fmt.Sprint(" + value + ")"
	} else if t.text == "intstr.IntOrString" {
		value += ".String()"
	}
	return returned(t, value)
}

// selector is a field selector, with the statements that return its value.
type selector struct{ Name, Value string }

// selectable are the field selectors of a kind.
func selectable(root *goStruct, fields []apiextensionsv1.SelectableField) (made []selector, findings []string) {
	for _, field := range fields {
		value := expression(root, field.JSONPath, `""`, label)
		if value == "" {
			findings = append(findings, "the field selector "+field.JSONPath+": write it by hand")
			continue
		}
		made = append(made, selector{strings.TrimPrefix(field.JSONPath, "."), value})
	}
	return made, findings
}

// scaleCode has the statements that return what /scale shows.
type scaleCode struct{ StatusReplicas, Selector string }

// scaled is what /scale reads and writes, or nil.
func scaled(root *goStruct, scale *apiextensionsv1.CustomResourceSubresourceScale) (made *scaleCode, findings []string) {
	if scale == nil {
		return nil, nil
	}
	whole := func(t *goType, value string) string {
		if t.text != "int32" {
			value = "int32(" + value + ")"
		}
		return returned(t, value)
	}
	spec, replicas := root.field("spec"), (*goField)(nil)
	if spec != nil && spec.goType.fields != nil {
		replicas = spec.goType.fields.field("replicas")
	}
	made = &scaleCode{StatusReplicas: expression(root, scale.StatusReplicasPath, "0", whole), Selector: `return ""` + "\n"}
	if scale.LabelSelectorPath != nil {
		made.Selector = expression(root, *scale.LabelSelectorPath, `""`, returned)
	}
	if scale.SpecReplicasPath != ".spec.replicas" || replicas == nil || replicas.goType.text != "int32" || made.StatusReplicas == "" || made.Selector == "" {
		return nil, []string{"the subresource scale: its replicas have to be an int32 at .spec.replicas, write it by hand"}
	}
	return made, nil
}
