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
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/internal/testing/requests"
)

const mebibyte = 1 << 20

func admit(*http.Request) {}

// While the first request is worked on, the second arrives.
func TestGate(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 40 * mebibyte // An account may have 10.
	text := func(mebibytes int) string {
		return `"` + strings.Repeat("a", mebibytes*mebibyte/textFactor) + `"`
	}
	const tooMany = "too many large bodies at once; retry"
	for name, test := range map[string]struct {
		first, second, user, want string
	}{
		"two of a user":               {text(4), text(4), "first", ""},
		"too large ones of a user":    {text(6), text(6), "first", tooMany},
		"too large ones of two users": {text(6), text(6), "second", ""},
		"one as large as may be":      {text(1), text(17), "second", ""},
		"another small one":           {text(17), `"a"`, "first", ""},
		"ServiceAccounts":             {text(6), text(6), "system:serviceaccount:b:a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			post := func(body, user string) *http.Request {
				return requests.As(requests.WithInfo(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), "create"), user)
			}
			var handler http.Handler
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("First") != "" {
					for range 2 { // The memory of a refused one is given back.
						requests.RequireStatus(t, requests.Serve(handler, post(test.second, test.user)), test.want, http.StatusTooManyRequests)
					}
				}
			})
			handler = WithGate(inner, requests.NewCodecs(), requests.IsWatch, bounds, 3*mebibyte, admit)
			for range 2 { // The memory of the first is given back.
				first := post(test.first, "first")
				first.Header.Set("First", "true")
				requests.RequireStatus(t, requests.Serve(handler, first), "", http.StatusOK)
			}
		})
	}
}

