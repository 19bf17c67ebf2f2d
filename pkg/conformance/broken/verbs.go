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
	"net/url"
	"strings"
)

func verbs() map[string]Transport {
	post, put, patch, remove, get := method(http.MethodPost), method(http.MethodPut), method(http.MethodPatch), method(http.MethodDelete), method(http.MethodGet)
	return map[string]Transport{
		"verbs/create": objects(both(post, sends(`"uid":"00000000-0000-0000-0000-000000000000"`)), func(_ *http.Request, object map[string]any) {
			metadata(object)["uid"] = "00000000-0000-0000-0000-000000000000"
		}),
		"verbs/create-existing": code(both(post, without("dryRun")), http.StatusConflict, http.StatusInternalServerError),
		"verbs/names": refusal(post, http.StatusUnprocessableEntity, func(_ *http.Response, status map[string]any) {
			if message, ok := status["message"].(string); ok && strings.Contains(message, "metadata.name:") {
				delete(status, "details")
			}
		}),
		"verbs/generate-name": objects(both(post, sends(`"generateName"`)), func(_ *http.Request, object map[string]any) {
			if prefix, ok := metadata(object)["generateName"].(string); ok {
				metadata(object)["name"] = prefix + "00000"
			}
		}),
		"verbs/bodies":      code(both(method(http.MethodPost, http.MethodPut), without("fieldValidation")), http.StatusBadRequest, http.StatusInternalServerError),
		"verbs/media-types": code(get, http.StatusNotAcceptable, http.StatusBadRequest),
		"verbs/methods":     code(put, http.StatusMethodNotAllowed, http.StatusNotFound),
		"verbs/get-missing": refusal(get, http.StatusNotFound, func(_ *http.Response, status map[string]any) { delete(status, "details") }),
		"verbs/write-missing": refusal(put, http.StatusNotFound, func(_ *http.Response, status map[string]any) {
			status["reason"] = "Unknown"
		}),
		"verbs/list": objects(both(get, not(watches), without("fieldSelector")), func(_ *http.Request, list map[string]any) {
			if kind, ok := list["kind"].(string); ok && strings.HasSuffix(kind, "List") {
				list["kind"] = "OtherList"
			}
		}),
		"verbs/label-selectors": query(get, func(values url.Values) {
			values.Set("labelSelector", strings.Replace(values.Get("labelSelector"), " notin ", " in ", 1))
		}),
		"verbs/field-selectors": query(both(get, not(watches)), func(values url.Values) {
			if strings.Contains(values.Get("fieldSelector"), "!=") {
				values.Del("fieldSelector")
			}
		}),
		"verbs/bad-selectors": query(both(remove, with("fieldSelector", "nonexistent=")), func(values url.Values) { values.Del("fieldSelector") }),
		"verbs/delete": objects(remove, func(_ *http.Request, status map[string]any) {
			if details, ok := status["details"].(map[string]any); ok {
				delete(details, "uid")
			}
		}),
		"verbs/deletecollection": query(remove, func(values url.Values) {
			values.Set("labelSelector", strings.TrimSuffix(values.Get("labelSelector"), ",!kept"))
		}),
		"verbs/update": requests(both(put, without("dryRun"), sends(`second":"changed"`)), func(request *http.Request) {
			request.Method = http.MethodPatch
			request.Header.Set("Content-Type", "application/merge-patch+json")
		}),
		"verbs/patch-json": requests(patch, func(request *http.Request) {
			resend(request, bytes.Replace(sent(request), []byte(`{"op":"remove","path":"/metadata/annotations/conformance.example.com~1first"},`), nil, 1))
		}),
		"verbs/patch-merge": requests(patch, func(request *http.Request) {
			resend(request, bytes.Replace(sent(request), []byte(`"conformance.example.com/first":null,`), nil, 1))
		}),
		"verbs/patch-strategic": requests(patch, func(request *http.Request) {
			resend(request, bytes.Replace(sent(request), []byte(`"$patch":"replace",`), nil, 1))
		}),
		"verbs/patch-refused": code(both(patch, sends(`"op":"test"`)), http.StatusUnprocessableEntity, http.StatusInternalServerError),
	}
}
