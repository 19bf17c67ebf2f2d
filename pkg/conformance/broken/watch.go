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
	"regexp"
	"strings"
	"sync/atomic"
)

// replaced replaces text in the events of watches that match.
func replaced(matches func(*http.Request) bool, from, to string) Transport {
	return lines(both(watches, matches), func(line []byte) []byte { return bytes.Replace(line, []byte(from), []byte(to), 1) })
}

func watch() map[string]Transport {
	version := regexp.MustCompile(`"resourceVersion":"\d+"`)
	var events atomic.Int64
	return map[string]Transport{
		"watch/order": lines(watches, func(line []byte) []byte {
			if !bytes.HasPrefix(line, []byte(`{"type":"DELETED"`)) || !bytes.Contains(line, []byte(`example.com/changed"`)) {
				return line
			}
			return version.ReplaceAll(line, []byte(`"resourceVersion":"1"`))
		}),
		"watch/resume": lines(both(watches, with("resourceVersion", ""), without("allowWatchBookmarks"), not(with("resourceVersion", "0"))), func(line []byte) []byte {
			if bytes.HasPrefix(line, []byte(`{"type":"MODIFIED"`)) {
				return nil
			}
			return line
		}),
		"watch/start":          replaced(with("resourceVersion", "0"), `"type":"ADDED"`, `"type":"MODIFIED"`),
		"watch/initial-events": replaced(with("sendInitialEvents", "true"), `"k8s.io/initial-events-end"`, `"other"`),
		"watch/selectors": replaced(func(request *http.Request) bool {
			return strings.Contains(request.URL.Query().Get("labelSelector"), ",menu=yes")
		},
			`"type":"DELETED"`, `"type":"MODIFIED"`),
		"watch/bookmarks": query(both(watches, with("allowWatchBookmarks", ""), without("sendInitialEvents")), func(values url.Values) {
			values.Del("allowWatchBookmarks")
		}),
		"watch/timeout": query(both(watches, with("timeoutSeconds", "1"), without("resourceVersion"), without("resourceVersionMatch")), func(values url.Values) {
			values.Set("timeoutSeconds", "600")
		}),
		"watch/expired": lines(both(watches, with("resourceVersion", "1")), func(line []byte) []byte {
			line = bytes.Replace(line, []byte(`"code":410`), []byte(`"code":500`), 1)
			return bytes.Replace(line, []byte(`"type":"ADDED"`), []byte(`"type":"ERROR"`), 1)
		}),
		"watch/refused": code(watches, http.StatusUnprocessableEntity, http.StatusBadRequest),
		"watch/websocket": requests(watches, func(request *http.Request) {
			request.Header.Del("Connection")
			request.Header.Del("Upgrade")
		}),
		"watch/versions": lines(both(watches, func(request *http.Request) bool {
			return strings.Contains(request.URL.Path, "beta") || strings.Contains(request.URL.Path, "alpha")
		}),
			func(line []byte) []byte {
				return regexp.MustCompile(`/v\d+(alpha|beta)\d+","metadata"`).ReplaceAll(line, []byte(`/v0","metadata"`))
			}),
		"watch/many": lines(both(watches, without("resourceVersion")), func(line []byte) []byte {
			if bytes.Contains(line, []byte(`"name":"`)) && events.Add(1)%101 == 100 {
				return nil
			}
			return line
		}),
	}
}
