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
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

func TestBadOptions(t *testing.T) {
	const (
		dryRun     = `supported values: "All"`
		validation = `fieldValidation: Unsupported value: "strict": supported values: "", "Ignore", "Strict", "Warn"`
		policies   = `supported values: "Foreground", "Background", "Orphan", "nil"`
		options    = `{"apiVersion":"v1","kind":"DeleteOptions",`
	)
	requireRefused(t, map[string]badRequest{
		"dryRun/create":            createAt("{pizzas}?dryRun=yes", pizza("")).gets(422, `dryRun: Unsupported value: ["yes"]: `+dryRun),
		"dryRun/twice":             createAt("{pizzas}?dryRun=All&dryRun=yes", pizza("")).gets(422, `dryRun: Unsupported value: ["All","yes"]: `+dryRun),
		"dryRun/update":            replaceAt("{pizza}?dryRun=true", changed("")).gets(422, `dryRun: Unsupported value: ["true"]: `+dryRun),
		"dryRun/status":            replaceAt("{pizza}/status?dryRun=true", changed("")).gets(422, `dryRun: Unsupported value: ["true"]: `+dryRun),
		"dryRun/patch":             patchAt("{pizza}?dryRun=true", types.MergePatchType, `{}`).gets(422, `dryRun: Unsupported value: ["true"]: `+dryRun),
		"dryRun/delete":            remove("{pizza}?dryRun=true", "").gets(422, `dryRun: Unsupported value: ["true"]: `+dryRun),
		"dryRun/delete collection": remove("{pizzas}?dryRun=true", "").gets(422, `dryRun: Unsupported value: ["true"]: `+dryRun),
		"dryRun/in a body":         remove("{pizza}", options+`"dryRun":["yes"]}`).gets(422, `dryRun: Unsupported value: ["yes"]: `+dryRun),

		"fieldValidation/create": createAt("{pizzas}?fieldValidation=strict", pizza("")).gets(422, validation),
		"fieldValidation/update": replaceAt("{pizza}?fieldValidation=strict", changed("")).gets(422, validation),
		"fieldValidation/patch":  patchAt("{pizza}?fieldValidation=strict", types.MergePatchType, `{}`).gets(422, validation),
		"fieldManager/create":    createAt("{pizzas}?fieldManager="+strings.Repeat("a", 129), pizza("")).gets(422, "fieldManager: Too long: may not be more than 128 bytes"),
		"fieldManager/update":    replaceAt("{pizza}?fieldManager=%07", changed("")).gets(422, `fieldManager: Invalid value: "\a": invalid character U+0007 (at position 0)`),

		"delete/propagationPolicy":             remove("{pizza}?propagationPolicy=never", "").gets(422, `propagationPolicy: Unsupported value: "never": `+policies),
		"delete/propagationPolicy in a body":   remove("{pizza}", options+`"propagationPolicy":"never"}`).gets(422, `propagationPolicy: Unsupported value: "never": `+policies),
		"delete/two policies":                  remove("{pizza}?propagationPolicy=Orphan&orphanDependents=true", "").gets(422, `propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set`),
		"delete/gracePeriodSeconds":            remove("{pizza}?gracePeriodSeconds=soon", "").gets(400),
		"delete/gracePeriodSeconds in a body":  remove("{pizza}", options+`"gracePeriodSeconds":"soon"}`).gets(400),
		"delete/another uid":                   remove("{pizza}", options+`"preconditions":{"uid":"other"}}`).gets(409),
		"delete/an old version":                remove("{pizza}", options+`"preconditions":{"resourceVersion":"1"}}`).gets(409),
		"delete/not there":                     remove("{pizzas}/new", "").gets(404),
		"delete/broken YAML":                   remove("{pizza}", "a: [").as("application/yaml").gets(400),
		"delete collection/gracePeriodSeconds": remove("{pizzas}?gracePeriodSeconds=soon", "").gets(400),
		"delete collection/limit":              remove("{pizzas}?limit=all", "").gets(400),
		"delete collection/resourceVersion":    remove("{pizzas}?resourceVersion=x", "").gets(400),
		"delete collection/labels":             remove("{pizzas}?labelSelector=a,,b", "").gets(400),
		"delete collection/fields":             remove("{pizzas}?fieldSelector=spec.size=1", "").gets(400),
		"delete collection/of all namespaces":  remove("{root}/pizzas", "").gets(405),

		"get/resourceVersion": get("{pizza}?resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"get/negative":        get("{pizza}?resourceVersion=-1").gets(422, `resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax`),
		"get/in future":       get("{pizza}?resourceVersion=9999999999").gets(504, ": Too large resource version").directly(),

		"list/limit":                   get("{pizzas}?limit=all").gets(400),
		"list/too high a limit":        get("{pizzas}?limit=9223372036854775808").gets(400),
		"list/timeoutSeconds":          get("{pizzas}?timeoutSeconds=soon").gets(400),
		"list/resourceVersion":         get("{pizzas}?resourceVersion=x").gets(400),
		"list/negative":                get("{pizzas}?resourceVersion=-1").gets(400),
		"list/2^64":                    get("{pizzas}?resourceVersion=18446744073709551616").gets(400),
		"list/exactly a word":          get("{pizzas}?resourceVersion=x&resourceVersionMatch=Exact").gets(400),
		"list/exactly 0":               get("{pizzas}?resourceVersion=0&resourceVersionMatch=Exact").gets(422, `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`),
		"list/exactly nothing":         get("{pizzas}?resourceVersionMatch=Exact").gets(422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
		"list/resourceVersionMatch":    get("{pizzas}?resourceVersion=1&resourceVersionMatch=About").gets(422, `resourceVersionMatch: Unsupported value: "About": supported values: "Exact", "NotOlderThan", ""`),
		"list/sendInitialEvents":       get("{pizzas}?sendInitialEvents=true").gets(422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
		"list/sendInitialEvents maybe": get("{pizzas}?sendInitialEvents=maybe").gets(422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
		// This is not bad input but a promise that the client can wait for.
		"list/in future": get("{pizzas}?resourceVersion=9999999999").gets(504, ": Too large resource version").directly(),

		"watch/resourceVersion":          get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/negative":                 get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersion=-1").gets(422, `resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax`),
		"watch/2^64":                     get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersion=18446744073709551616").gets(422, `resourceVersion: Invalid value: "18446744073709551616": strconv.ParseUint: parsing "18446744073709551616": value out of range`),
		"watch/of one":                   get("{pizzas}?watch=1&timeoutSeconds=5&fieldSelector=metadata.name=margherita&resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/old path":                 get("{root}/watch/namespaces/{namespace}/pizzas?resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/old path of one":          get("{root}/watch/namespaces/{namespace}/pizzas/margherita?resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/resourceVersionMatch":     get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersion=1&resourceVersionMatch=NotOlderThan").gets(422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
		"watch/sendInitialEvents":        get("{pizzas}?watch=1&timeoutSeconds=5&sendInitialEvents=true").gets(422, "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
		"watch/sendInitialEvents from x": get("{pizzas}?watch=1&timeoutSeconds=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=x").gets(422, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`),
		"watch/timeoutSeconds":           get("{pizzas}?watch=1&timeoutSeconds=soon").gets(400),
		"watch/labels":                   get("{pizzas}?watch=1&timeoutSeconds=5&labelSelector=!!").gets(400),
		"watch/fields":                   get("{pizzas}?watch=1&timeoutSeconds=5&fieldSelector=spec.size=1").gets(400),
	})
}

func TestBadSelectors(t *testing.T) {
	requests := map[string]badRequest{}
	for name, selector := range map[string]string{
		"marks": "!!", "two words": "a b", "an open list": "a in (b", "no list": "a in b", "a key": "-a=b", "a value": "a=b c", "a long value": "a=" + strings.Repeat("b", 64),
		"a long key": strings.Repeat("a", 64) + "=b", "a word for a number": "a>b", "commas": "a,,b", "an empty key": "=b", "an enormous key": strings.Repeat("a", 100_000),
		"an unknown operator": "a~b", "brackets": strings.Repeat("(", 10_000),
	} {
		requests["labels/"+name] = get("{pizzas}?labelSelector=" + url.QueryEscape(selector)).gets(400)
	}
	for name, selector := range map[string]string{
		"an unknown field": "spec.size=1", "no operator": "a", "a broken escape": `metadata.name=\`, "a list": "metadata.name in (a)", "an empty field": "=a",
		"many unknown": strings.Repeat("spec.size=1,", 10_000) + "a=b",
	} {
		requests["fields/"+name] = get("{pizzas}?fieldSelector=" + url.QueryEscape(selector)).gets(400)
	}
	for name, token := range map[string]string{
		"a word":              "garbage",
		"cut off":             token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`)[:20],
		"an enormous one":     strings.Repeat("A", 100_000),
		"no JSON":             token("pizza"),
		"another version":     token(`{"v":"meta.k8s.io/v9","rv":1,"start":"a"}`),
		"no resource version": token(`{"v":"meta.k8s.io/v1","rv":0,"start":"a"}`),
		"a path":              token(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../toppings/a"}`),
		"a path further in":   token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a/../../../toppings/a"}`),
		"a number":            token(`{"v":"meta.k8s.io/v1","rv":1,"start":1}`),
		"2^63":                token(`{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"a"}`),
	} {
		requests["continue/"+name] = get("{pizzas}?limit=1&continue=" + token).gets(400)
	}
	requests["continue/and a version"] = get("{pizzas}?limit=1&resourceVersion=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`)).gets(400)
	requests["continue/and a match"] = get("{pizzas}?limit=1&resourceVersion=1&resourceVersionMatch=Exact&continue=x").gets(422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided")
	requests["continue/and a watch"] = get("{pizzas}?watch=1&timeoutSeconds=5&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&continue=x").gets(422, "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided")
	requireRefused(t, requests)
}

func token(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func TestBadMediaTypes(t *testing.T) {
	requests := map[string]badRequest{}
	for name, mediaType := range map[string]string{
		"text": "text/plain", "XML": "application/xml", "a form": "application/x-www-form-urlencoded", "CBOR": "application/cbor", "a patch": "application/merge-patch+json", "garbage": ";;", "a long one": strings.Repeat("a", 10_000),
	} {
		requests["Content-Type/create/"+name] = create(pizza("")).as(mediaType).gets(415).saying("the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf")
		requests["Content-Type/update/"+name] = replace(changed("")).as(mediaType).gets(415)
		requests["Content-Type/status/"+name] = replaceAt("{pizza}/status", changed("")).as(mediaType).gets(415)
		requests["Content-Type/delete/"+name] = remove("{pizza}", "{}").as(mediaType).gets(415)
	}
	for name, mediaType := range map[string]string{
		"HTML": "text/html", "an image": "image/png", "garbage": "{[;;", "an unknown form": "application/json;as=Chair;g=meta.k8s.io;v=v1", "an unknown version": "application/json;as=Table;g=meta.k8s.io;v=v9", "a form of another group": "application/json;as=Table;g=apps;v=v1",
	} {
		requests["Accept/get/"+name] = get("{pizza}").accepting(mediaType).gets(406)
		requests["Accept/list/"+name] = get("{pizzas}").accepting(mediaType).gets(406)
		requests["Accept/scale/"+name] = get("{pizza}/scale").accepting(mediaType).gets(406)
		requests["Accept/create/"+name] = create(pizza("")).accepting(mediaType).gets(406)
	}
	requests["Accept/watch"] = get("{pizzas}?watch=1&timeoutSeconds=5").accepting("text/html").gets(406)
	requests["Accept/discovery"] = get("{root}").accepting("text/html").gets(406)
	requests["includeObject"] = get("{pizzas}?includeObject=Everything").accepting("application/json;as=Table;g=meta.k8s.io;v=v1").gets(400)

	const protobuf = "application/vnd.kubernetes.protobuf"
	for name, body := range map[string]string{
		"nothing":           "",
		"JSON":              pizza(""),
		"another magic":     "k8t\x00\x0a\x04",
		"no more than it":   "k8s\x00",
		"a cut-off tag":     "k8s\x00\xff",
		"a cut-off length":  "k8s\x00\x0a\xff\xff\xff",
		"a huge length":     "k8s\x00\x0a\xff\xff\xff\xff\x0f",
		"a negative length": "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a long varint":     "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"groups":            "k8s\x00" + strings.Repeat("\x0b", 100_000),
		"a cut-off string":  "k8s\x00\x0a\x10ab",
		"an unknown kind":   envelope("Calzone", ""),
		"another kind":      envelope("Topping", ""),
		"a wire type":       envelope("Pizza", "\x0f"),
		"a field's type":    envelope("Pizza", "\x08\x01"),
		"an inner length":   envelope("Pizza", "\x12\xff\xff\xff\x7f"),
		"random bytes":      envelope("Pizza", "\x93\x1e\xb0\x77\x04\x5a\xd1\xff"),
	} {
		requests["protobuf/create/"+name] = create(body).as(protobuf).gets(400)
		requests["protobuf/update/"+name] = replace(body).as(protobuf).gets(400)
	}
	requests["protobuf/options"] = remove("{pizza}", "k8s\x00\xff").as(protobuf).gets(400)
	requests["protobuf/an empty object"] = create(envelope("Pizza", "")).as(protobuf).except("v1alpha1", "v1beta1").
		gets(422, "metadata.name: Required value: name or generateName is required")
	requests["protobuf/a tiny cost"] = createAt("{all toppings}", envelope("Topping", field(2, field(1, field(1, "1e-999999999"))))).as(protobuf).
		gets(400).saying("a number has more than 256 characters, or an exponent below -999 or of more than 9 digits, or of more than 3 after 18 digits: 1e-999999999")
	// It can't be told what it costs to decode.
	requests["YAML/UTF-16"] = createAt("{all toppings}", "\xff\xfe{\x00}\x00").as("application/yaml").gets(400).saying("YAML must be in UTF-8")
	requests["YAML/applied UTF-16"] = applyAt("{topping}?fieldManager=e2e", "\xfe\xff\x00{\x00}").gets(400).saying("YAML must be in UTF-8")
	requireRefused(t, requests)
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
	const notFound = "the server could not find the requested resource"
	requests := map[string]badRequest{
		"a name in upper case":     get("{pizzas}/Margherita").gets(404),
		"a name with a space":      get("{pizzas}/a%20b").gets(404),
		"a name with NUL":          get("{pizzas}/a%00").gets(404),
		"a name with a line break": get("{pizzas}/a%0Ab").gets(404),
		"a name that is no UTF-8":  get("{pizzas}/%ff").gets(404),
		"a picture":                get("{pizzas}/%F0%9F%8D%95").gets(404),
		"a name of 10 000":         get("{pizzas}/" + strings.Repeat("a", 10_000)).gets(404),
		"a name with a percentage": get("{pizzas}/%25").gets(400).saying(`Name parameter invalid: "%": may not contain '%'`),
		"a dot":                    get("{pizzas}/.").gets(400).saying(`Name parameter invalid: ".": may not be '.'`),
		"dots":                     get("{pizzas}/..").gets(400).saying(`Name parameter invalid: "..": may not be '..'`),
		"dots, escaped":            get("{pizzas}/%2e%2e").gets(400).saying(`Name parameter invalid: "..": may not be '..'`),
		"dots, deleted":            remove("{pizzas}/..", "").gets(400),
		"dots and more":            get("{pizzas}/../toppings").gets(404).saying(notFound),
		"an escaped slash":         get("{pizzas}/a%2Fb").gets(404),
		"escaped dots":             get("{pizzas}/..%2F..%2Ftoppings").gets(404),
		"two slashes":              get("{root}//pizzas").gets(404),
		"a thousand parts":         get("{pizza}" + strings.Repeat("/a", 1000)).gets(404),

		"a namespace of dots":           get("{root}/namespaces/../pizzas").gets(400).saying(`the namespace ".." may not be '..'`),
		"a namespace of a dot":          get("{root}/namespaces/./pizzas").gets(400).saying(`the namespace "." may not be '.'`),
		"one of a namespace of dots":    get("{root}/namespaces/../pizzas/margherita").gets(400).saying(`the namespace ".." may not be '..'`),
		"create in a namespace of dots": createAt("{root}/namespaces/../pizzas", pizza("")).gets(400).saying(`the namespace ".." may not be '..'`),
		"delete in a namespace of dots": remove("{root}/namespaces/../pizzas", "").gets(400).saying(`the namespace ".." may not be '..'`),
		"watch a namespace of dots":     get("{root}/watch/namespaces/../pizzas").gets(400).saying(`the namespace ".." may not be '..'`),
		"a namespace with a percentage": get("{root}/namespaces/%25/pizzas").gets(400).saying(`the namespace "%" may not contain '%'`),
		"a namespace in upper case":     get("{root}/namespaces/UPPER/pizzas/a").gets(404),
		"create in a space":             createAt("{root}/namespaces/a%20b/pizzas", pizza("")).gets(404),
		"a namespace with a slash":      get("{root}/namespaces/a%2Fb/pizzas").gets(404),
		"namespaces":                    get("{root}/namespaces").gets(404),
		"a namespace":                   get("{root}/namespaces/{namespace}").gets(404),
		"a kind of the cluster in one":  get("{root}/namespaces/{namespace}/toppings/a").gets(404),
		"a namespaced kind in none":     get("{root}/pizzas/margherita").gets(404),

		"an unknown version":        get("/apis/{group}/v9/pizzas").gets(404).directly(),
		"an unknown kind":           get("{root}/calzones").gets(404).saying(notFound),
		"an unknown kind in one":    get("{root}/namespaces/{namespace}/calzones").gets(404).saying(notFound),
		"an unknown subresource":    get("{pizza}/oven").gets(404).saying(notFound),
		"part of a subresource":     get("{pizza}/status/replicas").gets(404).saying(notFound),
		"watch an unknown kind":     get("{root}/watch/calzones").gets(404).saying(notFound),
		"watch namespaces":          get("{root}/watch/namespaces").gets(404).saying(notFound),
		"proxy":                     get("{root}/proxy/pizzas").gets(404).saying(notFound),
		"watch nothing":             get("{root}/watch").gets(404).saying(notFound).directly(),
		"watch nothing, with slash": get("{root}/watch/").gets(404).saying(notFound).directly(),
		"proxy nothing":             get("{root}/proxy").gets(404).saying(notFound).directly(),
	}
	const notAllowed = "the server does not allow this method on the requested resource"
	for path, methods := range map[string][]string{
		"{root}":         {http.MethodPost, http.MethodDelete},
		"{pizzas}":       {http.MethodPut, http.MethodPatch},
		"{root}/pizzas":  {http.MethodPost, http.MethodPut, http.MethodDelete},
		"{pizza}":        {http.MethodPost},
		"{pizza}/status": {http.MethodPost, http.MethodDelete},
		"{pizza}/scale":  {http.MethodPost, http.MethodDelete},
		"{all toppings}": {http.MethodPut, http.MethodPatch},
		"{topping}":      {http.MethodPost},
	} {
		for _, method := range append(methods, http.MethodOptions, http.MethodTrace, "PROPFIND", "BAKE", "get") {
			requests["method/"+path+"/"+method] = request(method, path, "application/json", "{}").gets(405).saying(notAllowed)
		}
	}
	requireRefused(t, requests)
}
