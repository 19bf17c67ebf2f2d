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

package broken

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

func writes() map[string]Transport {
	post, put, patch, remove := method(http.MethodPost), method(http.MethodPut), method(http.MethodPatch), method(http.MethodDelete)
	wet := func(matches ...func(*http.Request) bool) Transport {
		return query(both(append(matches, with("dryRun", "All"))...), func(values url.Values) { values.Del("dryRun") })
	}
	policy := func(from, to string) Transport {
		return query(both(remove, with("propagationPolicy", from), without("dryRun")), func(values url.Values) { values.Set("propagationPolicy", to) })
	}
	collection := func(request *http.Request) bool { return request.URL.Query().Get("labelSelector") != "" }
	below := func(subresource string) func(*http.Request) bool {
		return func(request *http.Request) bool { return strings.HasSuffix(request.URL.Path, "/"+subresource) }
	}
	main := not(func(request *http.Request) bool { return below("status")(request) || below("scale")(request) })
	var unpruned sync.Map
	return map[string]Transport{
		"writes/optimistic-lock": refusal(both(put, sends(`"uid":"00000000-0000-0000-0000-000000000000"`)), http.StatusConflict,
			func(response *http.Response, _ map[string]any) { response.StatusCode = http.StatusInternalServerError }),
		"writes/one-winner": answers(both(put, sends(`/racer"`)), func(request *http.Request, response *http.Response) {
			if response.StatusCode == http.StatusConflict {
				response.StatusCode = http.StatusOK
				replace(response, sent(request))
			}
		}),
		"writes/concurrent-patches": code(both(patch, sends(`/p3"`)), http.StatusOK, http.StatusConflict),
		"writes/no-op": objects(both(put, without("dryRun")), func(request *http.Request, object map[string]any) {
			var before map[string]any
			if json.Unmarshal(sent(request), &before) != nil || metadata(before)["resourceVersion"] != metadata(object)["resourceVersion"] {
				return
			}
			if version, err := strconv.Atoi(metadata(object)["resourceVersion"].(string)); err == nil {
				metadata(object)["resourceVersion"] = strconv.Itoa(version + 1)
			}
		}),
		"writes/delete-preconditions": requests(both(remove, sends(`"preconditions"`)), func(request *http.Request) { resend(request, []byte("{}")) }),
		"writes/generation": objects(both(put, sends(`"generation":7`)), func(_ *http.Request, object map[string]any) {
			metadata(object)["generation"] = 7
		}),
		"writes/metadata":         code(both(patch, sends(`{"metadata":{"uid":"other"}}`)), http.StatusUnprocessableEntity, http.StatusConflict),
		"writes/owner-references": code(both(post, sends(`"ownerReferences"`)), http.StatusUnprocessableEntity, http.StatusBadRequest),
		"writes/status": objects(both(put, below("status"), without("dryRun")), func(request *http.Request, object map[string]any) {
			var before map[string]any
			if json.Unmarshal(sent(request), &before) == nil {
				object["spec"] = before["spec"]
			}
		}),
		"writes/dry-run-create":           wet(post, sends(`"ConformanceTried"`)),
		"writes/dry-run-update":           wet(put, main, sends(`"ConformanceTried"`)),
		"writes/dry-run-patch":            wet(patch, main, sends(`"ConformanceTried"`), without("fieldManager")),
		"writes/dry-run-apply":            wet(patch, main, sends(`"ConformanceTried"`), with("fieldManager", "conformance")),
		"writes/dry-run-delete":           wet(remove, not(collection)),
		"writes/dry-run-deletecollection": wet(remove, collection),
		"writes/dry-run-status":           wet(put, below("status")),
		"writes/dry-run-scale":            wet(patch, below("scale")),
		"writes/field-validation": query(with("fieldValidation", "Strict"), func(values url.Values) {
			values.Set("fieldValidation", "Ignore")
		}),
		"writes/pruning": objects(func(request *http.Request) bool {
			if post(request) && with("fieldValidation", "Ignore")(request) && without("dryRun")(request) {
				unpruned.Store(nameOf(sent(request)), true)
			}
			_, found := unpruned.Load(request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:])
			return found
		}, func(_ *http.Request, object map[string]any) { object["nonexistent"] = true }),
		"writes/defaulting": objects(both(post, sends(":null")), func(_ *http.Request, object map[string]any) { delete(object, "spec") }),
		"writes/finalizers": code(both(patch, sends("conformance.example.com/more")), http.StatusUnprocessableEntity, http.StatusInternalServerError),

		"writes/garbage-absent": requests(both(post, sends(`"name":"absent"`)), func(request *http.Request) {
			resend(request, bytes.Replace(sent(request), []byte(`"ownerReferences"`), []byte(`"unknown"`), 1))
		}),
		"writes/garbage-background": policy("Background", "Orphan"),
		"writes/garbage-foreground": policy("Foreground", "Background"),
		"writes/garbage-orphan":     policy("Orphan", "Background"),

		"writes/namespace-missing": refusal(post, http.StatusNotFound, func(_ *http.Response, status map[string]any) { delete(status, "details") }),
		"writes/namespace-deletion": refusal(post, http.StatusForbidden, func(_ *http.Response, status map[string]any) {
			if details, ok := status["details"].(map[string]any); ok {
				delete(details, "causes")
			}
		}),
		"writes/quota": refusal(post, http.StatusForbidden, func(response *http.Response, status map[string]any) {
			if message, ok := status["message"].(string); ok && strings.Contains(message, "exceeded quota") {
				response.StatusCode = http.StatusTooManyRequests
			}
		}),
	}
}

// nameOf is the name of an object.
func nameOf(body []byte) any {
	var object map[string]any
	_ = json.Unmarshal(body, &object)
	return metadata(object)["name"]
}
