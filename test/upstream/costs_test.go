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

package upstream

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"
)

// TestTinyQuantityIsWrittenOut would take gigabytes with "1e-999999999", which is no
// longer than the number here.
func TestTinyQuantityIsWrittenOut(t *testing.T) {
	size := allocated(func() { _, _ = resource.ParseQuantity("1e-1000000") })
	if size < 100_000 {
		fixed(t, "resource.ParseQuantity reads 1e-1000000 in %d bytes", size)
	}
}

// TestLongQuantityIsWrittenOut has a number that does not fit into an int64.
func TestLongQuantityIsWrittenOut(t *testing.T) {
	size := allocated(func() { _, _ = resource.ParseQuantity("1000000000000000000e1000000") })
	if size < 100_000 {
		fixed(t, "resource.ParseQuantity reads 1000000000000000000e1000000 in %d bytes", size)
	}
}

func TestExponentOfQuantityOverflows(t *testing.T) {
	quantity, err := resource.ParseQuantity("1e4294967295")
	if err != nil || quantity.String() != "100e-3" {
		fixed(t, "resource.ParseQuantity takes 1e4294967295 for %s (%v), and not for 1e-1", quantity.String(), err)
	}
}

func TestHugeQuantityIsWrittenOutToCompare(t *testing.T) {
	huge, err := resource.ParseQuantity("1e1000000")
	if err != nil {
		fixed(t, "resource.ParseQuantity refuses 1e1000000: %v", err)
		return
	}
	size := allocated(func() { huge.Cmp(resource.MustParse("1")) })
	if size < 100_000 {
		fixed(t, "Quantity.Cmp compares 1e1000000 in %d bytes", size)
	}
}

func TestStrategicPatchPanics(t *testing.T) {
	defer func() {
		if cause := recover(); cause == nil {
			fixed(t, "strategicpatch.StrategicMergePatch does not panic when a merge key is a list")
		}
	}()
	list := []byte(`{"status":{"conditions":[{"type":["a"]}]}}`)
	_, _ = strategicpatch.StrategicMergePatch(list, list, examplev1.Pod{})
}

// patchCost is what a server allocates for a patch.
func patchCost(t *testing.T, pod, mediaType, patch string) uint64 {
	t.Helper()
	return allocated(func() { send(t, http.MethodPatch, pod, mediaType, patch) })
}

func TestDeepPatchCostsTheSquareOfItsDepth(t *testing.T) {
	pod := servePods(t)
	send(t, http.MethodPost, pod, "application/json", newPod("a"))
	nested := func(depth int) string {
		return fmt.Sprintf(`{"metadata":{"labels":%s1%s}}`, strings.Repeat(`{"a":`, depth), strings.Repeat("}", depth))
	}
	small := patchCost(t, pod+"/a", "application/merge-patch+json", nested(200))
	large := patchCost(t, pod+"/a", "application/merge-patch+json", nested(2000))

	if large < 30*small {
		fixed(t, "a patch of ten times the depth takes %.1f times the memory", float64(large)/float64(small))
	}
}

func TestOwnersAreComparedWithEachOther(t *testing.T) {
	pods := servePods(t)
	owned := func(name string, count int) string {
		var owners bytes.Buffer
		for i := range count {
			fmt.Fprintf(&owners, `,{"apiVersion":"v1","kind":"Pod","name":"%d","uid":"a"}`, i)
		}
		return fmt.Sprintf(`{"apiVersion":"example.apiserver.k8s.io/v1","kind":"Pod","metadata":{"name":%q,"ownerReferences":[%s]}}`, name, owners.String()[1:])
	}
	small := allocated(func() { send(t, http.MethodPost, pods, "application/json", owned("a", 100)) })
	large := allocated(func() { send(t, http.MethodPost, pods, "application/json", owned("b", 1000)) })

	if large < 30*small {
		fixed(t, "ten times as many owners take %.1f times the memory", float64(large)/float64(small))
	}
}

func TestYAMLTakesManyTimesItsSize(t *testing.T) {
	list := []byte(strings.Repeat("-\n", 10_000))
	size := allocated(func() { _, _ = yaml.YAMLToJSON(list) })
	if size < 50*uint64(len(list)) {
		fixed(t, "yaml.YAMLToJSON takes only %d times the size of its input", size/uint64(len(list)))
	}
}

// TestOwnedFieldsAreInsertedOneByOne looks at the source: the moves in memory, one for
// each field, can be seen in time only.
func TestOwnedFieldsAreInsertedOneByOne(t *testing.T) {
	text := source(t, (*fieldpath.PathElementSet).Insert, "element.go")
	if !strings.Contains(text, "s.members = slices.Insert(s.members, loc, pe)") {
		fixed(t, "a PathElementSet does not move its elements to insert one")
	}
	text = source(t, typed.TypedValue.ToFieldSet, "tofieldset.go")
	if !strings.Contains(text, "m.Iterate(func(key string, val value.Value) bool {") {
		fixed(t, "the fields that are inserted into a set of owned ones are sorted before")
	}
}

// TestPatchedListsAreSearchedOneByOne looks at the source, as the comparisons can be seen
// in time only.
func TestPatchedListsAreSearchedOneByOne(t *testing.T) {
	text := source(t, strategicpatch.StrategicMergePatch, "patch.go")
	if !strings.Contains(text, "for k, v := range m {") || !strings.Contains(text, "if ok && valueToMatch == value {") {
		fixed(t, "a strategic merge patch does not look for an element of a list among all others")
	}
}

func TestYAMLTakesQuotedKeyForMerge(t *testing.T) {
	written, err := yaml.Marshal(map[string]string{"<<": "a"})
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]string{}
	if err := yaml.Unmarshal(written, &read); err == nil {
		fixed(t, "the key << is written as %s, and read as it was", written)
	}
}

func TestPathOfEachElementIsMade(t *testing.T) {
	const key, elements = 10_000, 1000
	list := &apiextensions.JSONSchemaProps{Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string"}}}
	validator, _, err := validation.NewSchemaValidator(&apiextensions.JSONSchemaProps{
		Type: "object", AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: list},
	})
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{strings.Repeat("k", key): slices.Repeat([]any{"a"}, elements)}
	size := allocated(func() { validator.Validate(object) })
	if size < key*elements {
		fixed(t, "a valid list of %d elements below a key of %d bytes is validated in %d bytes", elements, key, size)
	}
}

// comparedError counts how often it is read.
type comparedError struct {
	text  string
	reads *int
}

func (e comparedError) Error() string {
	*e.reads++
	return e.text
}

func TestErrorsAreComparedWithEachOther(t *testing.T) {
	const errors = 100
	reads := 0
	var result validate.Result
	for i := range errors {
		result.AddErrors(comparedError{fmt.Sprint(i), &reads})
	}
	if reads < errors*errors/2 {
		fixed(t, "%d errors are added by %d comparisons", errors, reads/2)
	}
}
