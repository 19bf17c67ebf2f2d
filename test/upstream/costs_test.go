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
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"
)

// TestAllocations has work that takes at least so many bytes of memory.
func TestAllocations(t *testing.T) {
	const key, elements = 10_000, 1000
	huge, err := resource.ParseQuantity("1e1000000")
	if err != nil {
		t.Fatal(err)
	}
	yamlList := []byte(strings.Repeat("-\n", 10_000))
	validator, _, err := validation.NewSchemaValidator(&apiextensions.JSONSchemaProps{
		Type: "object", AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Allows: true, Schema: &apiextensions.JSONSchemaProps{
			Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &apiextensions.JSONSchemaProps{Type: "string"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	type work struct {
		least uint64
		do    func()
	}
	each(t, map[int]work{
		4: {50 * uint64(len(yamlList)), func() { _, _ = yaml.YAMLToJSON(yamlList) }},
		// It would take gigabytes with "1e-999999999", which is no longer.
		6: {100_000, func() { _, _ = resource.ParseQuantity("1e-1000000") }},
		8: {100_000, func() { huge.Cmp(resource.MustParse("1")) }},
		// The number does not fit into an int64.
		78: {100_000, func() { _, _ = resource.ParseQuantity("1000000000000000000e1000000") }},
		84: {key * elements, func() {
			validator.Validate(map[string]any{strings.Repeat("k", key): slices.Repeat([]any{"a"}, elements)})
		}},
	}, func(t *testing.T, w work) {
		if size := allocated(w.do); size < w.least {
			fixed(t, "this takes %d bytes, and not %d", size, w.least)
		}
	})
}

// TestSquares has requests that take far more than ten times the memory for ten times the size.
func TestSquares(t *testing.T) {
	pods := servePods(t)
	send(t, http.MethodPost, pods, "application/json", newPod("a"))
	each(t, map[int]func(t *testing.T, size int){
		1: func(t *testing.T, depth int) {
			patch := fmt.Sprintf(`{"metadata":{"labels":%s1%s}}`, strings.Repeat(`{"a":`, depth), strings.Repeat("}", depth))
			send(t, http.MethodPatch, pods+"/a", "application/merge-patch+json", patch)
		},
		5: func(t *testing.T, count int) {
			var owners strings.Builder
			for i := range count {
				fmt.Fprintf(&owners, `,{"apiVersion":"v1","kind":"Pod","name":"%d","uid":"a"}`, i)
			}
			pod := fmt.Sprintf(`{"apiVersion":"example.apiserver.k8s.io/v1","kind":"Pod","metadata":{"name":"b%d","ownerReferences":[%s]}}`, count, owners.String()[1:])
			send(t, http.MethodPost, pods, "application/json", pod)
		},
	}, func(t *testing.T, do func(*testing.T, int)) {
		small, large := allocated(func() { do(t, 200) }), allocated(func() { do(t, 2000) })
		if large < 30*small {
			fixed(t, "ten times the size takes %.1f times the memory", float64(large)/float64(small))
		}
	})
}

func TestExponentOfQuantityOverflows(t *testing.T) {
	quantity, err := resource.ParseQuantity("1e4294967295")
	if err != nil || quantity.String() != "100e-3" {
		fixed(t, "resource.ParseQuantity takes 1e4294967295 for %s (%v), and not for 1e-1", quantity.String(), err)
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

// TestLibraryHasNoInternalScale decodes a Scale as the handlers of requests do.
func TestLibraryHasNoInternalScale(t *testing.T) {
	scheme, codecs := newScheme()
	if err := autoscalingv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	internal := schema.GroupVersion{Group: autoscalingv1.GroupName, Version: runtime.APIVersionInternal}
	_, err := runtime.Decode(codecs.UniversalDecoder(internal), []byte(`{"apiVersion":"autoscaling/v1","kind":"Scale"}`))
	if !runtime.IsNotRegisteredError(err) {
		fixed(t, "a Scale is decoded without an internal version of it: %v", err)
	}
}
