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
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func groups() []string {
	var all []string
	for _, project := range framework.Projects() {
		all = append(all, project.Groups...)
	}
	return all
}

// kind is a definition with objects of it.
type kind struct {
	definition *apiextensionsv1.CustomResourceDefinition
	// served are the versions that are.
	served   []string
	examples []*unstructured.Unstructured
	// accepted are the examples that the server has accepted.
	accepted []*unstructured.Unstructured
}

// load reads the definitions and examples of all projects.
func load(t *testing.T) []*kind {
	t.Helper()
	var kinds []*kind
	for _, project := range framework.Projects() {
		loaded := loadDefinitions(t, project)
		for _, example := range slices.Concat(loadExamples(t, project.Directory(t)), loadExamples(t, "testdata")) {
			addExample(loaded, example)
		}
		kinds = append(kinds, loaded...)
	}
	return kinds
}

func loadDefinitions(t *testing.T, project framework.Project) []*kind {
	t.Helper()
	var kinds []*kind
	for _, definition := range project.Definitions(t) {
		loaded := &kind{definition: definition}
		for _, version := range definition.Spec.Versions {
			if version.Served {
				loaded.served = append(loaded.served, version.Name)
			}
		}
		kinds = append(kinds, loaded)
	}
	return kinds
}

// addExample gives an object to its kind, if that is served in the object's version. It
// gets a name of its own, since many examples share theirs, and loses its owners, which do
// not exist.
func addExample(kinds []*kind, example *unstructured.Unstructured) {
	gvk := example.GroupVersionKind()
	for _, kind := range kinds {
		spec := kind.definition.Spec
		if (schema.GroupKind{Group: spec.Group, Kind: spec.Names.Kind}) != gvk.GroupKind() || !slices.Contains(kind.served, gvk.Version) {
			continue
		}
		unstructured.RemoveNestedField(example.Object, "metadata", "generateName")
		example.SetOwnerReferences(nil)
		example.SetFinalizers(nil)
		example.SetNamespace("")
		example.SetName(fmt.Sprintf("example-%03d", len(kind.examples)))
		kind.examples = append(kind.examples, example)
	}
}

// loadExamples returns all objects in the manifests and in the documentation of a directory.
// Templates, parts of objects and blocks that are not YAML are skipped.
func loadExamples(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	var examples []*unstructured.Unstructured
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		extension := filepath.Ext(path)
		if err != nil || !slices.Contains([]string{".yaml", ".yml", ".md"}, extension) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		blocks := []string{string(content)}
		if extension == ".md" {
			blocks = fenced(string(content))
		}
		for _, block := range blocks {
			for _, document := range regexp.MustCompile(`(?m)^---.*$`).Split(block, -1) {
				object := map[string]any{}
				if yaml.Unmarshal([]byte(document), &object) != nil || object["kind"] == nil {
					continue
				}
				if _, found := object["metadata"].(map[string]any); found {
					examples = append(examples, &unstructured.Unstructured{Object: object})
				}
			}
		}
		return nil
	}))
	return examples
}

// fenced returns the blocks of code in Markdown, which may be indented.
func fenced(markdown string) []string {
	var blocks []string
	for _, match := range regexp.MustCompile("(?ms)^( *)```ya?ml[^\n]*\n(.*?\n) *```").FindAllStringSubmatch(markdown, -1) {
		blocks = append(blocks, regexp.MustCompile("(?m)^"+match[1]).ReplaceAllString(match[2], ""))
	}
	return blocks
}
