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
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/artifacts"
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
		for line := range strings.Lines(strings.ReplaceAll(string(text), library+"/docs/operations/runbooks.md#restaurant", "")) {
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

// TestManifestsAreComplete has everything that a kustomization of the manifests names, though parts
// of the restaurant's are left out.
func TestManifestsAreComplete(t *testing.T) {
	group := apiGroup{"library.example.com", "library"}
	d := &data{apiGroup: group, Server: group, Groups: []apiGroup{group}, Namespace: "books"}
	written := map[string]string{}
	if err := (&writer{}).manifests(d, func(name string, text []byte) error {
		for dir := name; dir != "."; dir = path.Dir(dir) {
			written[dir] = ""
		}
		written[name] = string(text)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, text := range written {
		if path.Base(name) != "kustomization.yaml" {
			continue
		}
		var kustomization struct{ Resources, Components []string }
		if err := yaml.Unmarshal([]byte(text), &kustomization); err != nil {
			t.Fatal(err)
		}
		for _, named := range append(kustomization.Resources, kustomization.Components...) {
			if _, found := written[path.Join(path.Dir(name), named)]; !found {
				t.Errorf("%s names %s, which is not written", name, named)
			}
		}
	}
	for _, name := range artifacts.Restaurant() {
		if _, err := fs.Stat(artifacts.Deploy, path.Join("deploy", name)); err != nil {
			t.Error(err)
		}
		if _, found := written["artifacts/deploy/"+name]; found {
			t.Errorf("%s is written", name)
		}
	}
}
