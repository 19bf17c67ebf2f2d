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

package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func TestBadPatches(t *testing.T) {
	const (
		mergePatch, strategicPatch, jsonPatch = types.MergePatchType, types.StrategicMergePatchType, types.JSONPatchType

		notApplied = "the server rejected our request due to an error in our request"
	)
	requests := map[string]badRequest{
		"type/JSON":           patch("application/json", `{}`).gets(415),
		"type/none":           patch("", `{}`).gets(415),
		"type/garbage":        patch(";;;", `{}`).gets(415),
		"type/CBOR":           patch("application/apply-patch+cbor", "\xa0").gets(415),
		"of all":              patchAt("{pizzas}", mergePatch, `{}`).gets(405),
		"not there":           patchAt("{pizzas}/new", mergePatch, `{}`).gets(404),
		"not there, a status": applyAt("{pizzas}/new/status?fieldManager=e2e", `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"new"}}`).gets(404),
		"no name's form":      patchAt("{pizzas}/New", mergePatch, `{}`).gets(404),
		"force":               patchAt("{pizza}?force=true", mergePatch, `{}`).gets(422, "force: Forbidden: may not be specified for non-apply patch"),
		"a long manager":      patchAt("{pizza}?fieldManager="+strings.Repeat("a", 129), mergePatch, `{}`).gets(422, "fieldManager: Too long: may not be more than 128 bytes"),
		"a control character": patchAt("{pizza}?fieldManager=a%00b", mergePatch, `{}`).gets(422, `fieldManager: Invalid value: "a\x00b": invalid character U+0000 (at position 1)`),

		"merge/an unknown field": patchAt("{pizza}?fieldValidation=Strict", mergePatch, `{"spec":{"size":1}}`).gets(422, "patch: Invalid value: …"),
		"merge/null":             patch(mergePatch, `null`).gets(400),
		"merge/a number":         patch(mergePatch, `1`).gets(400),
		"merge/a type":           patch(mergePatch, `{"spec":{"replicas":"many"}}`).gets(422, "patch: Invalid value: …"),
		"merge/a spec":           patch(mergePatch, `{"spec":1}`).gets(422, "patch: Invalid value: …"),
		"merge/no toppings":      patch(mergePatch, `{"spec":{"toppings":null,"replicas":-1}}`).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"merge/no metadata":      patch(mergePatch, `{"metadata":null}`).gets(400),
		"merge/a name":           patch(mergePatch, `{"metadata":{"name":"other"}}`).gets(400),
		"merge/a namespace":      patch(mergePatch, `{"metadata":{"namespace":"default"}}`).gets(400),
		"merge/a uid":            patch(mergePatch, `{"metadata":{"uid":"other"}}`).gets(422, `metadata.uid: Invalid value: "other": field is immutable`),
		"merge/a kind":           patch(mergePatch, `{"kind":"Topping"}`).gets(422, "patch: Invalid value: …"),
		"merge/an apiVersion":    patch(mergePatch, `{"apiVersion":"v1"}`).gets(422, "patch: Invalid value: …"),
		"merge/finalizers":       patch(mergePatch, `{"metadata":{"finalizers":["a b"]}}`).gets(422, `metadata.finalizers: Invalid value: "a b": …`),
		"merge/a scale's type":   patchAt("{pizza}/scale", mergePatch, `{"spec":{"replicas":"many"}}`).gets(422, "patch: Invalid value: …"),

		"strategic/an unknown field":                        patchAt("{pizza}?fieldValidation=Strict", strategicPatch, `{"spec":{"size":1}}`).gets(422, "patch: Invalid value: …"),
		"strategic/a number":                                patch(strategicPatch, `1`).gets(400),
		"strategic/a type":                                  patch(strategicPatch, `{"spec":{"replicas":"many"}}`).gets(422, "patch: Invalid value: …"),
		"strategic/a resourceVersion":                       patch(strategicPatch, `{"metadata":{"resourceVersion":"1"}}`).gets(409),
		"strategic/$patch":                                  patch(strategicPatch, `{"$patch":"explode"}`).gets(400).saying("the patch can't be applied: unknown patch type: explode in map: map[$patch:explode]"),
		"strategic/$patch of a spec":                        patch(strategicPatch, `{"spec":{"$patch":"explode"}}`).gets(400).saying("the patch can't be applied: unknown patch type: explode in map: map[$patch:explode]"),
		"strategic/$patch with a number":                    patch(strategicPatch, `{"$patch":1}`).gets(400),
		"strategic/$patch: replace":                         patch(strategicPatch, `{"$patch":"replace"}`).gets(400),
		"strategic/$patch: delete":                          patch(strategicPatch, `{"$patch":"delete"}`).gets(400),
		"strategic/$patch of a scale":                       patchAt("{pizza}/scale", strategicPatch, `{"spec":{"$patch":"explode"}}`).gets(400).saying("the patch can't be applied: unknown patch type: explode in map: map[$patch:explode]"),
		"strategic/$retainKeys with a word":                 patch(strategicPatch, `{"spec":{"$retainKeys":"replicas"}}`).gets(400),
		"strategic/$retainKeys, but sent":                   patch(strategicPatch, `{"spec":{"$retainKeys":["replicas"],"toppings":[{"name":"a"}]}}`).gets(400),
		"strategic/$retainKeys without":                     patch(strategicPatch, `{"spec":{"$retainKeys":[1]},"metadata":{"finalizers":["a b"]}}`).gets(422, `metadata.finalizers: Invalid value: "a b": …`),
		"strategic/$deleteFromPrimitiveList without a list": patch(strategicPatch, `{"metadata":{"$deleteFromPrimitiveList":["a"]}}`).gets(400),
		"strategic/$setElementOrder with a word":            patch(strategicPatch, `{"spec":{"$setElementOrder/toppings":"a"}}`).gets(400),
		"strategic/$setElementOrder, another element":       patch(strategicPatch, `{"spec":{"$setElementOrder/toppings":[{"name":"a"}],"toppings":[{"name":"b"}]}}`).gets(400).except("v1alpha1"),
		"strategic/$setElementOrder, another finalizer":     patch(strategicPatch, `{"metadata":{"$setElementOrder/finalizers":["example.com/a"],"finalizers":["example.com/b"]}}`).gets(400),
		"strategic/$setElementOrder without a list":         patch(strategicPatch, `{"spec":{"$setElementOrder":["a"]}}`).gets(400),
		"strategic/a map for a list":                        patch(strategicPatch, `{"spec":{"toppings":{}}}`).gets(422, "patch: Invalid value: …").except("v1alpha1"),
		"strategic/a list for a map":                        patch(strategicPatch, `{"metadata":{"labels":["a"]}}`).gets(422, "patch: Invalid value: …"),
		"strategic/no key":                                  patch(strategicPatch, `{"spec":{"toppings":[{"quantity":2}]}}`).gets(400).except("v1alpha1").saying("the patch can't be applied: map: map[quantity:2] does not contain declared merge key: name"),
		"strategic/words for elements":                      patch(strategicPatch, `{"spec":{"toppings":["tomato"]}}`).gets(400).except("v1alpha1"),
		"strategic/null for an element":                     patch(strategicPatch, `{"spec":{"toppings":[null]}}`).gets(400).except("v1alpha1"),
		"strategic/lists for elements":                      patch(strategicPatch, `{"spec":{"toppings":[[]]}}`).gets(400).except("v1alpha1"),
		"strategic/$patch of an element":                    patch(strategicPatch, `{"spec":{"toppings":[{"name":"tomato","$patch":"explode"}]}}`).gets(400).except("v1alpha1"),
		"strategic/$patch of no element":                    patch(strategicPatch, `{"spec":{"toppings":[{"$patch":"delete"}]}}`).gets(400).except("v1alpha1"),
		"strategic/a list for a key":                        patch(strategicPatch, `{"spec":{"toppings":[{"name":[]}]}}`).gets(400).except("v1alpha1").saying("the patch can't be applied: runtime error: …"),
		"strategic/an object for a key":                     patch(strategicPatch, `{"spec":{"toppings":[{"name":{}}]}}`).gets(400).except("v1alpha1").saying("the patch can't be applied: runtime error: …"),
		"strategic/a list for a key twice":                  patch(strategicPatch, `{"spec":{"$setElementOrder/toppings":[{"name":[]}],"toppings":[{"name":[]}]}}`).gets(400).except("v1alpha1"),
		"strategic/a number for a key":                      patch(strategicPatch, `{"spec":{"toppings":[{"name":1}]}}`).gets(422, "patch: Invalid value: …").except("v1alpha1"),
		"strategic/an owner without a uid":                  patch(strategicPatch, `{"metadata":{"ownerReferences":[{"name":"a"}]}}`).gets(422, "metadata.ownerReferences[0].apiVersion: Required value: must not be empty", "metadata.ownerReferences[0].kind: Required value: must not be empty", "metadata.ownerReferences[0].uid: Required value: must not be empty"),
		"strategic/a list for a uid":                        patch(strategicPatch, `{"metadata":{"ownerReferences":[{"uid":[]}]}}`).gets(422, "patch: Invalid value: …"),
		"strategic/lists for types":                         patchAt("{pizza}/status", strategicPatch, `{"status":{"conditions":[{"type":[]},{"type":[]}]}}`).gets(422, "patch: Invalid value: …"),

		"JSON/an unknown field":    patchAt("{pizza}?fieldValidation=Strict", jsonPatch, `[{"op":"add","path":"/spec/size","value":1}]`).gets(422, "patch: Invalid value: …"),
		"JSON/a high index":        patch(jsonPatch, `[{"op":"add","path":"/spec/toppings/99999999999","value":1}]`).gets(422).saying(notApplied),
		"JSON/a low index":         patch(jsonPatch, `[{"op":"add","path":"/spec/toppings/-99","value":1}]`).gets(422).saying(notApplied),
		"JSON/a word for an index": patch(jsonPatch, `[{"op":"add","path":"/spec/toppings/first","value":1}]`).gets(422).saying(notApplied),
		"JSON/behind the end":      patch(jsonPatch, `[{"op":"remove","path":"/spec/toppings/-"}]`).gets(422).saying(notApplied),
		"JSON/10 001 operations":   patch(jsonPatch, listOf(10_001, `{"op":"%d"}`)).gets(413).saying("Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"),
		"JSON/1 000 insertions":    patch(jsonPatch, `[{"op":"add","path":"/spec/toppings","value":[]}`+strings.Repeat(`,{"op":"add","path":"/spec/toppings/0","value":1}`, 1000)+`]`).gets(422, "patch: Invalid value: …"),
		"JSON/100 copies": patch(jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"a":"`+strings.Repeat("x", 200_000)+`"}},`+
			listOf(100, `{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/a%d"}`)[1:]).gets(422).saying(notApplied),
	}
	for name, body := range noJSON {
		for _, kind := range []types.PatchType{mergePatch, strategicPatch, jsonPatch} {
			if kind == jsonPatch && name == "a list" { // An empty one is a valid patch.
				continue
			}
			requests[fmt.Sprintf("%s/%s", kind, name)] = patch(kind, body).gets(400)
		}
	}
	requireRefused(t, requests)
}

