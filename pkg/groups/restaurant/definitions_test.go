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

package restaurant_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/crd"
)

// TestDefinitions exports the restaurant's kinds, and compares the result with the definitions
// that were written by hand: testdata/differences.txt has all differences, each with its reason.
func TestDefinitions(t *testing.T) {
	crds, findings, err := crd.ForGroup(restaurant.Group(), crd.Options{Sources: os.DirFS("../../apis/restaurant"), Namespace: "restaurant-system"})
	require.NoError(t, err)
	var got []string
	for _, crd := range crds {
		byHand, err := os.ReadFile("../../../artifacts/crd/" + crd.Spec.Names.Plural + ".yaml")
		require.NoError(t, err)
		var want apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.UnmarshalStrict(byHand, &want))
		got = append(got, "definition of "+crd.Spec.Names.Plural)
		got = append(got, differences(flat(t, &want), flat(t, crd))...)
	}
	got = append(got, "not exported")
	got = append(got, findings...)

	text, err := os.ReadFile("testdata/differences.txt")
	require.NoError(t, err)
	var listed []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			listed = append(listed, line)
		}
	}
	require.Equal(t, strings.Join(listed, "\n"), strings.Join(got, "\n"))
}

// flat returns the values of a definition by their paths. The paths have the names of versions.
// Parts without an effect on validity, such as descriptions, are left out.
func flat(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) map[string]string {
	t.Helper()
	raw, err := json.Marshal(crd.Spec)
	require.NoError(t, err)
	var spec any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&spec))
	values := map[string]string{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			if len(value) == 0 {
				values[path] = "{}"
			}
			for key, element := range value {
				if key != "description" && key != "message" && key != "messageExpression" || strings.HasSuffix(path, ".properties") {
					walk(path+"."+key, element)
				}
			}
		case []any:
			for i, element := range value {
				key := fmt.Sprint(i)
				if object, ok := element.(map[string]any); ok && object["name"] != nil {
					key = fmt.Sprint(object["name"])
				}
				walk(path+"["+key+"]", element)
			}
		default:
			values[path] = fmt.Sprint(value)
		}
	}
	walk("", spec)
	return values
}

// differences are the lines that only one of two definitions has.
func differences(byHand, exported map[string]string) (lines []string) {
	for _, path := range slices.Sorted(maps.Keys(byHand)) {
		if value, found := exported[path]; !found || value != byHand[path] {
			lines = append(lines, "by hand  "+path+": "+byHand[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(exported)) {
		if value, found := byHand[path]; !found || value != exported[path] {
			lines = append(lines, "exported "+path+": "+exported[path])
		}
	}
	return lines
}
