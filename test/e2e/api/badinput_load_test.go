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
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Large and deep requests, which package conformance sends as well, must not cost much. This test does
// not run beside others, which would disturb what it measures.
func TestHugeRequests(t *testing.T) {
	framework.Long(t, "hundreds of large requests, one after the other")
	const (
		limit     = 3 << 20 // of a body
		tooLarge  = "Request entity too large: limit is 3145728"
		etcdLimit = "Request entity too large: the object is larger than etcd stores…"
		jsonDepth = "the object provided is unrecognized (must be of type Pizza): couldn't get version/kind; json parse error: invalid character …"
		yamlDepth = "the object provided is unrecognized (must be of type Pizza): yaml: exceeded max depth of 10000 …"
		tooDeep   = "the patch is nested more than 100 levels deep"
		tooLong   = "the patch has a list of more than 1000 elements: send a merge patch or an apply patch"
		tooMany   = "all lists and objects together must not have more than 20000 elements"
		largeYAML = "YAML must not have more than 262144 bytes: send JSON"
		number    = "a number has more than 256 characters…"
	)
	huge := strings.Repeat("x", 4<<20)
	owner := `"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"` + strings.Repeat("x", 2<<20) + `"}]`
	digits := strings.Repeat("9", limit-1<<10)
	labels := strings.Trim(listOf(150_000, `"label-%d":"a"`), "[]")
	requests := map[string]badRequest{
		"4 MiB/create":            create(metadata(`"annotations":{"a":"` + huge + `"}`)).gets(413).saying(tooLarge),
		"4 MiB/protobuf":          create(huge).as("application/vnd.kubernetes.protobuf").gets(413).saying(tooLarge),
		"4 MiB/delete collection": remove("{pizzas}", huge).gets(413).saying(tooLarge),
		"32 MiB":                  create(strings.Repeat(huge, 8)).gets(413).saying(tooLarge),
		"above etcd's limit":      create(metadata(owner)).gets(413).saying(etcdLimit),

		"3 million digits/a cost":     createAt("{all toppings}", topping(`"cost":"`+digits+`"`)).gets(400).saying(number),
		"3 million digits/a patch":    patch(types.MergePatchType, `{"spec":{"replicas":`+digits+`}}`).gets(400).saying(number),
		"a long list/elements":        patch(types.StrategicMergePatchType, `{"spec":{"toppings":`+listOf(1001, `{"name":"t%d"}`)+`}}`).gets(400).saying(tooLong),
		"a long list/order":           patch(types.StrategicMergePatchType, `{"metadata":{"$setElementOrder/finalizers":`+listOf(1001, `"example.com/%d"`)+`}}`).gets(400).saying(tooLong),
		"a million parts of a path":   patch(types.JSONPatchType, `[{"op":"add","path":"`+strings.Repeat("/a", 1_000_000)+`","value":1}]`).gets(422),
		"many/labels":                 create(metadata(`"labels":{` + labels + `}`)).gets(400).saying(tooMany),
		"many/labels in lines":        create("metadata:\n  labels:\n" + strings.Repeat("    a: b\n", 60_000)).as("application/yaml").gets(400).saying(largeYAML),
		"many/finalizers in protobuf": create(envelope("Pizza", field(1, strings.Repeat(field(14, "example.com/a"), 60_000)))).as("application/vnd.kubernetes.protobuf").gets(400).saying(tooMany),
		"many/strategic patch":        patch(types.StrategicMergePatchType, `{"metadata":{"labels":{`+labels+`}}}`).gets(400).saying(tooMany),
		"many/apply":                  applyAt("{pizza}?fieldManager=e2e", changed(`"labels":{`+labels+`}`)).gets(400).saying(tooMany),
		"many/price reviews":          createAt("{root}/pricereviews", `{"apiVersion":"{version}","kind":"PriceReview","spec":{"toppings":`+listOf(60_000, `{"name":"t%d"}`)+`}}`).gets(400).saying(tooMany),
	}
	for name, levels := range map[string]int{"10 001": 10_001, "a million": 1_000_000} {
		lists := strings.Repeat("[", levels) + strings.Repeat("]", levels)
		objects := strings.Repeat(`{"a":`, min(levels, limit/8)) + "1" + strings.Repeat("}", min(levels, limit/8))
		yamlDepth := yamlDepth
		if levels > 20_000 {
			yamlDepth = largeYAML
		}
		for form, request := range map[string]badRequest{
			"lists":         create(pizza(`"a":` + lists)).saying(jsonDepth),
			"objects":       create(pizza(`"a":` + objects)).saying(jsonDepth),
			"managedFields": create(metadata(`"managedFields":[{"fieldsType":"FieldsV1","fieldsV1":` + objects + `}]`)).saying(jsonDepth),
			"a scale":       replaceAt("{pizza}/scale", objects),
			"YAML lists":    create("a: " + lists).as("application/yaml").saying(yamlDepth),
			"YAML blocks":   create(strings.Repeat("- ", levels)).as("application/yaml").saying(yamlDepth),
			"merge patch":   patch(types.MergePatchType, objects).saying(tooDeep),
			"JSON patch":    patch(types.JSONPatchType, `[{"op":"add","path":"/spec","value":`+lists+`}]`).saying(tooDeep),
			"apply":         applyAt("{pizza}?fieldManager=e2e", objects),
			// A quote that JSON does not have must not hide the brackets behind it.
			"apply a quote":   applyAt("{pizza}?fieldManager=e2e", `{'"': 1, a: `+lists+`}`),
			"protobuf groups": create("k8s\x00" + strings.Repeat("\x0b", levels)).as("application/vnd.kubernetes.protobuf"),
		} {
			requests[form+"/"+name] = request.gets(400)
		}
	}

	pid := cp.APIServer.PID()
	for _, d := range doors() {
		target := newTarget(t, d, "v1")
		state := target.state(t)
		memory, goroutines := target.metric(t, "process_resident_memory_bytes"), target.metric(t, "go_goroutines")
		for _, name := range slices.Sorted(maps.Keys(requests)) {
			t.Run(d.name+"/"+name, func(t *testing.T) { target.refuses(t, requests[name]) })
		}
		require.Less(t, target.metric(t, "process_resident_memory_bytes"), memory+100<<20)
		controlplane.Eventually(t, func() error {
			if now := target.metric(t, "go_goroutines"); now > goroutines+100 {
				return fmt.Errorf("%.0f goroutines have become %.0f", goroutines, now)
			}
			return nil
		})
		require.Equal(t, state, target.state(t), "A refused request has had an effect.")
		requireAlive(t, pid)
	}
}

// metric returns a metric of the server.
func (g *target) metric(t *testing.T, name string) float64 {
	t.Helper()
	direct := *g
	direct.door = doors()[1]
	answer := direct.send(t, get("/metrics"))
	require.Equal(t, http.StatusOK, answer.code)
	match := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(answer.body)
	require.NotNil(t, match, "The server has no metric %s.", name)
	value, err := strconv.ParseFloat(match[1], 64)
	require.NoError(t, err)
	return value
}
