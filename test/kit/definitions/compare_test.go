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
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// compareValues calls report with each difference of two values in JSON.
func compareValues(path string, defined, typed any, report func(path, verdict string)) {
	switch defined := defined.(type) {
	case map[string]any:
		if typed, ok := typed.(map[string]any); ok {
			compareFields(path, defined, typed, report)
			return
		}
	case []any:
		typed, ok := typed.([]any)
		if ok && len(typed) != len(defined) {
			report(path, "the lists have different lengths")
			return
		}
		if ok {
			for i := range defined {
				compareValues(path+"[]", defined[i], typed[i], report)
			}
			return
		}
	case json.Number:
		if typed, ok := typed.(json.Number); ok && sameNumber(defined, typed) {
			return
		}
	default:
		if defined == typed {
			return
		}
	}
	a, b := kindOf(defined), kindOf(typed)
	if a == b {
		report(path, "both have "+a+", but not the same")
		return
	}
	report(path, "defined has "+a+", typed "+b)
}

func compareFields(path string, defined, typed map[string]any, report func(path, verdict string)) {
	names := maps.Clone(defined)
	maps.Copy(names, typed)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		inDefined, isDefined := defined[name]
		inTyped, isTyped := typed[name]
		at := path + "." + name
		if isKey().MatchString(name) {
			at = path + "{}"
		}
		switch {
		case !isDefined:
			report(at, "defined lacks it, typed has "+kindOf(inTyped))
		case !isTyped:
			report(at, "defined has "+kindOf(inDefined)+", typed lacks it")
		default:
			compareValues(at, inDefined, inTyped, report)
		}
	}
}

// isKey matches the keys that objects have in maps.
func isKey() *regexp.Regexp { return regexp.MustCompile(`^key-\d+$`) }

func sameNumber(a, b json.Number) bool {
	one, ok := new(big.Rat).SetString(string(a))
	other, otherOK := new(big.Rat).SetString(string(b))
	return ok && otherOK && one.Cmp(other) == 0
}

func kindOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case map[string]any:
		if len(value) == 0 {
			return "an empty object"
		}
		return "an object"
	case []any:
		if len(value) == 0 {
			return "an empty list"
		}
		return "a list"
	case string:
		if value == "" {
			return "an empty string"
		}
		return "a string"
	case json.Number:
		return "a number"
	}
	return fmt.Sprint(value)
}

// compareSchemas adds what two schemas demand differently, but for descriptions and messages.
func compareSchemas(all differences, definition string, imported, exported *apiextensionsv1.JSONSchemaProps) {
	here, there := map[[2]string]string{}, map[[2]string]string{}
	flatten(here, "", imported)
	flatten(there, "", exported)
	keys := maps.Clone(here)
	maps.Copy(keys, there)
	for key := range keys {
		a, isImported := here[key]
		b, isExported := there[key]
		if !isImported {
			a = "nothing"
		}
		if !isExported {
			b = "nothing"
		}
		if a != b {
			all.add(difference{definition, key[0], "schema: " + key[1], "imported " + a + ", exported " + b}, "")
		}
	}
}

// flatten writes what a schema demands by path and keyword.
func flatten(into map[[2]string]string, path string, schema *apiextensionsv1.JSONSchemaProps) {
	plain := schema.DeepCopy()
	plain.Description, plain.Properties, plain.Items, plain.AdditionalProperties = "", nil, nil, nil
	slices.Sort(plain.Required)
	if path == "" {
		plain.Required = slices.DeleteFunc(plain.Required, func(name string) bool { return slices.Contains(ofKubernetes(), name) })
	}
	if plain.Type == "integer" {
		plain.Minimum, plain.ExclusiveMinimum = inclusive(plain.Minimum, plain.ExclusiveMinimum, 1), false
		plain.Maximum, plain.ExclusiveMaximum = inclusive(plain.Maximum, plain.ExclusiveMaximum, -1), false
	}
	for i, rule := range plain.XValidations {
		plain.XValidations[i] = apiextensionsv1.ValidationRule{Rule: strings.Join(strings.Fields(rule.Rule), " ")}
	}
	slices.SortFunc(plain.Enum, func(a, b apiextensionsv1.JSON) int { return strings.Compare(string(a.Raw), string(b.Raw)) })
	raw, err := json.Marshal(plain)
	keywords := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(raw, &keywords)
	}
	if err != nil {
		into[[2]string{path, "error"}] = err.Error()
		return
	}
	for keyword, value := range keywords {
		into[[2]string{path, keyword}] = string(value)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		flatten(into, path+"[]", schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		flatten(into, path+"{}", schema.AdditionalProperties.Schema)
	}
	for name, property := range schema.Properties {
		if path != "" || !slices.Contains(ofKubernetes(), name) {
			flatten(into, path+"."+name, &property)
		}
	}
}

// inclusive is a bound that the next integer is.
func inclusive(bound *float64, exclusive bool, next float64) *float64 {
	if bound == nil || !exclusive {
		return bound
	}
	moved := *bound + next
	return &moved
}

// ofKubernetes are the fields that all objects have.
func ofKubernetes() []string { return []string{"apiVersion", "kind", "metadata"} }
