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

package limits

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// anyBody is a check that every body passes.
func anyBody(*http.Request, string, []byte) error { return nil }

func TestBodyMemory(t *testing.T) {
	const tooMuch = "other bodies take all the memory that there is for them, or for those of this user"
	bounds := DefaultBounds()
	bounds.RequestMemory = 400 * decodeFactor
	text := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	for name, test := range map[string]struct {
		first, second, user, want string
	}{
		"two of a user that fit":          {text(50), text(50), "first", ""},
		"too many of a user":              {text(50), text(51), "first", tooMuch},
		"of another user":                 {text(50), text(51), "second", ""},
		"a user's only":                   {text(300), text(100), "second", ""},
		"too many of all users":           {text(300), text(101), "second", tooMuch},
		"nothing":                         {text(100), "", "first", ""},
		"one that fits nowhere":           {"", text(401), "second", tooMuch},
		"none of a user beside too large": {text(300), text(3), "first", tooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			post := func(body, user string) *http.Request {
				return requests.As(requests.WithInfo(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), "create"), user)
			}
			// While the first is worked on, the second arrives; then it is repeated.
			var handler http.Handler
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("First") != "" {
					for _, length := range []int64{int64(len(test.second)), -1} {
						second := post(test.second, test.user)
						second.ContentLength = length
						requests.RequireStatus(t, requests.Serve(handler, second), test.want, http.StatusTooManyRequests)
					}
				}
			})
			handler = WithMemoryBounds(inner, requests.NewCodecs(), requests.IsWatch, bounds, 1<<10, anyBody)
			for range 2 { // What the first has taken is given back.
				first := post(test.first, "first")
				first.Header.Set("First", "true")
				requests.RequireStatus(t, requests.Serve(handler, first), "", http.StatusOK)
			}
		})
	}
}

func TestListMemory(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 400 * listFactor
	for name, test := range map[string]struct {
		first, second int64
		user, accept  string
		want          bool
	}{
		"two of a user that fit":  {50, 50, "first", "", true},
		"too many of a user":      {50, 51, "first", "", false},
		"of another user":         {50, 51, "second", "", true},
		"larger than any":         {0, 1000, "second", "", true},
		"beside one that is":      {1000, 1, "first", "", false},
		"of others beside one":    {1000, 100, "second", "", true},
		"YAML that fits":          {0, 25, "first", "application/yaml", true},
		"YAML that does not":      {1, 25, "first", "text/html, application/yaml;q=0.9", false},
		"JSON of the same length": {1, 25, "first", "application/json", true},
	} {
		t.Run(name, func(t *testing.T) {
			list := func(user string) *http.Request {
				return requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), "list"), user)
			}
			var handler http.Handler
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("First") == "" {
					if err := TakeListMemory(req.Context(), test.second); (err == nil) != test.want {
						t.Errorf("got error %v", err)
					}
					return
				}
				for range 2 { // A request has only its last list.
					if err := TakeListMemory(req.Context(), test.first); err != nil {
						t.Error(err)
					}
				}
				second := list(test.user)
				second.Header.Set("Accept", test.accept)
				requests.Serve(handler, second)
			})
			handler = WithMemoryBounds(inner, requests.NewCodecs(), requests.IsWatch, bounds, 1<<10, anyBody)
			for range 2 {
				first := list("first")
				first.Header.Set("First", "true")
				requests.Serve(handler, first)
			}
		})
	}
	if err := TakeListMemory(context.Background(), 1<<40); err != nil {
		t.Errorf("what is not a request of a client: %v", err)
	}
}

// What a user has changed or deleted counts for that user only, until watch caches forget it.
func TestHistoryMemory(t *testing.T) {
	const part, bytes = 100, 10
	for name, test := range map[string]struct {
		history int64
		user    string
		after   time.Duration
		want    bool
	}{
		"another user":                           {userPart * part, "ben", 0, true},
		"another user after more than there is":  {100 * userPart * part, "ben", 0, true},
		"the user with less than a part":         {part - bytes, "anna", 0, true},
		"the user with a part":                   {part, "anna", 0, false},
		"the user, before it is forgotten":       {part, "anna", historyTime - time.Second, false},
		"the user, when it is forgotten":         {part, "anna", historyTime + time.Second, true},
		"the user, when much has been forgotten": {100 * userPart * part, "anna", historyTime + time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := newBudget(userPart*part, DefaultBounds().WaitsPerUser)
				memory.keep("anna", test.history)
				time.Sleep(test.after)
				reservation := memory.reserve(test.user)
				if got := reservation.take(bytes); got != test.want {
					t.Errorf("got %v, want %v", got, test.want)
				}
				reservation.release()
				time.Sleep(2 * historyTime)
				synctest.Wait()
				if memory.used != 0 || len(memory.users) != 0 {
					t.Errorf("%d bytes are still taken, of %v", memory.used, memory.users)
				}
			})
		})
	}
}

func TestBrokenBody(t *testing.T) {
	memory := newBudget(1<<20, DefaultBounds().WaitsPerUser)
	reservation := memory.reserve("")
	failure := errors.New("broken")
	if _, err := reservation.read(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(failure)), -1); !errors.Is(err, failure) {
		t.Errorf("got error %v, want %v", err, failure)
	}
	reservation.release()
	if memory.used != 0 || len(memory.users) != 0 {
		t.Errorf("%d bytes are still taken, of %v", memory.used, memory.users)
	}
}
