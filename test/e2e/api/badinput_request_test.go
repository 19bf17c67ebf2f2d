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
	"net/http"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
)

// What the library answers with a failure of the server, package conformance does not hold against it.
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

func TestBadMediaTypes(t *testing.T) {
	requests := map[string]badRequest{}
	const protobuf = "application/vnd.kubernetes.protobuf"
	for name, body := range map[string]string{
		"an unknown kind": envelope("Calzone", ""),
		"another kind":    envelope("Topping", ""),
		"a wire type":     envelope("Pizza", "\x0f"),
		"a field's type":  envelope("Pizza", "\x08\x01"),
		"an inner length": envelope("Pizza", "\x12\xff\xff\xff\x7f"),
		"random bytes":    envelope("Pizza", "\x93\x1e\xb0\x77\x04\x5a\xd1\xff"),
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
		"dots and more": get("{pizzas}/../toppings").gets(404).saying(notFound),
		"escaped dots":  get("{pizzas}/..%2F..%2Ftoppings").gets(404),

		"a namespace of dots":           get("{root}/namespaces/../pizzas").gets(400).saying(`the namespace ".." may not be '..'`),
		"a namespace of a dot":          get("{root}/namespaces/./pizzas").gets(400).saying(`the namespace "." may not be '.'`),
		"one of a namespace of dots":    get("{root}/namespaces/../pizzas/margherita").gets(400).saying(`the namespace ".." may not be '..'`),
		"create in a namespace of dots": createAt("{root}/namespaces/../pizzas", pizza("")).gets(400).saying(`the namespace ".." may not be '..'`),
		"delete in a namespace of dots": remove("{root}/namespaces/../pizzas", "").gets(400).saying(`the namespace ".." may not be '..'`),
		"watch a namespace of dots":     get("{root}/watch/namespaces/../pizzas").gets(400).saying(`the namespace ".." may not be '..'`),
		"a namespace with a percentage": get("{root}/namespaces/%25/pizzas").gets(400).saying(`the namespace "%" may not contain '%'`),
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