// The handlers inside read the body that has been checked.
func TestBodies(t *testing.T) {
	const maxBody = 100
	for name, test := range map[string]struct{ verb, body, read, want string }{
		"a body":             {"create", `{"a":1}`, `{"a":1}`, ""},
		"none":               {"delete", "", "", ""},
		"one that is bad":    {"create", `{"a":1e-999999999}`, "", "a number has more than 256 characters…"},
		"one too large":      {"create", strings.Repeat("x", maxBody+2), strings.Repeat("x", maxBody+2), ""},
		"one that is unread": {"get", `{"a":1e-999999999}`, `{"a":1e-999999999}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var read []byte
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				var err error
				read, err = io.ReadAll(req.Body)
				assert.NoError(t, err)
			})
			handler := WithGate(inner, requests.NewCodecs(), requests.IsWatch, DefaultBounds(), maxBody, admit)
			request := requests.As(requests.WithInfo(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body)), test.verb), "anna")
			requests.RequireStatus(t, requests.Serve(handler, request), test.want, http.StatusBadRequest)
			require.Equal(t, test.read, string(read))
		})
	}
}

func TestReserve(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 40 * mebibyte // An account may have 10.
	list := func(mebibytes int64) func(context.Context) error {
		return func(ctx context.Context) error { return ReserveList(ctx, mebibytes*mebibyte/listFactor) }
	}
	object := func(mebibytes int64) func(context.Context) error {
		return func(ctx context.Context) error { return ReserveObject(ctx, mebibytes*mebibyte/listFactor) }
	}
	const lists, objects = "too many large lists at once; retry", "too many large objects at once; retry"
	const indented = `the list is too large to be indented: ask for JSON with "pretty=false", or for pages by "limit"`
	for name, test := range map[string]struct {
		first         func(context.Context) error
		second        func(context.Context) error
		verb, target  string
		accept, agent string
		want          string
	}{
		"lists":                      {list(5), list(5), "list", "/", "", "", ""},
		"too large lists":            {list(5), list(6), "list", "/", "", "", lists},
		"a small list":               {list(10), list(1), "list", "/", "", "", ""},
		"objects":                    {object(5), object(5), "get", "/", "", "", ""},
		"too large objects":          {object(5), object(6), "get", "/", "", "", objects},
		"objects that are changed":   {object(5), object(2), "patch", "/", "", "", objects},
		"YAML":                       {list(8), list(2), "list", "/", "application/yaml", "", lists},
		"larger YAML":                {list(1), list(3), "list", "/", "application/yaml", "", indented},
		"YAML if need be":            {list(1), list(3), "list", "/", "application/json, application/yaml", "", indented},
		"JSON if need be":            {list(1), list(3), "list", "/", "application/yaml, application/json;q=0.1", "", indented},
		"indented JSON":              {list(1), list(3), "list", "/?pretty=true", "", "", indented},
		"indented by Accept":         {list(1), list(3), "list", "/", "application/json;pretty=1", "", indented},
		"curl":                       {list(1), list(3), "list", "/", "*/*", "curl/8.1", indented},
		"curl that asks for compact": {list(1), list(3), "list", "/?pretty=false", "*/*", "curl/8.1", ""},
		"an indented object":         {object(8), object(2), "get", "/", "application/yaml", "", objects},
	} {
		t.Run(name, func(t *testing.T) {
			var handler http.Handler
			var err error
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("First") == "" {
					err = test.second(req.Context())
					return
				}
				assert.NoError(t, test.first(req.Context()))
				second := requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, test.target, nil), test.verb), "anna")
				second.Header.Set("Accept", test.accept)
				second.Header.Set("User-Agent", test.agent)
				requests.Serve(handler, second)
			})
			handler = WithGate(inner, requests.NewCodecs(), requests.IsWatch, bounds, mebibyte, admit)
			first := requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), "get"), "anna")
			first.Header.Set("First", "true")
			requests.Serve(handler, first)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
	require.NoError(t, ReserveList(t.Context(), 1<<40), "no request of a client")
	require.NoError(t, ReserveObject(t.Context(), 1<<40), "no request of a client")
}

// The answer to a deletecollection has all of its pages.
func TestDeletedPages(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 40 * mebibyte
	for verb, want := range map[string]int64{"list": 2 * mebibyte, "deletecollection": 6 * mebibyte} {
		handler := WithGate(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			for range 3 {
				assert.NoError(t, ReserveList(req.Context(), 2*mebibyte/listFactor))
			}
			assert.Equal(t, want, req.Context().Value(reservationKey{}).(*reservation).has(), verb)
		}), requests.NewCodecs(), requests.IsWatch, bounds, mebibyte, admit)
		requests.Serve(handler, requests.As(requests.WithInfo(httptest.NewRequest(http.MethodDelete, "/", nil), verb), "anna"))
	}
}

func TestWatchesOfAccounts(t *testing.T) {
	bounds := DefaultBounds()
	bounds.WatchesPerUser = 2
	for user, want := range map[string]string{
		"anna":                                `too many watches and streams for user "anna" (limit 2, see --max-watches-per-user)`,
		"system:serviceaccount:a:one":         `too many watches and streams for user "system:serviceaccounts:a" (limit 2, see --max-watches-per-user)`,
		"system:anonymous":                    `too many watches and streams for user "system:anonymous" (limit 2, see --max-watches-per-user)`,
		"system:kube-controller-manager":      "",
		"system:serviceaccount:kube-system:a": "",
	} {
		t.Run(user, func(t *testing.T) {
			watch := func() *http.Request {
				return requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), "watch"), user)
			}
			depth := 0
			var handler http.Handler
			handler = WithGate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if depth++; depth == 1 {
					requests.RequireStatus(t, requests.Serve(handler, watch()), "", http.StatusOK)
				} else if depth == 2 {
					requests.RequireStatus(t, requests.Serve(handler, watch()), want, http.StatusTooManyRequests)
				}
			}), requests.NewCodecs(), requests.IsWatch, bounds, mebibyte, admit)
			for range 2 { // Those that have ended do not count.
				depth = 0
				requests.RequireStatus(t, requests.Serve(handler, watch()), "", http.StatusOK)
			}
		})
	}
}

// Clients that leave are no failures of the server.
func TestClientsThatLeave(t *testing.T) {
	for name, test := range map[string]struct {
		early bool
		want  int
	}{
		"before the work": {true, statusClientClosedRequest},
		"during it":       {false, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
			defer leave()
			handler := WithGate(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				leave()
				_, ends := req.Context().Deadline()
				assert.True(t, ends)
				assert.NoError(t, req.Context().Err())
			}), requests.NewCodecs(), requests.IsWatch, DefaultBounds(), mebibyte, admit)
			if test.early {
				leave()
			}
			request := requests.As(requests.WithInfo(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), "get"), "anna")
			require.Equal(t, test.want, requests.Serve(handler, request).Code)
		})
	}
}
