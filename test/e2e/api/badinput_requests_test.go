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
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// Package conformance sends what is wrong with any request. Here is what it does not hold against a
// server, since the library has that fault, and what is wrong with pizzas only.

const protobuf = "application/vnd.kubernetes.protobuf"

func TestBadBodies(t *testing.T) {
	typed := func(apiVersion, kind string) string {
		return `{"apiVersion":` + apiVersion + `,"kind":` + kind + `,"metadata":{"name":"new"},"spec":{"toppings":{toppings}}}`
	}
	const version = "must be a resourceVersion that this server has returned"
	scale := func(apiVersion, metadata, replicas string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"Scale","metadata":{` + metadata + `},"spec":{"replicas":` + replicas + `}}`
	}
	const owner = `{"apiVersion":"v1","kind":"Namespace","name":"a","uid":"a","controller":true}`
	requests := map[string]badRequest{
		"another kind":         create(typed(`"{version}"`, `"Topping"`)).gets(400).saying(`Topping in version "{v}" cannot be handled as a Pizza: converting ({v}.Topping) to (restaurant.Pizza): unknown conversion`),
		"an unknown kind":      create(typed(`"{version}"`, `"Calzone"`)).gets(400).saying(`Calzone in version "{v}" cannot be handled as a Pizza: no kind "Calzone" is registered for version "{version}" in scheme …`),
		"another group":        create(typed(`"apps/v1"`, `"Pizza"`)).gets(400).saying(`Pizza in version "v1" cannot be handled as a Pizza: no kind "Pizza" is registered for version "apps/v1" in scheme …`),
		"the internal version": create(typed(`"{group}/__internal"`, `"Pizza"`)).gets(400).saying("the API version in the data ({group}/__internal) does not match the expected API version ({version})"),
		"too many slashes":     create(typed(`"a/b/c"`, `"Pizza"`)).gets(400).saying("the object provided is unrecognized (must be of type Pizza): unexpected GroupVersion string: a/b/c …"),
		"another version":      create(`{"apiVersion":"{group}/v1alpha1","kind":"Pizza","metadata":{"name":"new"},"spec":{"toppings":["tomato"]}}`).except("v1alpha1").gets(400).saying("the API version in the data ({group}/v1alpha1) does not match the expected API version ({version})"),
		"a scale for a pizza":  replace(scale("autoscaling/v1", `"name":"margherita"`, "1")).gets(400),
		"a pizza for a scale":  replaceAt("{pizza}/scale", changed("")).gets(400),
		"an old scale":         replaceAt("{pizza}/scale", scale("extensions/v1beta1", `"name":"margherita"`, "1")).gets(400),
		"an internal scale":    replaceAt("{pizza}/scale", scale("autoscaling/__internal", `"name":"margherita"`, "1")).gets(400).saying("the API version in the data (autoscaling/__internal) does not match the expected API version (autoscaling/v1)"),
		"a pizza for options":  remove("{pizza}", pizza("")).gets(400),
		"a spec":               create(`{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"new"},"spec":"large"}`).gets(400).saying(`Pizza in version "{v}" cannot be handled as a Pizza: …`),
		"replicas: 1.5":        create(pizza(`"replicas":1.5`)).gets(400).saying(`Pizza in version "{v}" cannot be handled as a Pizza: …`),
		"replicas: 2^64":       create(pizza(`"replicas":18446744073709551616`)).gets(400).saying(`Pizza in version "{v}" cannot be handled as a Pizza: …`),

		"no namespace":              createAt("{root}/pizzas", pizza("")).gets(405),
		"another namespace":         create(metadata(`"namespace":"default"`)).gets(400).saying("the namespace of the provided object does not match the namespace sent on the request"),
		"update/no name":            replace(`{"apiVersion":"{version}","kind":"Pizza","spec":{"toppings":{toppings}}}`).gets(400).saying("the name of the object (margherita based on URL) was undeterminable: name must be provided"),
		"update/no resourceVersion": replace(changed("")).gets(422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
		"scale/another name":        replaceAt("{pizza}/scale", scale("autoscaling/v1", `"name":"other"`, "1")).gets(400),
		"scale/another namespace":   replaceAt("{pizza}/scale", scale("autoscaling/v1", `"name":"margherita","namespace":"default"`, "1")).gets(400).saying("the namespace of the provided object does not match the namespace sent on the request"),
		"1000 owners":               create(metadata(`"ownerReferences":[` + strings.Repeat(owner+",", 999) + owner + `]`)).gets(400).saying("Pizza in version …"),
	}
	for name, body := range map[string]string{
		"another kind": envelope("Topping", ""), "a wire type": envelope("Pizza", "\x0f"), "a field's type": envelope("Pizza", "\x08\x01"), "an inner length": envelope("Pizza", "\x12\xff\xff\xff\x7f"),
	} {
		requests["protobuf/create/"+name] = create(body).as(protobuf).gets(400)
		requests["protobuf/update/"+name] = replace(body).as(protobuf).gets(400)
	}
	requests["protobuf/an empty object"] = create(envelope("Pizza", "")).as(protobuf).except("v1alpha1", "v1beta1").
		gets(422, "metadata.name: Required value: name or generateName is required")
	// It can't be told what it costs to decode.
	requests["YAML/UTF-16"] = createAt("{all toppings}", "\xff\xfe{\x00}\x00").as("application/yaml").gets(400).saying("YAML must be in UTF-8")
	requests["YAML/applied UTF-16"] = applyAt("{topping}?fieldManager=e2e", "\xfe\xff\x00{\x00}").gets(400).saying("YAML must be in UTF-8")
	for _, value := range []string{"x", "-1", "18446744073709551616", " "} {
		cause := fmt.Sprintf("metadata.resourceVersion: Invalid value: %q: %s", value, version)
		metadata := `"name":"margherita","resourceVersion":"` + value + `"`
		requests["resourceVersion/update/"+value] = replace(object("margherita", `"resourceVersion":"`+value+`"`, `"toppings":{toppings}`)).gets(422, cause)
		requests["resourceVersion/scale/"+value] = replaceAt("{pizza}/scale", scale("autoscaling/v1", metadata, "1")).gets(422, cause)
		for _, subresource := range []string{"", "/status", "/scale"} {
			requests["resourceVersion/patch"+subresource+"/"+value] = patchAt("{pizza}"+subresource, types.StrategicMergePatchType, `{"metadata":{`+metadata+`}}`).gets(422, cause)
		}
		requests["resourceVersion/apply/"+value] = applyAt("{pizza}?fieldManager=e2e&force=true", `{"apiVersion":"{version}","kind":"Pizza","metadata":{`+metadata+`}}`).gets(422, cause)
	}
	requireRefused(t, requests)
}

// Which values are valid is tested in pkg/apis/restaurant/validation. Here is one for each way to a field.
func TestBadSpecs(t *testing.T) {
	const (
		few    = "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
		number = "a number has more than 256 characters…"
	)
	scale := func(replicas string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replicas":` + replicas + `}}`
	}
	status := func(status string) badRequest {
		return patchAt("{pizza}/status", types.MergePatchType, `{"status":{`+status+`}}`)
	}
	requests := map[string]badRequest{
		// No toppings are not a mistake: they are filled in.
		"no toppings":      create(toppings(`[],"replicas":-1`)).gets(422, few),
		"null toppings":    patch(types.MergePatchType, `{"spec":{"toppings":null,"replicas":-1}}`).gets(422, few),
		"replicas":         create(pizza(`"replicas":1001`)).gets(422, "spec.replicas: Invalid value: 1001: must be less than or equal to 1000"),
		"applied":          apply(`"spec":{"replicas":-1}`).gets(422, few),
		"scale/-1":         replaceAt("{pizza}/scale", scale("-1")).gets(422, few),
		"scale/2^31":       replaceAt("{pizza}/scale", scale("2147483648")).gets(400),
		"scale/patched":    patchAt("{pizza}/scale", types.MergePatchType, `{"spec":{"replicas":-1}}`).gets(422, few),
		"scale/applied":    applyAt("{pizza}/scale?fieldManager=e2e&force=true", scale("-1")).gets(422, few),
		"scale/a field":    applyAt("{pizza}/scale?fieldManager=e2e&force=true", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replica":1}}`).gets(400).saying("the patch can't be applied: …"),
		"scale/topping":    get("{topping}/scale").gets(404),
		"status/cost":      status(`"cost":"-1"`).gets(422, `status.cost: Invalid value: "-1": must be greater than or equal to 0`),
		"status/type":      status(`"conditions":[{"type":"Ready","lastTransitionTime":"yesterday"}]`).gets(422, `patch: Invalid value: …`),
		"status/create":    createAt("{pizza}/status", pizza("")).gets(405),
		"status/delete":    remove("{pizza}/status", "").gets(405),
		"status/topping":   get("{topping}/status").gets(404),
		"status/condition": status(`"conditions":[{"type":"a b","status":"Maybe"}]`).gets(422, `status.conditions[0].type: Invalid value: "a b": …`, `status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"`, "status.conditions[0].lastTransitionTime: Required value", "status.conditions[0].reason: Required value"),

		"cost/none":          createAt("{all toppings}", topping("")).gets(422, "spec.cost: Required value"),
		"cost/tiny negative": createAt("{all toppings}", topping(`"cost":"-1e-300"`)).gets(422, `spec.cost: Invalid value: "-1e-9": must be greater than or equal to 0`),
		"cost/a word":        createAt("{all toppings}", topping(`"cost":"cheap"`)).gets(400).saying(`Topping in version "{v}" cannot be handled as a Topping: quantities must match the regular expression …`),
		"cost/protobuf":      createAt("{all toppings}", envelope("Topping", field(2, field(1, field(1, "1e-999999999"))))).as(protobuf).gets(400).saying("a number may be too long…"),

		"toppings/unknown":          create(toppings(`[{"name":"tomato"},{"name":"tar"}]`)).except("v1alpha1").gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"toppings/unknown, patched": patch(types.StrategicMergePatchType, `{"spec":{"toppings":[{"name":"tar"}]}}`).except("v1alpha1").gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"toppings/unknown, applied": apply(`"spec":{"toppings":[{"name":"tar"}]}`).except("v1alpha1").gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"toppings/null":             create(toppings(`[null]`)).except("v1alpha1").gets(422, "spec.toppings[0].name: Required value"),
		"toppings/2 000 of 2^31-1":  create(toppings(listOf(2_000, `{"name":"t%d","quantity":2147483647}`))).except("v1alpha1").gets(422, "spec.toppings: Too many: 2000: must have at most 64 items"),
		"toppings/quantity 11":      create(toppings(`[{"name":"basil","quantity":11}]`)).except("v1alpha1").gets(422, "spec.toppings[0].quantity: Invalid value: 11: …"),
		"names/unknown":             create(toppings(`["tomato","tar","tar"]`)).except("v1beta1", "v1").gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"names/5 000":               create(toppings(listOf(5_000, `"t%d"`))).except("v1beta1", "v1").gets(422, "spec.toppings: Invalid value: must not have more than 64 …"),
		"names/a number":            create(toppings(`[1]`)).except("v1beta1", "v1").gets(400),
	}
	for name, cost := range map[string]string{"high": "1e999999999", "low": "-1e999999999"} {
		cause := `spec.cost: Invalid value: "640T": must be less than or equal to 1000000000`
		if name == "low" {
			cause = `spec.cost: Invalid value: "-640T": must be greater than or equal to 0`
		}
		requests["cost/"+name] = createAt("{all toppings}", topping(`"cost":"`+cost+`"`)).gets(422, cause)
		requests["cost/"+name+" patched"] = patchAt("{topping}", types.MergePatchType, `{"spec":{"cost":"`+cost+`"}}`).gets(422, cause)
		requests["cost/"+name+" applied"] = applyAt("{topping}?fieldManager=e2e&force=true", `{"apiVersion":"{version}","kind":"Topping","spec":{"cost":"`+cost+`"}}`).gets(422, cause)
		requests["cost/"+name+" in a status"] = status(`"cost":"`+cost+`"`).gets(422, strings.NewReplacer("spec", "status", "1000000000", "640000000000").Replace(cause))
	}
	for _, cost := range []string{"1e-999999999", "1e2147483648", "  1e-999999999 ", `1\u0065-999999999`, strings.Repeat("9", 100_000)} {
		requests["cost/created "+cost[:8]] = createAt("{all toppings}", topping(`"cost":"`+cost+`"`)).gets(400).saying(number)
		requests["cost/in YAML "+cost[:8]] = createAt("{all toppings}", topping(`"cost":"`+cost+`"`)).as("application/yaml").gets(400).saying(number)
		requests["cost/patched "+cost[:8]] = patchAt("{topping}", types.StrategicMergePatchType, `{"spec":{"cost":"`+cost+`"}}`).gets(400).saying(number)
		requests["cost/applied "+cost[:8]] = applyAt("{topping}?fieldManager=e2e&force=true", `{"apiVersion":"{version}","kind":"Topping","spec":{"cost":"`+cost+`"}}`).gets(400).saying(number)
	}
	requireRefused(t, requests)
}

