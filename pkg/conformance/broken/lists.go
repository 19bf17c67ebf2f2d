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
	"io"
	"net/http"
	"net/url"
	"sync"
)

func resourceVersions() map[string]Transport {
	get := both(method(http.MethodGet), not(watches))
	return map[string]Transport{
		"resourceVersion/comparable": objects(both(get, with("fieldSelector", "")), func(_ *http.Request, list map[string]any) {
			for _, item := range items(list) {
				metadata(item)["resourceVersion"] = "v" + metadata(item)["resourceVersion"].(string)
			}
		}),
		"resourceVersion/consistent": old(both(get, with("limit", "500"))),
		"resourceVersion/any": objects(both(get, with("resourceVersion", "0")), func(_ *http.Request, list map[string]any) {
			if list["items"] != nil {
				list["items"] = []any{}
			}
		}),
		"resourceVersion/exact": query(both(get, with("resourceVersionMatch", "Exact"), with("limit", "10")), func(values url.Values) {
			values.Del("resourceVersionMatch")
			values.Del("resourceVersion")
		}),
		"resourceVersion/future":  code(both(get, with("resourceVersion", "")), http.StatusGatewayTimeout, http.StatusInternalServerError),
		"resourceVersion/refused": code(both(get, with("resourceVersionMatch", "Nearly")), http.StatusUnprocessableEntity, http.StatusBadRequest),
		"resourceVersion/pages": objects(both(get, with("continue", ""), with("limit", "2")), func(_ *http.Request, list map[string]any) {
			list["items"] = []any{}
		}),
		"resourceVersion/remaining": objects(both(get, with("limit", "1")), func(_ *http.Request, list map[string]any) {
			delete(metadata(list), "remainingItemCount")
		}),
		"resourceVersion/expired": answers(both(get, with("resourceVersion", "1"), with("resourceVersionMatch", "Exact")), func(_ *http.Request, response *http.Response) {
			if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusGone {
				response.StatusCode = http.StatusInternalServerError
			}
		}),
	}
}

// old answers requests that match as the first of the same target.
func old(matches func(*http.Request) bool) Transport {
	var first sync.Map
	return answers(matches, func(request *http.Request, response *http.Response) {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return
		}
		before, _ := first.LoadOrStore(request.URL.String(), body)
		replace(response, before.([]byte))
	})
}