func TestBadApplies(t *testing.T) {
	requests := map[string]badRequest{
		"no manager":   applyAt("{pizza}", object("margherita", "", "")).gets(422, "fieldManager: Required value: is required for apply patch"),
		"long manager": applyAt("{pizza}?fieldManager="+strings.Repeat("a", 129), object("margherita", "", "")).gets(422, "fieldManager: Too long: may not be more than 128 bytes"),
		"a conflict":   applyAt("{pizza}?fieldManager=e2e", object("margherita", "", `"replicas":7`)).gets(409, `.spec.replicas: conflict with "…`),

		"an unknown field":             apply(`"spec":{"size":1}`).gets(400).saying("the patch can't be applied: failed to create typed patch object (/margherita; {version}, Kind=Pizza): .spec.size: field not declared in schema"),
		"an unknown field, but ignore": applyAt("{pizza}?fieldManager=e2e&fieldValidation=Ignore", object("margherita", "", `"size":1`)).gets(400).saying("the patch can't be applied: …"),
		"a key twice":                  apply(`"spec":{"toppings":[{"name":"a"},{"name":"a"}]}`).except("v1alpha1").gets(400).saying("the patch can't be applied: …"),
		"no key":                       apply(`"spec":{"toppings":[{"quantity":1}]}`).except("v1alpha1").gets(422, "spec.toppings[2].name: Required value"),
		"a list for a key":             apply(`"spec":{"toppings":[{"name":[]}]}`).except("v1alpha1").gets(400).saying("the patch can't be applied: …"),
		"a type":                       apply(`"spec":{"replicas":"many"}`).gets(400).saying("the patch can't be applied: …"),
		"a fraction":                   apply(`"spec":{"replicas":1.5}`).gets(400).saying("the patch can't be applied: …"),
		"above int32":                  apply(`"spec":{"replicas":2147483648}`).gets(422, "spec.replicas: Invalid value: …"),
		"a map for a list":             apply(`"spec":{"toppings":{}}`).gets(400).saying("the patch can't be applied: …"),
		"a word for a map":             apply(`"spec":"large"`).gets(400).saying("the patch can't be applied: …"),
		"a status's key twice":         applyAt("{pizza}/status?fieldManager=e2e", `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"margherita"},"status":{"conditions":[{"type":"A"},{"type":"A"}]}}`).gets(400).saying("the patch can't be applied: …"),
		"half a condition":             applyAt("{pizza}/status?fieldManager=e2e", `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"margherita"},"status":{"conditions":[{"status":"True"}]}}`).gets(422, "status.conditions[0].type: Required value: is required", "status.conditions[0].lastTransitionTime: Required value", "status.conditions[0].reason: Required value"),

		"a new one without toppings": applyAt("{pizzas}/new?fieldManager=e2e", object("new", "", `"replicas":-1`)).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"a new one's name":           applyAt("{pizzas}/New?fieldManager=e2e", object("New", "", `"toppings":{toppings}`)).gets(422, `metadata.name: Invalid value: "New": …`),
		"a new one with a version":   applyAt("{pizzas}/new?fieldManager=e2e", metadata(`"resourceVersion":"1"`)).gets(422, `metadata.resourceVersion: Invalid value: "1": must not be set on objects to be created`),
		"a new one with a uid":       applyAt("{pizzas}/new?fieldManager=e2e", metadata(`"uid":"a"`)).gets(409),
		"an old version":             applyAt("{pizza}?fieldManager=e2e", changed(`"resourceVersion":"1"`)).gets(409),
		"another uid":                applyAt("{pizza}?fieldManager=e2e", changed(`"uid":"a"`)).gets(422, `metadata.uid: Invalid value: "a": field is immutable`),
		"another name":               applyAt("{pizza}?fieldManager=e2e", metadata("")).gets(400).saying("the name of the object (new) does not match the name on the URL (margherita)"),
		"another namespace":          applyAt("{pizza}?fieldManager=e2e", changed(`"namespace":"default"`)).gets(400),
		"managedFields":              applyAt("{pizza}?fieldManager=e2e", changed(`"managedFields":[{"manager":"a"}]`)).gets(400).saying("metadata.managedFields must be nil"),
		"managedFields of a word":    applyAt("{pizza}?fieldManager=e2e", changed(`"managedFields":"a"`)).gets(400).saying("the patch can't be applied: …"),
		"a list for metadata":        applyAt("{pizza}?fieldManager=e2e", `{"apiVersion":"{version}","kind":"Pizza","metadata":[]}`).gets(400).saying("the patch can't be applied: …"),
		"a number for a name":        applyAt("{pizza}?fieldManager=e2e", `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":1}}`).gets(400).saying("the patch can't be applied: …"),
		"a scale for a pizza":        applyAt("{pizza}?fieldManager=e2e", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"}}`).gets(400),
		"a pizza for a scale":        applyAt("{pizza}/scale?fieldManager=e2e", changed("")).gets(400).saying("invalid object type: {version}, Kind=Pizza"),
	}
	requireRefused(t, requests)
}

// laughs is a YAML document that stands for 9^n words.
func laughs(n int) string {
	document := "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n"
	for i := 1; i < n; i++ {
		document += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 8), i-1)
	}
	return document
}