func TestBadPatches(t *testing.T) {
	const strategicPatch, jsonPatch = types.StrategicMergePatchType, types.JSONPatchType
	requireRefused(t, map[string]badRequest{
		"not there, a status": applyAt("{pizzas}/new/status?fieldManager=e2e", `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"new"}}`).gets(404),
		"force":               patchAt("{pizza}?force=true", types.MergePatchType, `{}`).gets(422, "force: Forbidden: may not be specified for non-apply patch"),
		"a control character": patchAt("{pizza}?fieldManager=a%00b", types.MergePatchType, `{}`).gets(422, `fieldManager: Invalid value: "a\x00b": invalid character U+0000 (at position 1)`),

		"strategic/$patch":                                  patch(strategicPatch, `{"$patch":"explode"}`).gets(400).saying("the patch can't be applied: unknown patch type: explode in map: map[$patch:explode]"),
		"strategic/$patch of a scale":                       patchAt("{pizza}/scale", strategicPatch, `{"spec":{"$patch":"explode"}}`).gets(400).saying("the patch can't be applied: unknown patch type: explode in map: map[$patch:explode]"),
		"strategic/$retainKeys with a word":                 patch(strategicPatch, `{"spec":{"$retainKeys":"replicas"}}`).gets(400),
		"strategic/$retainKeys without":                     patch(strategicPatch, `{"spec":{"$retainKeys":[1]},"metadata":{"finalizers":["a b"]}}`).gets(422, `metadata.finalizers: Invalid value: "a b": …`),
		"strategic/$deleteFromPrimitiveList without a list": patch(strategicPatch, `{"metadata":{"$deleteFromPrimitiveList":["a"]}}`).gets(400),
		"strategic/$setElementOrder with a word":            patch(strategicPatch, `{"spec":{"$setElementOrder/toppings":"a"}}`).gets(400),
		"strategic/$setElementOrder, another element":       patch(strategicPatch, `{"spec":{"$setElementOrder/toppings":[{"name":"a"}],"toppings":[{"name":"b"}]}}`).gets(400).except("v1alpha1"),
		"strategic/$setElementOrder, another finalizer":     patch(strategicPatch, `{"metadata":{"$setElementOrder/finalizers":["example.com/a"],"finalizers":["example.com/b"]}}`).gets(400),
		"strategic/a map for a list":                        patch(strategicPatch, `{"spec":{"toppings":{}}}`).gets(422, "patch: Invalid value: …").except("v1alpha1"),
		"strategic/no key":                                  patch(strategicPatch, `{"spec":{"toppings":[{"quantity":2}]}}`).gets(400).except("v1alpha1").saying("the patch can't be applied: map: map[quantity:2] does not contain declared merge key: name"),
		"strategic/words for elements":                      patch(strategicPatch, `{"spec":{"toppings":["tomato"]}}`).gets(400).except("v1alpha1"),
		"strategic/null for an element":                     patch(strategicPatch, `{"spec":{"toppings":[null]}}`).gets(400).except("v1alpha1"),
		"strategic/$patch of an element":                    patch(strategicPatch, `{"spec":{"toppings":[{"name":"tomato","$patch":"explode"}]}}`).gets(400).except("v1alpha1"),
		"strategic/$patch of no element":                    patch(strategicPatch, `{"spec":{"toppings":[{"$patch":"delete"}]}}`).gets(400).except("v1alpha1"),
		"strategic/a list for a key":                        patch(strategicPatch, `{"spec":{"toppings":[{"name":[]}]}}`).gets(400).except("v1alpha1").saying("the patch can't be applied: runtime error: …"),
		"strategic/an object for a key":                     patch(strategicPatch, `{"spec":{"toppings":[{"name":{}}]}}`).gets(400).except("v1alpha1").saying("the patch can't be applied: runtime error: …"),
		"strategic/a list for a key twice":                  patch(strategicPatch, `{"spec":{"$setElementOrder/toppings":[{"name":[]}],"toppings":[{"name":[]}]}}`).gets(400).except("v1alpha1"),
		"strategic/a number for a key":                      patch(strategicPatch, `{"spec":{"toppings":[{"name":1}]}}`).gets(422, "patch: Invalid value: …").except("v1alpha1"),
		"strategic/lists for types":                         patchAt("{pizza}/status", strategicPatch, `{"status":{"conditions":[{"type":[]},{"type":[]}]}}`).gets(422, "patch: Invalid value: …"),

		"JSON/a high index":        patch(jsonPatch, `[{"op":"add","path":"/spec/toppings/99999999999","value":1}]`).gets(422),
		"JSON/a word for an index": patch(jsonPatch, `[{"op":"add","path":"/spec/toppings/first","value":1}]`).gets(422),
		"JSON/1 000 insertions":    patch(jsonPatch, `[{"op":"add","path":"/spec/toppings","value":[]}`+strings.Repeat(`,{"op":"add","path":"/spec/toppings/0","value":1}`, 1000)+`]`).gets(422, "patch: Invalid value: …"),
		"JSON/100 copies": patch(jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"a":"`+strings.Repeat("x", 200_000)+`"}},`+
			listOf(100, `{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/a%d"}`)[1:]).gets(422),

		"apply/a conflict":                   applyAt("{pizza}?fieldManager=e2e", object("margherita", "", `"replicas":7`)).gets(409, `.spec.replicas: conflict with "…`),
		"apply/an unknown field":             apply(`"spec":{"size":1}`).gets(400).saying("the patch can't be applied: failed to create typed patch object (/margherita; {version}, Kind=Pizza): .spec.size: field not declared in schema"),
		"apply/an unknown field, but ignore": applyAt("{pizza}?fieldManager=e2e&fieldValidation=Ignore", object("margherita", "", `"size":1`)).gets(400).saying("the patch can't be applied: …"),
		"apply/a key twice":                  apply(`"spec":{"toppings":[{"name":"a"},{"name":"a"}]}`).except("v1alpha1").gets(400).saying("the patch can't be applied: …"),
		"apply/no key":                       apply(`"spec":{"toppings":[{"quantity":1}]}`).except("v1alpha1").gets(422, "spec.toppings[2].name: Required value"),
		"apply/a list for a key":             apply(`"spec":{"toppings":[{"name":[]}]}`).except("v1alpha1").gets(400).saying("the patch can't be applied: …"),
		"apply/a type":                       apply(`"spec":{"replicas":"many"}`).gets(400).saying("the patch can't be applied: …"),
		"apply/a new one with a uid":         applyAt("{pizzas}/new?fieldManager=e2e", metadata(`"uid":"a"`)).gets(409),
		"apply/another uid":                  applyAt("{pizza}?fieldManager=e2e", changed(`"uid":"a"`)).gets(422, `metadata.uid: Invalid value: "a": field is immutable`),
		"apply/a list for metadata":          applyAt("{pizza}?fieldManager=e2e", `{"apiVersion":"{version}","kind":"Pizza","metadata":[]}`).gets(400).saying("the patch can't be applied: …"),
		"apply/a scale for a pizza":          applyAt("{pizza}?fieldManager=e2e", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"}}`).gets(400),
		"apply/a pizza for a scale":          applyAt("{pizza}/scale?fieldManager=e2e", changed("")).gets(400).saying("invalid object type: {version}, Kind=Pizza"),
	})
}

// laughs is a YAML document that stands for 9^n words.
func laughs(n int) string {
	document := "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n"
	for i := 1; i < n; i++ {
		document += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 8), i-1)
	}
	return document
}

