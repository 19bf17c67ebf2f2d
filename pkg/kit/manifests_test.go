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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/artifacts"
)

// TestManifestsHaveTheNamesOfTheModule looks for names of the restaurant in the manifests, alerts
// and dashboards of another group.
func TestManifestsHaveTheNamesOfTheModule(t *testing.T) {
	group := apiGroup{"library.example.com", "library", "Library"}
	d := &data{Group: group, Server: group, Groups: []apiGroup{group}, Namespace: "books", HashHeader: "# Ours.\n"}
	restaurant := regexp.MustCompile(`(?i)restaurant|pizza|\btopping|pricing`)
	var alerts, dashboards int
	w := &writer{}
	w.manifests(d, func(name string, text []byte) {
		assert.NotRegexp(t, restaurant, name)
		// The runbooks are this repository's.
		for line := range strings.Lines(strings.ReplaceAll(string(text), "https://"+library+"/blob/main/docs/operations/runbooks.md#", "")) {
			assert.NotRegexp(t, restaurant, line, name)
			if strings.Contains(line, "- alert: APIServer") {
				alerts++
			}
			if strings.Contains(line, `job=\"extension-apiserver\"`) {
				dashboards++
			}
		}
	})
	require.NoError(t, w.err)
	require.NotZero(t, alerts)
	require.NotZero(t, dashboards)
}

// TestTagOf checks that links lead to the runbooks of the module's release, if it has one.
func TestTagOf(t *testing.T) {
	for version, want := range map[string]string{
		"v0.37.0":                              "v0.37.0",
		"v0.37.0-rc.1":                         "v0.37.0-rc.1",
		"v0.37.1-0.20261127031600-e283b79a1b2": "main",
		"v0.0.0-20261127031600-e283b79a1b2c":   "main",
		"":                                     "main",
	} {
		assert.Equal(t, want, tagOf(version), version)
	}
}

// TestManifestsAreComplete checks that all files in a kustomization exist, though parts of the
// restaurant's are left out.
func TestManifestsAreComplete(t *testing.T) {
	group := apiGroup{"library.example.com", "library", "Library"}
	d := &data{Group: group, Server: group, Groups: []apiGroup{group}, Namespace: "books"}
	written := map[string]string{}
	w := &writer{}
	w.manifests(d, func(name string, text []byte) {
		for dir := name; dir != "."; dir = path.Dir(dir) {
			written[dir] = ""
		}
		written[name] = string(text)
	})
	require.NoError(t, w.err)
	for name, text := range written {
		if path.Base(name) != "kustomization.yaml" {
			continue
		}
		var kustomization struct{ Resources, Components []string }
		require.NoError(t, yaml.Unmarshal([]byte(text), &kustomization))
		for _, named := range append(kustomization.Resources, kustomization.Components...) {
			assert.Contains(t, written, path.Join(path.Dir(name), named), name)
		}
	}
	for _, name := range artifacts.Restaurant() {
		_, err := fs.Stat(artifacts.Deploy, path.Join("deploy", name))
		require.NoError(t, err)
		assert.NotContains(t, written, "artifacts/deploy/"+name)
	}
}
