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
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// normal is an answer without what differs each time.
func normal(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, field := range value {
			out[key] = normal(field)
		}
		if fields, ok := out["managedFields"].([]any); ok {
			// They are in the order of seconds.
			slices.SortFunc(fields, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time"} {
			if text, ok := out[key].(string); ok && text != "" {
				out[key] = "some"
			}
		}
		withoutAges(out)
		sortResources(out)
		sortCauses(out)
		return out
	case []any:
		out := make([]any, len(value))
		for i := range value {
			out[i] = normal(value[i])
		}
		return out
	}
	return value
}

// sortResources gives discovery an order.
func sortResources(list map[string]any) {
	if resources, ok := list["resources"].([]any); ok && list["kind"] == "APIResourceList" {
		slices.SortFunc(resources, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
	}
}

// sortCauses gives the causes of a refusal an order, which the library finds in that of a map.
// The message repeats them.
func sortCauses(status map[string]any) {
	causes, _, _ := unstructured.NestedSlice(status, "details", "causes")
	if status["kind"] != "Status" || len(causes) < 2 {
		return
	}
	slices.SortFunc(causes, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	status["details"].(map[string]any)["causes"] = causes
	status["message"], _, _ = strings.Cut(status["message"].(string), ": [")
}

func nameOf(resource any) string {
	name, _, _ := unstructured.NestedString(resource.(map[string]any), "name")
	return name
}

// withoutAges removes the cells of a table that change with time.
func withoutAges(table map[string]any) {
	columns, _ := table["columnDefinitions"].([]any)
	rows, _ := table["rows"].([]any)
	for i, column := range columns {
		if definition := column.(map[string]any); definition["type"] != "date" {
			continue
		}
		for _, row := range rows {
			row.(map[string]any)["cells"].([]any)[i] = "some"
		}
	}
}
