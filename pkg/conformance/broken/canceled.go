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
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

func canceled() map[string]Transport {
	return map[string]Transport{
		// It takes what has come for the whole.
		"canceled/half-body": requests(method(http.MethodPost), func(request *http.Request) {
			if came, err := io.ReadAll(request.Body); err != nil {
				request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(came)), int64(len(came))
			} else {
				request.Body = io.NopCloser(bytes.NewReader(came))
			}
		}),
		"canceled/survived": survived,
		"canceled/uncounted": answers(path("/metrics"), func() func(*http.Request, *http.Response) {
			var failures atomic.Int64
			return func(_ *http.Request, response *http.Response) {
				body, _ := io.ReadAll(response.Body)
				// Each scrape has more failed requests than the one before.
				failed := bytes.ReplaceAll(body, []byte(`code="200"`), []byte(`code="500"`))
				failed = bytes.ReplaceAll(failed, []byte("} "), []byte("} "+strings.Repeat("9", int(failures.Add(1)))))
				replace(response, append(body, failed...))
			}
		}()),
		"canceled/slow-reader": lines(func(request *http.Request) bool {
			return watches(request) && request.URL.Query().Get("allowWatchBookmarks") == "false"
		}, func(line []byte) []byte {
			if bytes.Contains(line, []byte(`"padding":"7x`)) {
				return nil
			}
			return line
		}),
	}
}

// survived answers no request of an object that a client has gone away from.
func survived(next http.RoundTripper) http.RoundTripper {
	var gone atomic.Bool
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		switch {
		case !strings.Contains(request.URL.Path, "-gone"):
		case err != nil && context.Cause(request.Context()) != nil:
			gone.Store(true)
		case err == nil && gone.Load():
			response.StatusCode = http.StatusServiceUnavailable
		}
		return response, err
	})
}
