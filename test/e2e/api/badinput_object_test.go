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

	"k8s.io/apimachinery/pkg/types"
)

// noJSON are bodies that can't be decoded, for every request that has one.
var noJSON = map[string]string{
	"nothing":         "",
	"half an object":  `{"apiVersion":"{version}","kind":"Pizza","metadata":`,
	"a list":          `[]`,
	"a string":        `"pizza"`,
	"two objects":     `{}{}`,
	"not a number":    `{"a":NaN}`,
	"a bare word":     `pizza`,
	"a cut-off UTF-8": "\xf0\x9f",
}

func TestBadBodies(t *testing.T) {
	requests := map[string]badRequest{}
	for name, body := range noJSON {
		requests["create/"+name] = create(body).gets(400).saying("the object provided is unrecognized (must be of type Pizza): couldn't get version/kind; json parse error: …")
		requests["update/"+name] = replace(body).gets(400).saying("the object provided is unrecognized (must be of type Pizza): couldn't get version/kind; json parse error: …")
		requests["status/"+name] = replaceAt("{pizza}/status", body).gets(400)
		requests["scale/"+name] = replaceAt("{pizza}/scale", body).gets(400)
		if body != "" { // The options of a delete may be missing.
			requests["delete/"+name] = remove("{pizza}", body).gets(400)
			requests["delete collection/"+name] = remove("{pizzas}", body).gets(400)
		}
	}
	typed := func(apiVersion, kind string) string {
		return `{"apiVersion":` + apiVersion + `,"kind":` + kind + `,"metadata":{"name":"new"},"spec":{"toppings":{toppings}}}`
	}
	for name, request := range map[string]badRequest{
		"another kind":            create(typed(`"{version}"`, `"Topping"`)).saying(`Topping in version "{v}" cannot be handled as a Pizza: converting ({v}.Topping) to (restaurant.Pizza): unknown conversion`),
		"a list of the kind":      create(typed(`"{version}"`, `"PizzaList"`)).saying(`PizzaList in version "{v}" cannot be handled as a Pizza: converting ({v}.PizzaList) to (restaurant.Pizza): unknown conversion`),
		"an unknown kind":         create(typed(`"{version}"`, `"Calzone"`)).saying(`Calzone in version "{v}" cannot be handled as a Pizza: no kind "Calzone" is registered for version "{version}" in scheme …`),
		"the kind in lower case":  create(typed(`"{version}"`, `"pizza"`)),
		"options":                 create(typed(`"{version}"`, `"DeleteOptions"`)),
		"a status":                create(typed(`"v1"`, `"Status"`)),
		"a kind that is a number": create(typed(`"{version}"`, `1`)),
		"another group":           create(typed(`"apps/v1"`, `"Pizza"`)).saying(`Pizza in version "v1" cannot be handled as a Pizza: no kind "Pizza" is registered for version "apps/v1" in scheme …`),
		"an unknown version":      create(typed(`"{group}/v2"`, `"Pizza"`)),
		"the internal version":    create(typed(`"{group}/__internal"`, `"Pizza"`)).saying("the API version in the data ({group}/__internal) does not match the expected API version ({version})"),
		"too many slashes":        create(typed(`"a/b/c"`, `"Pizza"`)).saying("the object provided is unrecognized (must be of type Pizza): unexpected GroupVersion string: a/b/c …"),
		"a version of a number":   create(typed(`1`, `"Pizza"`)),
		"another version":         create(`{"apiVersion":"{group}/v1alpha1","kind":"Pizza","metadata":{"name":"new"},"spec":{"toppings":["tomato"]}}`).except("v1alpha1").saying("the API version in the data ({group}/v1alpha1) does not match the expected API version ({version})"),
		"update another kind":     replace(typed(`"{version}"`, `"Topping"`)),
		"a scale for a pizza":     replace(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replicas":1}}`),
		"a pizza for a scale":     replaceAt("{pizza}/scale", changed("")),
		"an old scale":            replaceAt("{pizza}/scale", `{"apiVersion":"extensions/v1beta1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replicas":1}}`),
		"an internal scale":       replaceAt("{pizza}/scale", `{"apiVersion":"autoscaling/__internal","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replicas":1}}`).saying("the API version in the data (autoscaling/__internal) does not match the expected API version (autoscaling/v1)"),
		"a pizza for options":     remove("{pizza}", pizza("")),
	} {
		requests["type/"+name] = request.gets(400)
	}
	for name, body := range map[string]string{
		"resourceVersion":  metadata(`"resourceVersion":1`),
		"spec":             `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"new"},"spec":"large"}`,
		"spec.toppings":    toppings(`{"tomato":1}`),
		"a topping":        toppings(`[["tomato"]]`),
		"replicas: string": pizza(`"replicas":"1"`),
		"replicas: 1.5":    pizza(`"replicas":1.5`),
		"replicas: 2^31":   pizza(`"replicas":2147483648`),
		"replicas: 2^64":   pizza(`"replicas":18446744073709551616`),
		"replicas: 1e400":  pizza(`"replicas":1e400`),
		"replicas: list":   pizza(`"replicas":[]`),
	} {
		requests["type of a field/"+name] = create(body).gets(400).saying(`Pizza in version "{v}" cannot be handled as a Pizza: …`)
	}
	requireRefused(t, requests)
}

func TestBadMetadata(t *testing.T) {
	const (
		noSubdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
		noMatch     = "the namespace of the provided object does not match the namespace sent on the request"
		noName      = "the name of the object (margherita based on URL) was undeterminable: name must be provided"
		noVersion   = "must be a resourceVersion that this server has returned"
	)
	scale := func(metadata, replicas string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{` + metadata + `},"spec":{"replicas":` + replicas + `}}`
	}
	const owner = `{"apiVersion":"v1","kind":"Namespace","name":"a","uid":"a","controller":true}`
	requests := map[string]badRequest{
		"no name":                               create(`{"apiVersion":"{version}","kind":"Pizza","spec":{"toppings":{toppings}}}`).gets(422, "metadata.name: Required value: name or generateName is required"),
		"a generateName":                        create(strings.Replace(pizza(""), `"name":"new"`, `"generateName":"A_"`, 1)).gets(422, `metadata.generateName: Invalid value: "A_": …`, `metadata.name: Invalid value: "A_…`),
		"another namespace":                     create(metadata(`"namespace":"default"`)).gets(400).saying(noMatch),
		"no namespace's name":                   create(metadata(`"namespace":"../x"`)).gets(400).saying(noMatch),
		"no namespace":                          createAt("{root}/pizzas", pizza("")).gets(405),
		"a missing namespace":                   createAt("{root}/namespaces/missing-{namespace}/pizzas", pizza("")).gets(404).saying(`namespaces "missing-{namespace}" not found`),
		"a namespace for a kind of the cluster": createAt("{root}/namespaces/{namespace}/toppings", topping(`"cost":"1"`)).gets(404),

		"update/another name":      replace(metadata("")).gets(400).saying("the name of the object (new) does not match the name on the URL (margherita)"),
		"update/no name":           replace(`{"apiVersion":"{version}","kind":"Pizza","spec":{"toppings":{toppings}}}`).gets(400).saying(noName),
		"update/another namespace": replace(changed(`"namespace":"default"`)).gets(400).saying(noMatch),
		"update/another uid":       replace(changed(`"resourceVersion":"1","uid":"other"`)).gets(409),
		"update/not there":         replaceAt("{pizzas}/new", metadata(`"resourceVersion":"1"`)).gets(404),
		"update/no name's form":    replaceAt("{pizzas}/New", object("New", `"resourceVersion":"1"`, `"toppings":{toppings}`)).gets(404),
		"update/managedFields":     replace(changed(`"resourceVersion":"1","managedFields":[{"fieldsType":"x"}]`)).gets(409),
		"status/another name":      replaceAt("{pizza}/status", metadata("")).gets(400),
		"status/not there":         replaceAt("{pizzas}/new/status", metadata("")).gets(404),
		"scale/another name":       replaceAt("{pizza}/scale", scale(`"name":"other"`, "1")).gets(400),
		"scale/no name":            replaceAt("{pizza}/scale", scale("", "1")).gets(400).saying(noName),
		"scale/another namespace":  replaceAt("{pizza}/scale", scale(`"name":"margherita","namespace":"default"`, "1")).gets(400).saying(noMatch),

		"resourceVersion/of a new object": create(metadata(`"resourceVersion":"1"`)).gets(422, `metadata.resourceVersion: Invalid value: "1": must not be set on objects to be created`),
		"resourceVersion/none":            replace(changed("")).gets(422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
		"resourceVersion/0":               replace(changed(`"resourceVersion":"0"`)).gets(422, "metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
		"resourceVersion/in future":       replace(changed(`"resourceVersion":"18446744073709551615"`)).gets(409),
		"resourceVersion/delete":          remove("{pizza}", `{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"resourceVersion":"x"}}`).gets(409),

		"ownerReferences/many": create(metadata(`"ownerReferences":[` + strings.Repeat(owner+",", 999) + owner + `]`)).gets(400).saying("Pizza in version …"),
	}
	for name, version := range map[string]string{
		"a word": "x", "negative": "-1", "signed": "+1", "too large": "18446744073709551616", "a fraction": "1.5", "a space": " ", "NUL": `\u0000`,
	} {
		cause := fmt.Sprintf("metadata.resourceVersion: Invalid value: %q: %s", strings.ReplaceAll(version, `\u0000`, "\x00"), noVersion)
		version = `"resourceVersion":"` + version + `"`
		requests["resourceVersion/update/"+name] = replace(changed(version)).gets(422, cause)
		requests["resourceVersion/status/"+name] = replaceAt("{pizza}/status", changed(version)).gets(422, cause)
		requests["resourceVersion/scale/"+name] = replaceAt("{pizza}/scale", scale(`"name":"margherita",`+version, "1")).gets(422, cause)
		for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
			for _, subresource := range []string{"", "/status", "/scale"} {
				requests[fmt.Sprintf("resourceVersion/%s%s/%s", kind, subresource, name)] = patchAt("{pizza}"+subresource, kind, `{"metadata":{`+version+`}}`).gets(422, cause)
			}
		}
		requests["resourceVersion/JSON patch/"+name] = patch(types.JSONPatchType, `[{"op":"replace","path":"/metadata/resourceVersion","value":`+strings.TrimPrefix(version, `"resourceVersion":`)+`}]`).gets(422, cause)
		requests["resourceVersion/apply/"+name] = applyAt("{pizza}?fieldManager=e2e&force=true", `{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"margherita",`+version+`}}`).gets(422, cause)
	}
	requireRefused(t, requests)
}

func TestBadSpecs(t *testing.T) {
	scale := func(replicas string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replicas":` + replicas + `}}`
	}
	status := func(status string) badRequest {
		return patchAt("{pizza}/status", types.MergePatchType, `{"status":{`+status+`}}`)
	}
	const condition = `{"type":"Ready","status":"True","reason":"Baked","message":"","lastTransitionTime":"2026-11-20T12:00:00Z"}`
	requests := map[string]badRequest{
		// No toppings are not a mistake: they are filled in.
		"null":            create("null").gets(422, "metadata.name: Required value: name or generateName is required"),
		"an empty object": create("{}").gets(422, "metadata.name: Required value: name or generateName is required"),
		"no toppings":     create(toppings(`[],"replicas":-1`)).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"null toppings":   create(toppings(`null,"replicas":-1`)).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"no spec":         create(`{"apiVersion":"{version}","kind":"Pizza","metadata":{"name":"new","finalizers":["a b"]}}`).gets(422, `metadata.finalizers: Invalid value: "a b": …`),

		"replicas/-1":          create(pizza(`"replicas":-1`)).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"replicas/1001":        create(pizza(`"replicas":1001`)).gets(422, "spec.replicas: Invalid value: 1001: must be less than or equal to 1000"),
		"replicas/2^31-1":      create(pizza(`"replicas":2147483647`)).gets(422, "spec.replicas: Invalid value: 2147483647: must be less than or equal to 1000"),
		"replicas/patched":     patch(types.MergePatchType, `{"spec":{"replicas":1001}}`).gets(422, "spec.replicas: Invalid value: 1001: must be less than or equal to 1000"),
		"replicas/applied":     apply(`"spec":{"replicas":-1}`).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"scale/-1":             replaceAt("{pizza}/scale", scale("-1")).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"scale/1001":           replaceAt("{pizza}/scale", scale("1001")).gets(422, "spec.replicas: Invalid value: 1001: must be less than or equal to 1000"),
		"scale/2^31":           replaceAt("{pizza}/scale", scale("2147483648")).gets(400),
		"scale/a word":         replaceAt("{pizza}/scale", scale(`"many"`)).gets(400),
		"scale/patched":        patchAt("{pizza}/scale", types.MergePatchType, `{"spec":{"replicas":-1}}`).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"scale/applied":        applyAt("{pizza}/scale?fieldManager=e2e&force=true", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replicas":-1}}`).gets(422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"scale/applied fields": applyAt("{pizza}/scale?fieldManager=e2e&force=true", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replica":1}}`).gets(400).saying("the patch can't be applied: …"),
		"scale/of a topping":   get("{topping}/scale").gets(404),

		"status/replicas":           status(`"replicas":-1`).gets(422, "status.replicas: Invalid value: -1: must be greater than or equal to 0"),
		"status/cost":               status(`"cost":"-1"`).gets(422, `status.cost: Invalid value: "-1": must be greater than or equal to 0`),
		"status/a high cost":        status(`"cost":"641G"`).gets(422, `status.cost: Invalid value: "641G": must be less than or equal to 640000000000`),
		"status/observedGeneration": status(`"observedGeneration":-1`).gets(422, "status.observedGeneration: Invalid value: -1: must be greater than or equal to 0"),
		"status/a condition":        status(`"conditions":[{"type":"a b","status":"Maybe"}]`).gets(422, `status.conditions[0].type: Invalid value: "a b": …`, `status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"`, "status.conditions[0].lastTransitionTime: Required value", "status.conditions[0].reason: Required value"),
		"status/two conditions":     status(`"conditions":[`+condition+`,`+condition+`]`).gets(422, `status.conditions[1]: Duplicate value: "Ready"`),
		"status/a condition's time": status(`"conditions":[{"type":"Ready","lastTransitionTime":"yesterday"}]`).gets(422, `patch: Invalid value: …`),
		"status/a word":             patchAt("{pizza}/status", types.MergePatchType, `{"status":"done"}`).gets(422, `patch: Invalid value: …`),
		"status/create":             createAt("{pizza}/status", pizza("")).gets(405),
		"status/delete":             remove("{pizza}/status", "").gets(405),
		"status/of a topping":       get("{topping}/status").gets(404),

		"cost/none":            createAt("{all toppings}", topping("")).gets(422, "spec.cost: Required value"),
		"cost/null":            createAt("{all toppings}", topping(`"cost":null`)).gets(422, "spec.cost: Required value"),
		"cost/negative":        createAt("{all toppings}", topping(`"cost":"-1"`)).gets(422, `spec.cost: Invalid value: "-1": must be greater than or equal to 0`),
		"cost/negative number": createAt("{all toppings}", topping(`"cost":-1`)).gets(422, `spec.cost: Invalid value: "-1": must be greater than or equal to 0`),
		"cost/tiny negative":   createAt("{all toppings}", topping(`"cost":"-1e-300"`)).gets(422, `spec.cost: Invalid value: "-1e-9": must be greater than or equal to 0`),
		"cost/too high":        createAt("{all toppings}", topping(`"cost":"1000000001"`)).gets(422, `spec.cost: Invalid value: "1000000001": must be less than or equal to 1000000000`),
		"cost/9Ei":             createAt("{all toppings}", topping(`"cost":"9Ei"`)).gets(422, `spec.cost: Invalid value: …`),
		"cost/empty":           createAt("{all toppings}", topping(`"cost":""`)).gets(400),
		"cost/a word":          createAt("{all toppings}", topping(`"cost":"cheap"`)).gets(400).saying(`Topping in version "{v}" cannot be handled as a Topping: quantities must match the regular expression …`),
		"cost/a list":          createAt("{all toppings}", topping(`"cost":["1"]`)).gets(400),
	}
	for name, cost := range map[string]string{
		"1e1000": "1e1000", "1e999999999": "1e999999999", "-1e999999999": "-1e999999999",
	} {
		cause := `spec.cost: Invalid value: "640T": must be less than or equal to 1000000000`
		if cost[0] == '-' {
			cause = `spec.cost: Invalid value: "-640T": must be greater than or equal to 0`
		}
		requests["cost/"+name] = createAt("{all toppings}", topping(`"cost":"`+cost+`"`)).gets(422, cause)
		requests["cost/"+name+" patched"] = patchAt("{topping}", types.MergePatchType, `{"spec":{"cost":"`+cost+`"}}`).gets(422, cause)
		requests["cost/"+name+" applied"] = applyAt("{topping}?fieldManager=e2e&force=true", `{"apiVersion":"{version}","kind":"Topping","spec":{"cost":"`+cost+`"}}`).gets(422, cause)
		requests["cost/"+name+" in a status"] = status(`"cost":"`+cost+`"`).gets(422, strings.NewReplacer("spec", "status", "1000000000", "640000000000").Replace(cause))
	}
	for name, cost := range map[string]string{
		"1e-999999999": "1e-999999999", "-1e-999999999": "-1e-999999999", "1e2147483648": "1e2147483648", "1e99999999999999999999": "1e99999999999999999999",
		"between spaces": "  1e-999999999 ", "escaped": `1\u0065-999999999`, "100 000 digits": strings.Repeat("9", 100_000), "100 000 places": "0." + strings.Repeat("9", 100_000),
	} {
		const message = "a number has more than 256 characters, or an exponent below -999 or of more than 9 digits, or of more than 3 after 18 digits: …"
		requests["cost/"+name] = createAt("{all toppings}", topping(`"cost":"`+cost+`"`)).gets(400).saying(message)
		requests["cost/"+name+" in YAML"] = createAt("{all toppings}", topping(`"cost":"`+cost+`"`)).as("application/yaml").gets(400).saying(message)
		requests["cost/"+name+" patched"] = patchAt("{topping}", types.StrategicMergePatchType, `{"spec":{"cost":"`+cost+`"}}`).gets(400).saying(message)
		requests["cost/"+name+" applied"] = applyAt("{topping}?fieldManager=e2e&force=true", `{"apiVersion":"{version}","kind":"Topping","spec":{"cost":"`+cost+`"}}`).gets(400).saying(message)
	}

	for name, test := range map[string]struct {
		quantity string
		code     int32
		cause    string
	}{
		"0":        {"0", 422, "must be greater than or equal to 1"},
		"-1":       {"-1", 422, "must be greater than or equal to 1"},
		"-2^31":    {"-2147483648", 422, "must be greater than or equal to 1"},
		"11":       {"11", 422, "must be less than or equal to 10"},
		"2^31-1":   {"2147483647", 422, "must be less than or equal to 10"},
		"2^31":     {"2147483648", 400, ""},
		"1.5":      {"1.5", 400, ""},
		"a string": {`"1"`, 400, ""},
	} {
		request := create(toppings(`[{"name":"basil","quantity":` + test.quantity + `}]`)).except("v1alpha1")
		if request = request.gets(test.code); test.code == 422 {
			request = request.gets(422, "spec.toppings[0].quantity: Invalid value: "+test.quantity+": "+test.cause)
		}
		requests["quantity/"+name] = request
	}
	const noSubdomain = "a lowercase RFC 1123 subdomain …"
	for name, request := range map[string]badRequest{
		"twice":              create(toppings(`[{"name":"a"},{"name":"b"},{"name":"a"}]`)).gets(422, `spec.toppings[2]: Duplicate value: {"name":"a","quantity":1}`),
		"without a name":     create(toppings(`[{"quantity":1}]`)).gets(422, "spec.toppings[0].name: Required value"),
		"null":               create(toppings(`[null]`)).gets(422, "spec.toppings[0].name: Required value"),
		"a name with spaces": create(toppings(`[{"name":"A B"}]`)).gets(422, `spec.toppings[0].name: Invalid value: "A B": `+noSubdomain),
		"unknown":            create(toppings(`[{"name":"tomato"},{"name":"tar"}]`)).gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"unknown, patched":   patch(types.StrategicMergePatchType, `{"spec":{"toppings":[{"name":"tar"}]}}`).gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"unknown, applied":   apply(`"spec":{"toppings":[{"name":"tar"}]}`).gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"65":                 create(toppings(listOf(65, `{"name":"t%d"}`))).gets(422, "spec.toppings: Too many: 65: must have at most 64 items"),
		"2 000 of 2^31-1":    create(toppings(listOf(2_000, `{"name":"t%d","quantity":2147483647}`))).gets(422, "spec.toppings: Too many: 2000: must have at most 64 items"),
	} {
		requests["toppings/"+name] = request.except("v1alpha1")
	}
	for name, request := range map[string]badRequest{
		"11 times":           create(toppings(`["a"`+strings.Repeat(`,"a"`, 10)+`]`)).gets(422, `spec.toppings: Invalid value: "a": must not be listed more than 10 times`),
		"15 000 times":       create(toppings(`[""`+strings.Repeat(`,""`, 14_999)+`]`)).gets(422, `spec.toppings: Invalid value: "": `+noSubdomain, `spec.toppings: Invalid value: "": must not be listed more than 10 times`),
		"empty":              create(toppings(`[""]`)).gets(422, `spec.toppings: Invalid value: "": `+noSubdomain),
		"null":               create(toppings(`[null]`)).gets(422, `spec.toppings: Invalid value: "": `+noSubdomain),
		"a name with spaces": create(toppings(`["A B"]`)).gets(422, `spec.toppings: Invalid value: "A B": `+noSubdomain),
		"unknown":            create(toppings(`["tomato","tar","tar"]`)).gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"unknown, patched":   patch(types.MergePatchType, `{"spec":{"toppings":["tar"]}}`).gets(422, `spec.toppings[tar]: Not found: "tar"`),
		"65":                 create(toppings(listOf(65, `"t%d"`))).gets(422, "spec.toppings: Invalid value: must not have more than 64 different toppings"),
		"5 000":              create(toppings(listOf(5_000, `"t%d"`))).gets(422, "spec.toppings: Invalid value: must not have more than 64 different toppings"),
		"a number":           create(toppings(`[1]`)).gets(400),
		"an object":          create(toppings(`[{"name":"a"}]`)).gets(400),
	} {
		requests["names/"+name] = request.except("v1beta1", "v1")
	}
	requireRefused(t, requests)
}

// listOf is a JSON list of n elements, with a number in each.
func listOf(n int, format string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(elements, ",") + "]"
}
