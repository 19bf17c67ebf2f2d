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
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Large and deep requests must not cost much. This test does not run beside
// others, which would disturb what it measures.
func TestHugeRequests(t *testing.T) {
	framework.Long(t, "hundreds of large requests, one after the other")
	const (
		limit     = 3 << 20 // of a body
		tooLarge  = "Request entity too large: limit is 3145728"
		etcdLimit = "Request entity too large: the object is larger than etcd stores (by default 1.5 MiB)"
		jsonDepth = "the object provided is unrecognized (must be of type Pizza): couldn't get version/kind; json parse error: invalid character …"
		yamlDepth = "the object provided is unrecognized (must be of type Pizza): yaml: exceeded max depth of 10000 …"
		tooDeep   = "the patch is nested more than 100 levels deep"
		tooLong   = "the patch has a list of more than 1000 elements: send a merge patch or an apply patch"
		tooMany   = "all lists and objects together must not have more than 20000 elements"
		yamlLines = "YAML must not have more than 20000 lines, commas, brackets and dashes: send JSON"
		number    = "a number has more than 256 characters, or an exponent below -999 or of more than 9 digits, or of more than 3 after 18 digits: …"
	)
	huge := strings.Repeat("x", 4<<20)
	owner := `"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"` + strings.Repeat("x", 2<<20) + `"}]`
	digits := strings.Repeat("9", limit-1<<10)
	labels := strings.Trim(listOf(150_000, `"label-%d":"a"`), "[]")
	finalizers := listOf(60_000, `"example.com/%d"`)
	requests := map[string]badRequest{
		"4 MiB/create":            create(metadata(`"annotations":{"a":"` + huge + `"}`)).gets(413).saying(tooLarge),
		"4 MiB/YAML":              create(huge).as("application/yaml").gets(413).saying(tooLarge),
		"4 MiB/protobuf":          create(huge).as("application/vnd.kubernetes.protobuf").gets(413).saying(tooLarge),
		"4 MiB/update":            replace(changed(`"annotations":{"a":"` + huge + `"}`)).gets(413).saying(tooLarge),
		"4 MiB/status":            replaceAt("{pizza}/status", changed(`"annotations":{"a":"`+huge+`"}`)).gets(413).saying(tooLarge),
		"4 MiB/scale":             replaceAt("{pizza}/scale", huge).gets(413).saying(tooLarge),
		"4 MiB/merge patch":       patch(types.MergePatchType, `{"a":"`+huge+`"}`).gets(413).saying(tooLarge),
		"4 MiB/strategic patch":   patch(types.StrategicMergePatchType, `{"a":"`+huge+`"}`).gets(413).saying(tooLarge),
		"4 MiB/JSON patch":        patch(types.JSONPatchType, `[{"op":"`+huge+`"}]`).gets(413).saying(tooLarge),
		"4 MiB/apply":             apply(`"a":"` + huge + `"`).gets(413).saying(tooLarge),
		"4 MiB/delete":            remove("{pizza}", huge).gets(413).saying(tooLarge),
		"4 MiB/delete collection": remove("{pizzas}", huge).gets(413).saying(tooLarge),
		"32 MiB":                  create(strings.Repeat(huge, 8)).gets(413).saying(tooLarge),
		"above etcd's limit":      create(metadata(owner)).gets(413).saying(etcdLimit),
		"patched above it":        patch(types.MergePatchType, `{"metadata":{`+owner+`}}`).gets(413).saying(etcdLimit),
		"applied above it":        applyAt("{pizza}?fieldManager=e2e", changed(owner)).gets(413).saying(etcdLimit),

		"3 million digits/a cost":     createAt("{all toppings}", topping(`"cost":"`+digits+`"`)).gets(400).saying(number),
		"3 million digits/a number":   create(pizza(`"replicas":` + digits)).gets(400).saying(number),
		"3 million digits/a patch":    patch(types.MergePatchType, `{"spec":{"replicas":`+digits+`}}`).gets(400).saying(number),
		"a long list/elements":        patch(types.StrategicMergePatchType, `{"spec":{"toppings":`+listOf(1001, `{"name":"t%d"}`)+`}}`).gets(400).saying(tooLong),
		"a long list/order":           patch(types.StrategicMergePatchType, `{"metadata":{"$setElementOrder/finalizers":`+listOf(1001, `"example.com/%d"`)+`}}`).gets(400).saying(tooLong),
		"a long list/deletions":       patch(types.StrategicMergePatchType, `{"metadata":{"$deleteFromPrimitiveList/finalizers":`+listOf(1001, `"example.com/%d"`)+`}}`).gets(400).saying(tooLong),
		"a million parts of a path":   patch(types.JSONPatchType, `[{"op":"add","path":"`+strings.Repeat("/a", 1_000_000)+`","value":1}]`).gets(422),
		"many/labels":                 create(metadata(`"labels":{` + labels + `}`)).gets(400).saying(tooMany),
		"many/updated labels":         replace(changed(`"labels":{` + labels + `}`)).gets(400).saying(tooMany),
		"many/labels in YAML":         create(metadata(`"labels":{` + labels + `}`)).as("application/yaml").gets(400).saying(tooMany),
		"many/labels in lines":        create("metadata:\n  labels:\n" + strings.Repeat("    a: b\n", 60_000)).as("application/yaml").gets(400).saying(yamlLines),
		"many/finalizers in protobuf": create(envelope("Pizza", field(1, strings.Repeat(field(14, "example.com/a"), 60_000)))).as("application/vnd.kubernetes.protobuf").gets(400).saying(tooMany),
		"many/merge patch":            patch(types.MergePatchType, `{"metadata":{"labels":{`+labels+`}}}`).gets(400).saying(tooMany),
		"many/strategic patch":        patch(types.StrategicMergePatchType, `{"metadata":{"labels":{`+labels+`}}}`).gets(400).saying(tooMany),
		"many/JSON patch":             patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/finalizers","value":`+finalizers+`}]`).gets(400).saying(tooMany),
		"many/apply":                  applyAt("{pizza}?fieldManager=e2e", changed(`"labels":{`+labels+`}`)).gets(400).saying(tooMany),
		"many/apply lines":            applyAt("{pizza}?fieldManager=e2e", "metadata:\n  labels:\n"+strings.Repeat("    a: b\n", 60_000)).gets(400).saying(yamlLines),
		"many/price reviews":          createAt("{root}/pricereviews", `{"apiVersion":"{version}","kind":"PriceReview","spec":{"toppings":`+listOf(60_000, `{"name":"t%d"}`)+`}}`).gets(400).saying(tooMany),
		"nothing but spaces":          create(strings.Repeat(" ", limit-1)).gets(400),
	}
	for name, levels := range map[string]int{"10 001": 10_001, "100 000": 100_000, "a million": 1_000_000} {
		lists := strings.Repeat("[", levels) + strings.Repeat("]", levels)
		objects := strings.Repeat(`{"a":`, min(levels, limit/8)) + "1" + strings.Repeat("}", min(levels, limit/8))
		yamlDepth := yamlDepth
		if levels > 20_000 {
			yamlDepth = yamlLines
		}
		for form, request := range map[string]badRequest{
			"lists":           create(pizza(`"a":` + lists)).saying(jsonDepth),
			"open lists":      create(strings.Repeat("[", levels)).saying(jsonDepth),
			"objects":         create(pizza(`"a":` + objects)).saying(jsonDepth),
			"updated objects": replace(pizza(`"a":` + objects)).saying(jsonDepth),
			"managedFields":   create(metadata(`"managedFields":[{"fieldsType":"FieldsV1","fieldsV1":` + objects + `}]`)).saying(jsonDepth),
			"options":         remove("{pizza}", objects),
			"a scale":         replaceAt("{pizza}/scale", objects),
			"YAML lists":      create("a: " + lists).as("application/yaml").saying(yamlDepth),
			"YAML objects":    create("a: " + objects).as("application/yaml").saying(yamlDepth),
			"YAML blocks":     create(strings.Repeat("- ", levels)).as("application/yaml").saying(yamlDepth),
			"merge patch":     patch(types.MergePatchType, objects).saying(tooDeep),
			"strategic patch": patch(types.StrategicMergePatchType, objects).saying(tooDeep),
			"JSON patch":      patch(types.JSONPatchType, `[{"op":"add","path":"/spec","value":`+lists+`}]`).saying(tooDeep),
			"apply":           applyAt("{pizza}?fieldManager=e2e", objects).saying(tooDeep),
			"apply blocks":    applyAt("{pizza}?fieldManager=e2e", strings.Repeat("- ", levels)),
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
		require.Equal(t, state, target.state(t), "What was refused has been done.")
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

// Whatever is sent, the answer is never the server's own failure.
func TestMutatedRequests(t *testing.T) {
	framework.Long(t, "a thousand requests")
	t.Parallel()
	const iterations, timeout = 1000, 20 * time.Second
	pid := cp.APIServer.PID()
	for i, d := range doors() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(20261120, uint64(i)))
			var targets []*target
			for _, version := range framework.Versions() {
				targets = append(targets, newTarget(t, d, version))
			}
			sent, refused := 0, 0
			for deadline := time.Now().Add(timeout); sent < iterations && time.Now().Before(deadline); {
				target := targets[random.IntN(len(targets))]
				request := mutated(random, target)
				if _, err := url.Parse(target.config.Host + request.path); err != nil {
					continue // No client would send it.
				}
				sent++
				answer := target.send(t, request)
				if answer.code < 400 {
					continue
				}
				refused++
				var status metav1.Status
				require.NoError(t, json.Unmarshal([]byte(answer.body), &status), "%q: %d %q", request, answer.code, answer.body)
				require.Equal(t, int32(answer.code), status.Code, "%q: %q", request, answer.body)
				if status.Reason == metav1.StatusReasonTimeout && len(status.Details.Causes) > 0 {
					continue // It waited for a resourceVersion that is still to come.
				}
				require.Less(t, answer.code, 500, "%q: %q", request, answer.body)
			}
			require.Greater(t, refused, sent/4, "Of %d requests, too few were bad to prove anything.", sent)
			require.Greater(t, sent, iterations/10, "Too few requests were sent to prove anything.")
			requireAlive(t, pid)
		})
	}
}

