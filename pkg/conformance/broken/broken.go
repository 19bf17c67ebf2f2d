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

// Package broken has transports that break one behaviour of an API each. They show that the
// checks of package conformance see.
package broken

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Transport makes a transport that breaks one behaviour of the API behind another.
type Transport func(http.RoundTripper) http.RoundTripper

// Transports returns for the ID of each check the transport that breaks what the check is for.
func Transports() map[string]Transport {
	all := map[string]Transport{}
	for _, area := range []map[string]Transport{discovery(), openAPI(), verbs(), resourceVersions(), watch(), writes(), apply(), versions(), forms(), security(), canceled(), hostile()} {
		maps.Copy(all, area)
	}
	return all
}

// roundTripper is a function that is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// answers changes the answers to requests that match.
func answers(matches func(*http.Request) bool, change func(*http.Request, *http.Response)) Transport {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && matches(request) {
				change(request, response)
			}
			return response, err
		})
	}
}

// requests changes requests that match before they are sent.
func requests(matches func(*http.Request) bool, change func(*http.Request)) Transport {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if matches(request) {
				request = request.Clone(request.Context())
				change(request)
			}
			return next.RoundTrip(request)
		})
	}
}

// lines changes the lines of answers that match, which are the events of a watch. A change
// that returns nil drops the line.
func lines(matches func(*http.Request) bool, change func(line []byte) []byte) Transport {
	return answers(matches, func(_ *http.Request, response *http.Response) {
		response.Body = newLineReader(response.Body, change)
	})
}

// method matches requests with a method.
func method(names ...string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		for _, name := range names {
			if request.Method == name {
				return true
			}
		}
		return false
	}
}

// with matches requests with a parameter of the query. An empty text stands for any that is not empty.
func with(name, text string) func(*http.Request) bool {
	return func(request *http.Request) bool {
		value := request.URL.Query().Get(name)
		return value != "" && (text == "" || value == text)
	}
}

// not matches what another does not.
func not(matches func(*http.Request) bool) func(*http.Request) bool {
	return func(request *http.Request) bool { return !matches(request) }
}

// sends matches requests whose bodies have a text.
func sends(text string) func(*http.Request) bool {
	return func(request *http.Request) bool { return bytes.Contains(sent(request), []byte(text)) }
}

// sent is the body of a request.
func sent(request *http.Request) []byte {
	if request.GetBody == nil {
		return nil
	}
	body, err := request.GetBody()
	if err != nil {
		return nil
	}
	defer body.Close()
	content, _ := io.ReadAll(body)
	return content
}

// resend gives a request another body.
func resend(request *http.Request, body []byte) {
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	request.Body, _ = request.GetBody()
	request.ContentLength = int64(len(body))
}

// query changes the query of requests that match.
func query(matches func(*http.Request) bool, change func(url.Values)) Transport {
	return requests(matches, func(request *http.Request) {
		values := request.URL.Query()
		change(values)
		request.URL.RawQuery = values.Encode()
	})
}

// code replaces a code by another, also in the Status.
func code(matches func(*http.Request) bool, from, to int) Transport {
	return refusal(matches, from, func(response *http.Response, status map[string]any) {
		response.StatusCode = to
		status["code"] = to
	})
}

// refusal changes the Status of answers with a code.
func refusal(matches func(*http.Request) bool, code int, change func(*http.Response, map[string]any)) Transport {
	return answers(matches, func(_ *http.Request, response *http.Response) {
		if response.StatusCode == code {
			edit(response, func(status map[string]any) { change(response, status) })
		}
	})
}

// objects changes the objects of answers.
func objects(matches func(*http.Request) bool, change func(request *http.Request, object map[string]any)) Transport {
	return answers(matches, func(request *http.Request, response *http.Response) {
		if response.StatusCode < http.StatusMultipleChoices {
			edit(response, func(object map[string]any) { change(request, object) })
		}
	})
}

// metadata is that of an object.
func metadata(object map[string]any) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	return metadata
}

// items are the objects of a list.
func items(list map[string]any) []map[string]any {
	var items []map[string]any
	all, _ := list["items"].([]any)
	for _, item := range all {
		if item, ok := item.(map[string]any); ok {
			items = append(items, item)
		}
	}
	return items
}

// watches matches watches.
func watches(request *http.Request) bool { return request.URL.Query().Get("watch") == "true" }

// both matches what all of them match.
func both(matches ...func(*http.Request) bool) func(*http.Request) bool {
	return func(request *http.Request) bool {
		for _, match := range matches {
			if !match(request) {
				return false
			}
		}
		return true
	}
}

// named matches requests for the object with that suffix, and for its subresources.
func named(suffix string) func(*http.Request) bool {
	object := regexp.MustCompile("/conformance-[^-/]+-[0-9]+-" + suffix + "(/|$)")
	return func(request *http.Request) bool { return object.MatchString(request.URL.Path) }
}

// without matches requests that lack a parameter.
func without(parameter string) func(*http.Request) bool {
	return func(request *http.Request) bool { return !request.URL.Query().Has(parameter) }
}

// accepted is what the client accepts.
func accepted(request *http.Request) string { return request.Header.Get("Accept") }

// path matches requests below a path.
func path(prefix string) func(*http.Request) bool {
	return func(request *http.Request) bool { return strings.HasPrefix(request.URL.Path, prefix) }
}

// replace gives a response another body.
func replace(response *http.Response, body []byte) {
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

// whole changes the body of a response.
func whole(response *http.Response, change func([]byte) []byte) {
	if body, err := io.ReadAll(response.Body); err == nil {
		replace(response, change(body))
	}
}

// edit changes the JSON of a response. What is no JSON stays.
func edit(response *http.Response, change func(map[string]any)) {
	whole(response, func(body []byte) []byte {
		var object map[string]any
		if json.Unmarshal(body, &object) == nil {
			change(object)
			if changed, err := json.Marshal(object); err == nil {
				return changed
			}
		}
		return body
	})
}

// changes changes the JSON of all responses.
func changes(change func(map[string]any)) func(*http.Request, *http.Response) {
	return func(_ *http.Request, response *http.Response) { edit(response, change) }
}

// answersWith changes the code of all responses.
func answersWith(code int) func(*http.Request, *http.Response) {
	return func(_ *http.Request, response *http.Response) { response.StatusCode = code }
}

// at returns the object at a path, or an empty one that belongs to nothing.
func at(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	if object == nil {
		object = map[string]any{}
	}
	return object
}

// each calls a function with all objects inside a value.
func each(value any, do func(map[string]any)) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			each(item, do)
		}
	case map[string]any:
		do(value)
		for _, item := range value {
			each(item, do)
		}
	}
}
