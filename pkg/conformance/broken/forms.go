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
	"net/http"
	"strings"
)

func forms() map[string]Transport {
	accepts := func(media string) func(*http.Request) bool {
		return func(request *http.Request) bool { return strings.HasPrefix(accepted(request), media) }
	}
	asJSON := func(request *http.Request) { request.Header.Set("Accept", "application/json") }
	const table, metadata = "application/json;as=Table", "application/json;as=PartialObjectMetadata"
	return map[string]Transport{
		"forms/accept": requests(accepts("application/yaml, "), asJSON),
		"forms/yaml": answers(both(method(http.MethodPost), accepts("application/yaml")), func(_ *http.Request, response *http.Response) {
			whole(response, func(body []byte) []byte { return append(body, "broken: true\n"...) })
		}),
		"forms/protobuf": requests(accepts("application/vnd.kubernetes.protobuf"), asJSON),
		"forms/cbor":     requests(accepts("application/cbor"), asJSON),
		"forms/table": answers(both(accepts(table), with("includeObject", "None")), changes(func(table map[string]any) {
			each(table, func(row map[string]any) {
				if cells, isRow := row["cells"].([]any); isRow {
					row["cells"] = cells[:len(cells)-1]
				}
			})
		})),
		"forms/table-watch": lines(both(watches, accepts(table)), func(line []byte) []byte {
			return bytes.Replace(line, []byte(`"columnDefinitions":[`), []byte(`"columns":[`), 1)
		}),
		"forms/metadata": requests(both(watches, accepts(metadata)), asJSON),
		"forms/gzip": requests(func(request *http.Request) bool { return request.Header.Get("Accept-Encoding") == "gzip" }, func(request *http.Request) {
			request.Header.Del("Accept-Encoding")
		}),
	}
}

func versions() map[string]Transport {
	// other matches requests of another version than v1.
	other := func(request *http.Request) bool { return !strings.Contains(request.URL.Path, "/v1/") }
	return map[string]Transport{
		"versions/round-trip": answers(both(method(http.MethodPut), other), changes(func(object map[string]any) { object["status"] = "broken" })),
		"versions/create":     answers(both(method(http.MethodPost), other, path("/apis/")), answersWith(http.StatusInternalServerError)),
		"versions/one-object": answers(both(method(http.MethodGet), other, named("one-object")), changes(func(object map[string]any) {
			at(object, "metadata")["resourceVersion"] = "1"
		})),
		"versions/body": answers(method(http.MethodPost), func(_ *http.Request, response *http.Response) {
			if response.StatusCode == http.StatusBadRequest {
				edit(response, func(status map[string]any) {
					if message, _ := status["message"].(string); strings.Contains(message, "does not match the expected API version") {
						response.StatusCode = http.StatusInternalServerError
					}
				})
			}
		}),
		"versions/storage": answers(both(ofVersion, func(request *http.Request) bool { return !strings.HasSuffix(request.URL.Path, "/v1") }), changes(func(list map[string]any) {
			each(list, func(entry map[string]any) { entry["storageVersionHash"] = "other" })
		})),
	}
}

func apply() map[string]Transport {
	applies := func(manager string, more ...func(*http.Request) bool) func(*http.Request) bool {
		return both(append(more, method(http.MethodPatch), with("fieldManager", manager))...)
	}
	force := func(request *http.Request) { request.URL.RawQuery += "&force=true" }
	other := func(request *http.Request) bool { return !strings.Contains(request.URL.Path, "/v1/") }
	managed := func(change func(metadata map[string]any, entries []any)) func(*http.Request, *http.Response) {
		return changes(func(object map[string]any) {
			if metadata, isObject := object["metadata"].(map[string]any); isObject {
				entries, _ := metadata["managedFields"].([]any)
				change(metadata, entries)
			}
		})
	}
	// addEntry gives managedFields another entry.
	addEntry := func(manager, version string) func(*http.Request, *http.Response) {
		return managed(func(metadata map[string]any, entries []any) {
			metadata["managedFields"] = append(entries, map[string]any{
				"manager": manager, "operation": "Apply", "apiVersion": "example.com/" + version, "fieldsType": "FieldsV1", "fieldsV1": map[string]any{},
			})
		})
	}
	return map[string]Transport{
		"apply/create": answers(applies("alice", named("create")), func(_ *http.Request, response *http.Response) {
			if response.StatusCode == http.StatusOK {
				edit(response, func(object map[string]any) { at(object, "metadata")["resourceVersion"] = "1" })
			}
		}),
		"apply/refused": answers(applies("alice", named("refused")), func(_ *http.Request, response *http.Response) {
			if response.StatusCode == http.StatusConflict {
				response.StatusCode = http.StatusOK
			}
		}),
		"apply/ownership": answers(applies("alice", named("ownership")), managed(func(_ map[string]any, entries []any) {
			for _, entry := range entries {
				entry.(map[string]any)["fieldsV1"] = map[string]any{}
			}
		})),
		"apply/shared": answers(applies("bob", named("shared")), managed(func(metadata map[string]any, _ []any) {
			metadata["annotations"] = map[string]any{"conformance.example.com/shared": "1"}
		})),
		"apply/conflict":          requests(applies("bob", named("conflict")), force),
		"apply/force":             requests(applies("bob", named("force")), func(request *http.Request) { request.URL.RawQuery = "fieldManager=bob" }),
		"apply/update":            requests(both(method(http.MethodPut), with("fieldManager", "carol")), func(request *http.Request) { request.URL.RawQuery = "" }),
		"apply/clear":             answers(both(method(http.MethodPatch), named("clear"), without("fieldManager")), addEntry("gone", "v0")),
		"apply/gone-version":      answers(applies("alice", named("gone-version")), addEntry("gone", "v0gone")),
		"apply/versions":          answers(applies("alice", named("versions"), other), addEntry("alice", "v0")),
		"apply/versions-conflict": requests(applies("bob", named("versions-conflict"), other), force),
		"apply/status": answers(applies("baker"), managed(func(_ map[string]any, entries []any) {
			for _, entry := range entries {
				delete(entry.(map[string]any), "subresource")
			}
		})),
		"apply/scale": answers(applies("alice", named("scale")), changes(func(status map[string]any) { delete(status, "details") })),
	}
}