// Fields that nobody knows are refused, warned of or ignored, as the client asks.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	const duplicate = `"replicas":1,"replicas":2`
	for name, test := range map[string]struct {
		request  badRequest
		warnings []string
		message  string
	}{
		"create":               {create(pizza(`"size":"large"`)), []string{`unknown field "spec.size"`}, `Pizza in version "{v}" cannot be handled as a Pizza: strict decoding error: unknown field "spec.size"`},
		"create, of an object": {create(strings.Replace(pizza(""), `"spec"`, `"size":1,"spec"`, 1)), []string{`unknown field "size"`}, `Pizza in version "{v}" cannot be handled as a Pizza: strict decoding error: unknown field "size"`},
		"create, twice":        {create(pizza(duplicate)), []string{`duplicate field "spec.replicas"`}, `Pizza in version "{v}" cannot be handled as a Pizza: strict decoding error: duplicate field "spec.replicas"`},
		"create, two":          {create(pizza(`"size":1,` + duplicate)), []string{`unknown field "spec.size"`, `duplicate field "spec.replicas"`}, `Pizza in version "{v}" cannot be handled as a Pizza: strict decoding error: unknown field "spec.size", duplicate field "spec.replicas"`},
		"create from YAML":     {create("apiVersion: {version}\nkind: Pizza\nkind: Pizza\nmetadata: {name: new}\nspec: {toppings: {toppings}}\n").as("application/yaml"), []string{"line 3: key \"kind\" already set in map"}, "…"},
		"merge patch":          {patch(types.MergePatchType, `{"spec":{"size":1}}`), []string{`unknown field "spec.size"`}, "…"},
		"strategic patch":      {patch(types.StrategicMergePatchType, `{"spec":{"size":1}}`), []string{`unknown field "spec.size"`}, "…"},
		"JSON patch":           {patch(types.JSONPatchType, `[{"op":"add","path":"/spec/size","value":1}]`), []string{`unknown field "spec.size"`}, "…"},
		"patch of a status":    {patchAt("{pizza}/status", types.MergePatchType, `{"status":{"size":1}}`), []string{`unknown field "status.size"`}, "…"},
		"patch of a scale":     {patchAt("{pizza}/scale", types.MergePatchType, `{"spec":{"size":1}}`), []string{`unknown field "spec.size"`}, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, version := range framework.Versions() {
				target := newTarget(t, doors()[0], version)
				for validation, want := range map[string][]string{"Ignore": nil, "Warn": test.warnings, "": test.warnings} {
					request := test.request
					request.path += "?dryRun=All&fieldValidation=" + validation
					answer := target.send(t, request)
					require.Less(t, answer.code, 300, answer.body)
					var warnings []string
					for _, warning := range answer.header.Values("Warning") {
						if !strings.Contains(warning, "is deprecated") {
							warnings = append(warnings, warning)
						}
					}
					require.Len(t, warnings, len(want), "%s: %q", validation, warnings)
					for i, warning := range want {
						require.Contains(t, strings.ReplaceAll(warnings[i], `\"`, `"`), strings.ReplaceAll(warning, "\n", " "), validation)
					}
				}
				strict := test.request
				strict.path += "?dryRun=All&fieldValidation=Strict"
				if strict = strict.gets(400); test.message == "…" && strings.HasSuffix(name, "patch") || strings.HasPrefix(name, "patch") {
					strict = strict.gets(422, "patch: Invalid value: …")
				}
				target.refuses(t, strict.saying(test.message))
			}
		})
	}
}
