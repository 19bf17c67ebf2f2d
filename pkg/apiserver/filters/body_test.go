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

package filters

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// Each of these verbs once let through a body that nothing had looked at, or none did.
func TestBodies(t *testing.T) {
	const maxBody = 1 << 10
	bounds := limits.DefaultBounds()
	bounds.BodyElements = 100
	deep := strings.Repeat(`{"a":`, bounds.PatchDepth+1) + "1" + strings.Repeat("}", bounds.PatchDepth+1)
	wide := "[" + strings.Repeat("0,", bounds.BodyElements) + "0]"
	const tooDeep, tooMany = "the patch is nested more than 100 levels deep", "all lists and objects together must not have more than 100 elements"
	for name, test := range map[string]struct {
		verb, body, wantMessage string
	}{
		"a patch passes with its body":             {"patch", `{"a":1}`, ""},
		"a deep patch is refused":                  {"patch", deep, tooDeep},
		"what is too large is left to the handler": {"patch", strings.Repeat(" ", maxBody+1) + deep, ""},
		"an object that is created passes":         {"create", deep, ""},
		"many elements are refused to create":      {"create", wide, tooMany},
		"many elements are refused to update":      {"update", wide, tooMany},
		"many elements are refused to delete":      {"delete", wide, tooMany},
		"many are refused to delete a collection":  {"deletecollection", wide, tooMany},
		"the body of a get is not looked at":       {"get", wide, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var passed string
			handler := WithBodyBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				passed = string(body)
			}), requests.NewCodecs(), requests.IsWatch, bounds, limits.NewWatches(bounds), maxBody)

			answer := requests.Serve(handler, requests.WithInfo(httptest.NewRequest(http.MethodPatch, "/", strings.NewReader(test.body)), test.verb))
			requests.RequireStatus(t, answer, test.wantMessage, http.StatusBadRequest)
			if test.wantMessage == "" {
				require.Equal(t, test.body, passed)
			}
		})
	}
}

// An object in etcd that is larger than a body may be can be sent back. This holds for its owner and
// for a controller that removes a finalizer.
func TestBodiesOfLargeObjects(t *testing.T) {
	bounds := limits.DefaultBounds()
	bounds.BodyElements = 100
	list := func(elements int) string { return "[" + strings.Repeat("0,", elements-1) + "0]" }
	const tooMany = "all lists and objects together must not have more than %d elements"
	for name, test := range map[string]struct {
		verb         string
		stored, body int
		code         int
		wantMessage  string
		wantReads    int
	}{
		"an update that is as large":    {"update", 150, 150, http.StatusOK, "", 1},
		"an update that adds the bound": {"update", 150, 250, http.StatusOK, "", 1},
		"an update that adds more":      {"update", 150, 251, http.StatusOK, fmt.Sprintf(tooMany, 250), 1},
		"a patch that removes all":      {"patch", 150, 150, http.StatusOK, "", 1},
		"a small update":                {"update", 150, 100, http.StatusOK, "", 0},
		"a creation":                    {"create", 150, 150, http.StatusOK, fmt.Sprintf(tooMany, 100), 0},
		"an object that is not there":   {"update", 150, 150, http.StatusNotFound, fmt.Sprintf(tooMany, 100), 1},
	} {
		t.Run(name, func(t *testing.T) {
			reads := []string{}
			var passed string
			handler := WithBodyBounds(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				info, _ := genericapirequest.RequestInfoFrom(req.Context())
				if info.Verb == "get" {
					reads = append(reads, req.URL.String())
					w.WriteHeader(test.code)
					_, _ = io.WriteString(w, list(test.stored))
					return
				}
				body, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				passed = string(body)
			}), requests.NewCodecs(), requests.IsWatch, bounds, limits.NewWatches(bounds), 1<<20)
			req := httptest.NewRequest(http.MethodPatch, "/one?fieldManager=a", strings.NewReader(list(test.body)))
			answer := requests.Serve(handler, requests.WithInfo(req, test.verb))
			requests.RequireStatus(t, answer, test.wantMessage, http.StatusBadRequest)
			require.Equal(t, slices.Repeat([]string{"/one?resourceVersion=0"}, test.wantReads), reads)
			if test.wantMessage == "" {
				require.Equal(t, list(test.body), passed)
			}
		})
	}
}

