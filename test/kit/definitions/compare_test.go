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
