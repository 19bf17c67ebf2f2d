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
	"net/http"
	"strings"
)

func discovery() map[string]Transport {
	return map[string]Transport{
		"discovery/group": answers(func(request *http.Request) bool { return request.URL.Path == "/apis" }, func(_ *http.Request, response *http.Response) {
			edit(response, func(list map[string]any) {
				groups, _ := list["groups"].([]any)
				for i, group := range groups {
					if name, _ := group.(map[string]any)["name"].(string); strings.Contains(name, ".") {
						groups[i] = map[string]any{"name": "other.example.com"}
					}
				}
			})
		}),
	}
}