// One body at a time may have as many elements as there may be, which can all be invalid, or copy them.
func TestBodiesOfManyElements(t *testing.T) {
	const json, yaml, patch = "application/json", "application/yaml", "application/json-patch+json"
	most := limits.DefaultBounds().BodyElements * 9 / 10
	many := `{"a":[0` + strings.Repeat(",0", most) + "]}"
	for name, test := range map[string]struct {
		verb, mediaType, body string
		refused               bool
	}{
		"few":                            {"create", json, `{"a":[0]}`, false},
		"many":                           {"create", json, many, true},
		"many in YAML":                   {"create", yaml, "a:\n" + strings.Repeat("- 0\n", most), true},
		"a patch that may copy many":     {"patch", patch, `[{"op":"copy","from":"/a","path":"/b"}]`, true},
		"one that spells it another way": {"patch", patch, `[{"op":"copy","fr\u006fm":"/a","path":"/b"}]`, true},
		"one that does not":              {"patch", patch, `[{"op":"add","path":"/b","value":0}]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			serve := func(handler http.Handler, verb, mediaType, body, message string) {
				req := httptest.NewRequest(http.MethodPost, "/one", strings.NewReader(body))
				req.Header.Set("Content-Type", mediaType)
				requests.RequireStatus(t, requests.Serve(handler, requests.WithInfo(req, verb)), message, http.StatusTooManyRequests)
			}
			// While the first is worked on, the second arrives.
			var handler http.Handler
			first := true
			handler = WithBodyBounds(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if info, _ := genericapirequest.RequestInfoFrom(req.Context()); info.Verb == "get" {
					_, _ = io.WriteString(w, many)
				} else if first {
					first = false
					message := ""
					if test.refused {
						message = "other bodies of many elements…"
					}
					serve(handler, test.verb, test.mediaType, test.body, message)
				}
			}), requests.NewCodecs(), requests.IsWatch, limits.DefaultBounds(), limits.NewWatches(limits.DefaultBounds()), 3<<20)
			serve(handler, "create", json, many, "")
		})
	}
}

// A stored object takes memory of the request before it is read for the bounds, and no more when it is changed.
func TestStoredObjectsTakeMemory(t *testing.T) {
	const size, about, tooMuch = 100 << 10, 1 << 10, "other large objects take all the memory that there is for them, or for those of this user"
	const patch, merge = "application/json-patch+json", "application/merge-patch+json"
	bounds := limits.DefaultBounds()
	bounds.RequestMemory = 4 * 20 * size * 8 / 7 // So a user has memory for one patch, and a list of twice the size.
	for name, test := range map[string]struct {
		mediaType, body string
		reads           int
		want            string
	}{
		"a patch that copies":       {patch, `[{"op":"copy","from":"/a","path":"/b"}]`, 1, tooMuch},
		"a patch of many elements":  {merge, "[" + strings.Repeat("0,", bounds.BodyElements) + "0]", 1, tooMuch},
		"a patch that needs no get": {merge, `{"a":1}`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var handler http.Handler
			serve := func(verb, body string) *httptest.ResponseRecorder {
				req := httptest.NewRequest(http.MethodPatch, "/one", strings.NewReader(body))
				req.Header.Set("Content-Type", test.mediaType)
				return requests.Serve(handler, requests.WithInfo(req, verb))
			}
			gets := 0
			first := true
			handler = WithBodyBounds(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				info, _ := genericapirequest.RequestInfoFrom(req.Context())
				switch {
				case info.Verb == "list":
					assert.NoError(t, limits.TakeListMemory(req.Context(), 2*size-about, 0))
					assert.Error(t, limits.TakeListMemory(req.Context(), 2*size+about, 0))
				case info.Verb == "get":
					gets++
					if err := limits.TakeObjectMemory(req.Context(), size); err != nil {
						responsewriters.ErrorNegotiated(err, requests.NewCodecs(), schema.GroupVersion{Version: "v1"}, w, req)
					}
				case first:
					first = false
					assert.NoError(t, limits.TakeObjectMemory(req.Context(), size))
					serve("list", "")
					gets = 0
					answer := serve("patch", test.body)
					requests.RequireStatus(t, answer, test.want, http.StatusTooManyRequests)
					if test.want != "" {
						assert.Equal(t, "1", answer.Header().Get("Retry-After"))
					}
					assert.Equal(t, test.reads, gets)
				}
			}), requests.NewCodecs(), requests.IsWatch, bounds, limits.NewWatches(bounds), 1<<20)
			requests.RequireStatus(t, serve("patch", `[{"op":"copy","from":"/a","path":"/b"}]`), "", http.StatusOK)
			require.False(t, first)
		})
	}
}

// The library repeats the path of an element when it validates it.
func TestBodiesWithLongPaths(t *testing.T) {
	bounds := limits.DefaultBounds()
	bounds.FieldPathBytes = 1 << 20
	const message = "the paths of all elements together must not be longer than 1048576 bytes: use shorter names for fields with many elements"
	// Paths of so many kibibytes.
	paths := func(kibibytes int) string {
		return `{"` + strings.Repeat("k", 1<<10-len(".[0]")) + `":[` + strings.Repeat("0,", kibibytes-2) + "0]}"
	}
	copies := func(length int) string {
		return `[{"op":"copy","from":"/a","path":"/` + strings.Repeat("a", length) + `"}]`
	}
	const json, merge, patch, apply = "application/json", "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"
	for name, test := range map[string]struct {
		verb, mediaType, stored, body string
		refused, reads                bool
	}{
		"a creation":                            {"create", json, "", paths(1024), false, false},
		"a creation that is longer":             {"create", json, "", paths(1025), true, false},
		"an update":                             {"update", json, "", paths(1024), false, false},
		"an update that is longer":              {"update", json, "{}", paths(1025), true, true},
		"an update of what is longer":           {"update", json, paths(1100), paths(1100), false, true},
		"a merge patch":                         {"patch", merge, paths(1024), paths(1024), false, true},
		"a merge patch that is longer":          {"patch", merge, paths(1024), paths(1025), true, true},
		"an apply patch":                        {"patch", apply, paths(1024), paths(1024), false, true},
		"an apply patch that is longer":         {"patch", apply, paths(1100), paths(1000), true, true},
		"a small patch of what is much longer":  {"patch", merge, paths(5000), `{"metadata":{"finalizers":null}}`, false, false},
		"a JSON patch":                          {"patch", patch, "{}", `[{"op":"add","path":"/a","value":1}]`, false, false},
		"a JSON patch that copies":              {"patch", patch, "{}", copies(40), false, true},
		"a JSON patch with a long path":         {"patch", patch, paths(500), copies(1000), false, true},
		"a JSON patch that moves many elements": {"patch", patch, paths(1500), copies(1000), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			reads := false
			handler := WithBodyBounds(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if info, _ := genericapirequest.RequestInfoFrom(req.Context()); info.Verb == "get" {
					reads = true
					_, _ = io.WriteString(w, test.stored)
				}
			}), requests.NewCodecs(), requests.IsWatch, bounds, limits.NewWatches(bounds), 3<<20)
			req := httptest.NewRequest(http.MethodPatch, "/one", strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.mediaType)
			want := ""
			if test.refused {
				want = message
			}
			requests.RequireStatus(t, requests.Serve(handler, requests.WithInfo(req, test.verb)), want, http.StatusBadRequest)
			require.Equal(t, test.reads, reads)
		})
	}
}
