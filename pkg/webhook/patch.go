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

package webhook

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// operation is one of a JSON patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch returns the JSON patch that applies the difference between before and after to
// sent, or nil. Fields that have got a default may be missing in sent, or be null. A list
// is replaced as a whole.
func patch(sent, before, after map[string]any) ([]byte, error) {
	operations := diff("", sent, before, after)
	if len(operations) == 0 {
		return nil, nil
	}
	return json.Marshal(operations)
}

func diff(path string, sent, before, after map[string]any) []operation {
	var operations []operation
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if equality.Semantic.DeepEqual(before[key], after[key]) {
			continue
		}
		sentInner, isSent := sent[key].(map[string]any)
		beforeInner, wasObject := before[key].(map[string]any)
		afterInner, isObject := after[key].(map[string]any)
		if isSent && wasObject && isObject {
			operations = append(operations, diff(join(path, key), sentInner, beforeInner, afterInner)...)
		} else {
			operations = append(operations, operation{Op: "add", Path: join(path, key), Value: after[key]})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		_, remains := after[key]
		if _, isSent := sent[key]; isSent && !remains {
			operations = append(operations, operation{Op: "remove", Path: join(path, key)})
		}
	}
	return operations
}

// join appends a key to a JSON pointer, RFC 6901.
func join(path, key string) string {
	return path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
