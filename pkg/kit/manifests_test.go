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
	"regexp"
	"strings"
	"testing"
)

// TestManifestsHaveTheNamesOfTheModule looks for what is left of the restaurant in the manifests,
// alerts and dashboards of another group: all names come from its own.
func TestManifestsHaveTheNamesOfTheModule(t *testing.T) {
	group := apiGroup{"library.example.com", "library"}
	d := &data{apiGroup: group, Server: group, Groups: []apiGroup{group}, Namespace: "books", HashHeader: "# Ours.\n"}
	restaurant := regexp.MustCompile(`(?i)restaurant|pizza|\btopping|pricing`)
	var alerts, dashboards int
	if err := (&writer{}).manifests(d, func(name string, text []byte) error {
		if restaurant.MatchString(name) {
			t.Errorf("%s is named after the restaurant", name)
		}
		// The runbooks are this repository's.
		for line := range strings.Lines(strings.ReplaceAll(string(text), library+"/docs/operations.md#restaurant", "")) {
			if restaurant.MatchString(line) {
				t.Errorf("%s: %s", name, line)
			}
			if strings.Contains(line, "- alert: Library") {
				alerts++
			}
			if strings.Contains(line, `job=\"library-apiserver\"`) {
				dashboards++
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if alerts == 0 || dashboards == 0 {
		t.Errorf("there are %d alerts and %d queries of dashboards", alerts, dashboards)
	}
}
