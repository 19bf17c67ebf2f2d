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
	"strconv"
	"strings"
)

// Transport makes a transport that breaks one behaviour of the API behind another.
type Transport func(http.RoundTripper) http.RoundTripper

// Transports returns for the ID of each check the transport that breaks what the check is for.
func Transports() map[string]Transport {
	all := map[string]Transport{}
	for _, area := range []map[string]Transport{discovery(), verbs(), watch()} {
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

// edit changes the JSON of a response. What is no JSON stays.
func edit(response *http.Response, change func(map[string]any)) {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return
	}
	var object map[string]any
	if json.Unmarshal(body, &object) == nil {
		change(object)
		if changed, err := json.Marshal(object); err == nil {
			body = changed
		}
	}
	replace(response, body)
}