// listOf is a JSON list of n elements, with a number in each.
func listOf(n int, format string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(elements, ",") + "]"
}

// Fields that nobody knows are refused, warned of or ignored in a patch as in an object, as the client asks.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]badRequest{
		"merge":     patch(types.MergePatchType, `{"spec":{"size":1}}`),
		"strategic": patch(types.StrategicMergePatchType, `{"spec":{"size":1}}`),
		"JSON":      patch(types.JSONPatchType, `[{"op":"add","path":"/spec/size","value":1}]`),
		"scale":     patchAt("{pizza}/scale", types.MergePatchType, `{"spec":{"size":1}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, path := newTarget(t, doors()[0], "v1"), request.path
			for validation, want := range map[string][]string{"Ignore": nil, "Warn": {`299 - "unknown field \"spec.size\""`}, "": {`299 - "unknown field \"spec.size\""`}} {
				request.path = path + "?dryRun=All&fieldValidation=" + validation
				answer := target.send(t, request)
				require.Equal(t, http.StatusOK, answer.code, answer.body)
				require.Equal(t, want, answer.header.Values("Warning"))
			}
			request.path = path + "?dryRun=All&fieldValidation=Strict"
			target.refuses(t, request.gets(422, "patch: Invalid value: …"))
		})
	}
}

func TestBadOptions(t *testing.T) {
	requireRefused(t, map[string]badRequest{
		"get/resourceVersion": get("{pizza}?resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"get/negative":        get("{pizza}?resourceVersion=-1").gets(422, `resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax`),
		"get/in future":       get("{pizza}?resourceVersion=9999999999").gets(504, ": Too large resource version").directly(),
		// This is not bad input but a promise that the client can wait for.
		"list/in future":                 get("{pizzas}?resourceVersion=9999999999").gets(504, ": Too large resource version").directly(),
		"watch/resourceVersion":          get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/negative":                 get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersion=-1").gets(422, `resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax`),
		"watch/2^64":                     get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersion=18446744073709551616").gets(422, `resourceVersion: Invalid value: "18446744073709551616": strconv.ParseUint: parsing "18446744073709551616": value out of range`),
		"watch/of one":                   get("{pizzas}?watch=1&timeoutSeconds=5&fieldSelector=metadata.name=margherita&resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/old path":                 get("{root}/watch/namespaces/{namespace}/pizzas?resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/old path of one":          get("{root}/watch/namespaces/{namespace}/pizzas/margherita?resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/sendInitialEvents from x": get("{pizzas}?watch=1&timeoutSeconds=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
	})
}

// envelope is a protobuf message in the form in which Kubernetes sends it, with an
// object of v1.
func envelope(kind, raw string) string {
	return "k8s\x00" + field(1, field(1, restaurant.GroupName+"/v1")+field(2, kind)) + field(2, raw)
}

// field is a field of a protobuf message.
func field(number protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value))
}

func TestBadPaths(t *testing.T) {
	const notFound, dots = "the server could not find the requested resource", `the namespace ".." may not be '..'`
	requests := map[string]badRequest{
		"dots and more":                 get("{pizzas}/../toppings").gets(404).saying(notFound),
		"escaped dots":                  get("{pizzas}/..%2F..%2Ftoppings").gets(404),
		"a namespace of dots":           get("{root}/namespaces/../pizzas").gets(400).saying(dots),
		"one of a namespace of dots":    get("{root}/namespaces/../pizzas/margherita").gets(400).saying(dots),
		"create in a namespace of dots": createAt("{root}/namespaces/../pizzas", pizza("")).gets(400).saying(dots),
		"delete in a namespace of dots": remove("{root}/namespaces/../pizzas", "").gets(400).saying(dots),
		"watch a namespace of dots":     get("{root}/watch/namespaces/../pizzas").gets(400).saying(dots),
		"a namespace with a percentage": get("{root}/namespaces/%25/pizzas").gets(400).saying(`the namespace "%" may not contain '%'`),
		"namespaces":                    get("{root}/namespaces").gets(404),
		"an unknown version":            get("/apis/{group}/v9/pizzas").gets(404).directly(),
		"an unknown kind":               get("{root}/calzones").gets(404).saying(notFound),
		"an unknown subresource":        get("{pizza}/oven").gets(404).saying(notFound),
		"part of a subresource":         get("{pizza}/status/replicas").gets(404).saying(notFound),
		"watch an unknown kind":         get("{root}/watch/calzones").gets(404).saying(notFound),
		"watch namespaces":              get("{root}/watch/namespaces").gets(404).saying(notFound),
		"proxy":                         get("{root}/proxy/pizzas").gets(404).saying(notFound),
		"watch nothing":                 get("{root}/watch").gets(404).saying(notFound).directly(),
		"watch nothing, with slash":     get("{root}/watch/").gets(404).saying(notFound).directly(),
		"proxy nothing":                 get("{root}/proxy").gets(404).saying(notFound).directly(),
	}
	for _, path := range []string{"{pizza}/status", "{pizza}/scale"} {
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodOptions, "BAKE"} {
			requests[path+"/"+method] = request(method, path, "application/json", "{}").gets(405).saying("the server does not allow this method on the requested resource")
		}
	}
	requireRefused(t, requests)
}