// mutated is a good request with a few random changes. None is a watch, which would
// take its time.
func mutated(random *rand.Rand, target *target) badRequest {
	requests := []badRequest{
		create(pizza(`"replicas":2`)),
		create(metadata(`"labels":{"a":"b"},"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"a"}]`)),
		create("apiVersion: {version}\nkind: Pizza\nmetadata:\n  name: new\nspec:\n  toppings: {toppings}\n").as("application/yaml"),
		create(envelope("Pizza", field(1, field(1, "new"))+field(2, field(1, field(1, "tomato"))))).as("application/vnd.kubernetes.protobuf"),
		createAt("{all toppings}", topping(`"cost":"1.5"`)),
		replace(changed(`"resourceVersion":"1"`)),
		replaceAt("{pizza}/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"margherita"},"spec":{"replicas":1}}`),
		patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/replicas","value":2},{"op":"add","path":"/spec/toppings/-","value":{"name":"basil"}},{"op":"copy","from":"/spec","path":"/status"}]`),
		patch(types.StrategicMergePatchType, `{"spec":{"$setElementOrder/toppings":[{"name":"basil"}],"toppings":[{"name":"basil","quantity":2},{"name":"tomato","$patch":"delete"}]}}`),
		patchAt("{pizza}/status", types.MergePatchType, `{"status":{"replicas":1,"cost":"1","conditions":[{"type":"Ready","status":"True","reason":"Baked","message":"","lastTransitionTime":"2026-11-20T12:00:00Z"}]}}`),
		apply(`"spec":{"replicas":2,"toppings":{toppings}}`),
		remove("{pizza}", `{"apiVersion":"v1","kind":"DeleteOptions","dryRun":["All"],"preconditions":{"resourceVersion":"1"}}`),
		get("{pizza}?resourceVersion=0"),
		get("{pizzas}?labelSelector=a%3Db,c+in+(d,e)&fieldSelector=spec.replicas%3D1&limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`)),
	}
	mediaTypes := []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
		string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType),
	}
	request := requests[random.IntN(len(requests))]
	request.path, request.body = target.fill(request.path), target.fill(request.body)
	for range 1 + random.IntN(3) {
		switch random.IntN(6) {
		case 0:
			// Other paths than those of the API have answers of other kinds.
			root := target.fill("{root}") + "/"
			request.path = root + mutation(random, strings.TrimPrefix(request.path, root))
		case 1:
			request.contentType = mediaTypes[random.IntN(len(mediaTypes))]
		default:
			request.body = mutation(random, request.body)
		}
	}
	// The first of equal parameters counts.
	path, query, _ := strings.Cut(request.path, "?")
	request.path = path + "?timeoutSeconds=1&dryRun=All&" + query
	return request
}

// mutation changes a text at one place.
func mutation(random *rand.Rand, text string) string {
	pieces := []string{
		"", "null", "{}", "[]", `""`, "{", "}", "[", "]", `"`, ",", ":", "-1", "1e9", "9223372036854775808", "1.5", "true", `\u0000`, "\x00", "\xff", " ", "\n- ",
		"$patch", "metadata", "spec", "/", "..", "%2F", "%00", "?", "&", "=", "*", "&a ", "*a", "!!binary ", strings.Repeat("a", 300),
	}
	from := random.IntN(len(text) + 1)
	to := min(len(text), from+random.IntN(12))
	switch random.IntN(4) {
	case 0: // Repeat a part.
		return text[:to] + text[from:]
	case 1: // Leave a part out.
		return text[:from] + text[to:]
	case 2: // Cut off.
		return text[:from]
	default: // Put something else there.
		return text[:from] + pieces[random.IntN(len(pieces))] + text[to:]
	}
}
