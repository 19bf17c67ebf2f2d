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
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// selector is a field selector of an object o.
type selector struct {
	Name string
	// Pointers are the pointers on the path to the field. If one of them is nil, the value is empty.
	Pointers []string
	// Value is an expression of the value as a string.
	Value string
}

// selectable returns the field selectors of a kind.
func selectable(root *goStruct, fields []apiextensionsv1.SelectableField) (made []selector, findings []string) {
	for _, field := range fields {
		if s, found := follow(root, strings.TrimPrefix(field.JSONPath, ".")); found {
			made = append(made, s)
		} else {
			findings = append(findings, "the field selector "+field.JSONPath+": write it by hand")
		}
	}
	return made, findings
}

// follow returns the selector of the field at a JSON path. It returns false if no selector can have it.
func follow(root *goStruct, jsonPath string) (s selector, found bool) {
	s.Name = jsonPath
	within, value := root, "o"
	var last *goField
	for segment := range strings.SplitSeq(jsonPath, ".") {
		if within == nil {
			return s, false
		}
		if last = within.field(segment); last == nil {
			return s, false
		}
		value += "." + last.Name
		if last.Pointer {
			s.Pointers = append(s.Pointers, value)
		}
		within = last.Type.fields
	}
	if last.Pointer {
		value = "*" + value
	}
	switch last.Type.text {
	case "intstr.IntOrString":
		s.Value = strings.TrimPrefix(value, "*") + ".String()"
	case "string":
		s.Value = value
	case "int32", "int64", "bool", "float64":
		s.Value = "fmt.Sprint(" + value + ")"
	}
	return s, s.Value != ""
}
