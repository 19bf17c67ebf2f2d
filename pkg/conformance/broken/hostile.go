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

// inQuery matches requests with a text in their parameters.
func inQuery(text string) func(*http.Request) bool {
	return func(request *http.Request) bool { return strings.Contains(request.URL.RawQuery, text) }
}

// typed matches requests with a media type.
func typed(kind string) func(*http.Request) bool {
	return func(request *http.Request) bool { return request.Header.Get("Content-Type") == kind }
}

// fails answers with a failure of the server.
func fails(matches ...func(*http.Request) bool) Transport {
	return answers(both(matches...), func(_ *http.Request, response *http.Response) {
		response.StatusCode = http.StatusInternalServerError
		edit(response, func(status map[string]any) { status["code"] = http.StatusInternalServerError })
	})
}

// speaks answers with text.
func speaks(matches ...func(*http.Request) bool) Transport {
	return answers(both(matches...), func(_ *http.Request, response *http.Response) {
		response.Header.Set("Content-Type", "text/plain")
		replace(response, []byte("bad request"))
	})
}

// redirects answers with a redirect.
func redirects(matches ...func(*http.Request) bool) Transport {
	return answers(both(matches...), func(_ *http.Request, response *http.Response) { response.StatusCode = http.StatusMovedPermanently })
}

func hostile() map[string]Transport {
	const jsonPatch, mergePatch, applyPatch = "application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"
	return map[string]Transport{
		"hostile/broken-json": speaks(sends(`{"a":NaN}`)),
		"hostile/deep":        fails(sends(strings.Repeat("[", 20_000)), typed("application/json")),
		"hostile/wide":        fails(func(request *http.Request) bool { return len(sent(request)) > 4<<20 }),
		"hostile/yaml":        fails(sends("a: &a [*a]")),
		"hostile/protobuf":    speaks(typed("application/vnd.kubernetes.protobuf"), sends("k8t\x00")),
		"hostile/cbor":        fails(typed("application/cbor"), method(http.MethodPut), sends("\xd9\xd9\xf7")),
		"hostile/types":       fails(sends(`"other.example.com/v1"`)),
		"hostile/metadata":    fails(sends(`"labels":{"a b":"c"}`)),
		"hostile/numbers":     fails(sends("1e-999999999")),
		"hostile/paths":       redirects(func(request *http.Request) bool { return strings.Contains(request.URL.EscapedPath(), "%2e%2e") }),
		"hostile/methods":     fails(method("PROPFIND")),
		"hostile/selectors":   fails(inQuery("labelSelector=a~b")),
		"hostile/continue":    fails(inQuery("continue=garbage")),
		"hostile/options":     fails(inQuery("propagationPolicy=never")),
		"hostile/media-types": speaks(typed("application/xml")),
		"hostile/json-patch":  fails(typed(jsonPatch), sends("explode")),
		"hostile/merge-patch": fails(typed(mergePatch), sends(`{"apiVersion":"a/b/c"}`)),
		"hostile/apply":       fails(typed(applyPatch), func(request *http.Request) bool { return string(sent(request)) == "word" }),
		"hostile/mutated":     redirects(inQuery("timeoutSeconds=1&dryRun=All&")),
	}
}
