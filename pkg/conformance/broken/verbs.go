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

import "net/http"

func verbs() map[string]Transport {
	return map[string]Transport{
		"verbs/create-existing": answers(method(http.MethodPost), func(_ *http.Request, response *http.Response) {
			if response.StatusCode == http.StatusConflict {
				response.StatusCode = http.StatusInternalServerError
			}
		}),
		"verbs/get-missing": answers(method(http.MethodGet), func(_ *http.Request, response *http.Response) {
			if response.StatusCode == http.StatusNotFound {
				edit(response, func(status map[string]any) { delete(status, "details") })
			}
		}),
	}
}
