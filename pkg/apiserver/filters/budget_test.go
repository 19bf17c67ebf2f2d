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

package filters

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBodyMemory(t *testing.T) {
	const tooMuch = "the bodies of other requests take all the memory there is for them"
	bounds := DefaultBounds()
	bounds.BodyMemory = 100 * decodeFactor
	text := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	for name, test := range map[string]struct{ first, second, want string }{
		"two that fit":          {text(50), text(50), ""},
		"one too many":          {text(50), text(51), tooMuch},
		"nothing":               {text(100), "", ""},
		"one that does not fit": {"", text(101), tooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			post := func(body string) *http.Request {
				return withInfo(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), "create")
			}
			// While the first is worked on, the second arrives; then it is repeated.
			var handler http.Handler
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("First") != "" {
					requireStatus(t, serve(handler, post(test.second)), test.want, http.StatusTooManyRequests)
				}
			})
			handler = WithBodyBounds(inner, newCodecs(), bounds, 1<<10)
			for range 2 { // What the first has taken is given back.
				first := post(test.first)
				first.Header.Set("First", "true")
				requireStatus(t, serve(handler, first), "", http.StatusOK)
			}
		})
	}
}

func TestBrokenBody(t *testing.T) {
	memory := newBudget(1 << 20)
	share := memory.share()
	failure := errors.New("broken")
	if _, err := share.read(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(failure))); !errors.Is(err, failure) {
		t.Errorf("got error %v, want %v", err, failure)
	}
	share.release()
	if used := memory.used.Load(); used != 0 {
		t.Errorf("%d bytes are still taken", used)
	}
}
