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
	"regexp"
	"strings"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

// versionPath is the path of discovery of a group version.
var versionPath = regexp.MustCompile(`^/apis/[^/]+/[^/]+$`)

func discovery() map[string]Transport {
	aggregated := func(request *http.Request) bool {
		return strings.Contains(accepted(request), "as=APIGroupDiscoveryList")
	}
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
		"discovery/resources": answers(ofVersion, changes(func(list map[string]any) { list["groupVersion"] = "other.example.com/v1" })),
		"discovery/aggregated": answers(aggregated, changes(func(list map[string]any) {
			each(list, func(entry map[string]any) {
				if _, isVersion := entry["freshness"]; isVersion {
					entry["freshness"] = "Stale"
				}
			})
		})),
		"discovery/names": answers(func(request *http.Request) bool { return ofVersion(request) || aggregated(request) }, changes(func(list map[string]any) {
			each(list, func(entry map[string]any) {
				if _, isResource := entry["shortNames"]; isResource {
					entry["shortNames"] = []string{"same"}
				}
			})
		})),
		"discovery/scope": requests(method(http.MethodGet), func(request *http.Request) {
			parts := strings.Split(request.URL.Path, "/")
			if len(parts) == 6 && parts[1] == "apis" && parts[4] != "namespaces" {
				request.URL.Path = strings.Join(append(parts[:4:4], "namespaces", "default", parts[4], parts[5]), "/")
			}
		}),
		"discovery/verbs": answers(both(method(http.MethodPut), named("missing"), with("dryRun", "All")), answersWith(http.StatusMethodNotAllowed)),
	}
}

// ofVersion matches discovery of a group version.
func ofVersion(request *http.Request) bool { return versionPath.MatchString(request.URL.Path) }

func openAPI() map[string]Transport {
	v3, v2 := path("/openapi/v3/apis/"), path("/openapi/v2")
	// addPath adds a path with a reference to a document.
	addPath := func(document map[string]any) {
		at(document, "paths")["/broken"] = map[string]any{"parameters": []any{map[string]any{"$ref": "#/broken"}}}
	}
	return map[string]Transport{
		"openapi/v3-index":      answers(both(v3, with("hash", "OLD")), answersWith(http.StatusNotFound)),
		"openapi/v3-references": answers(v3, changes(addPath)),
		"openapi/v3-paths": answers(v3, changes(func(document map[string]any) {
			for _, item := range at(document, "paths") {
				delete(item.(map[string]any), "patch")
			}
		})),
		"openapi/v3-object": answers(v3, changes(func(document map[string]any) {
			for _, schema := range at(document, "components", "schemas") {
				properties, _ := schema.(map[string]any)["properties"].(map[string]any)
				if _, isMetadata := properties["generateName"]; isMetadata {
					properties["uid"] = map[string]any{"type": "integer"}
				}
			}
		})),
		"openapi/v2-references": answers(v2, changes(addPath)),
		"openapi/v2-models": answers(v2, func(_ *http.Request, response *http.Response) {
			whole(response, func(body []byte) []byte {
				document := &openapiv2.Document{}
				if response.Header.Get("Content-Type") == "application/json" || proto.Unmarshal(body, document) != nil {
					return body
				}
				definitions := document.GetDefinitions()
				for _, definition := range definitions.GetAdditionalProperties() {
					again := &openapiv2.NamedSchema{Name: definition.GetName() + "Again", Value: definition.GetValue()}
					definitions.AdditionalProperties = append(definitions.AdditionalProperties, again)
				}
				if again, err := proto.Marshal(document); err == nil {
					return again
				}
				return body
			})
		}),
		"openapi/agreement": answers(v2, changes(func(document map[string]any) {
			for _, definition := range at(document, "definitions") {
				if properties, found := definition.(map[string]any)["properties"].(map[string]any); found {
					delete(properties, "status")
				}
			}
		})),
	}
}
