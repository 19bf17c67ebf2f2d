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
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// anyBody is a check that every body passes.
func anyBody(*http.Request, string, []byte) error { return nil }

func TestBodyMemory(t *testing.T) {
	const tooMuch = "other bodies take all the memory that there is for them, or for those of this user"
	bounds := DefaultBounds()
	bounds.RequestMemory = 400 * decodeFactor // 50 are for the cluster, and 50 for accounts that have none.
	text := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	for name, test := range map[string]struct {
		first, second, user, want string
	}{
		"a quarter for two of a user":          {text(43), text(44), "first", ""},
		"more for two of a user":               {text(44), text(44), "first", tooMuch},
		"half of the rest for another user":    {text(50), text(150), "second", ""},
		"more for another user":                {text(50), text(151), "second", tooMuch},
		"all for a user's only":                {text(300), "", "second", ""},
		"too many of all users":                {text(298), text(3), "second", tooMuch},
		"all for one of the cluster":           {text(300), text(100), "system:kube-controller-manager", ""},
		"more than all for one of the cluster": {text(300), text(101), "system:kube-controller-manager", tooMuch},
		"nothing":                              {text(100), "", "first", ""},
		"one that fits nowhere":                {"", text(351), "second", tooMuch},
		"none of a user beside too large":      {text(300), text(3), "first", tooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			post := func(body, user string) *http.Request {
				return requests.As(requests.WithInfo(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), "create"), user)
			}
			// While the first is worked on, the second arrives; then it is repeated.
			var handler http.Handler
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("First") != "" {
					for range 2 { // The memory of a refused one is given back.
						requests.RequireStatus(t, requests.Serve(handler, post(test.second, test.user)), test.want, http.StatusTooManyRequests)
					}
				}
			})
			handler = WithMemoryBounds(inner, requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<10, anyBody)
			for range 2 { // The memory of the first is given back.
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
		"two of a user that fit":   {43, 44, "first", "", true},
		"too many of a user":       {44, 44, "first", "", false},
		"of another user":          {50, 51, "second", "", true},
		"larger than any":          {0, 1000, "second", "", true},
		"beside one that is":       {1000, 1, "first", "", false},
		"of others beside one":     {1000, 100, "second", "", true},
		"YAML that fits":           {0, 25, "first", "application/yaml", true},
		"YAML that does not":       {13, 25, "first", "text/html, application/yaml;q=0.9", false},
		"JSON of the same length":  {1, 25, "first", "application/json", true},
		"YAML larger than any":     {0, 26, "second", "application/yaml", false},
		"if JSON will do":          {0, 26, "second", "application/json, application/yaml", true},
		"indented larger than any": {0, 26, "second", "application/json;pretty=1", false},
		"if JSON will do, too":     {0, 26, "second", "application/yaml, application/json;q=0.1", false},
		"indented that does not":   {13, 25, "first", "application/json;pretty=1", false},
	} {
		t.Run(name, func(t *testing.T) {
			list := func(user string) *http.Request {
				return requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), "list"), user)
			}
			var handler http.Handler
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("First") == "" {
					err := TakeListMemory(req.Context(), test.second, 0)
					assert.Equal(t, test.want, err == nil, "got error %v", err)
					return
				}
				for range 2 { // A request has only its last list.
					assert.NoError(t, TakeListMemory(req.Context(), test.first, 0))
				}
				second := list(test.user)
				second.Header.Set("Accept", test.accept)
				requests.Serve(handler, second)
			})
			handler = WithMemoryBounds(inner, requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<10, anyBody)
			for range 2 {
				first := list("first")
				first.Header.Set("First", "true")
				requests.Serve(handler, first)
			}
		})
	}
	require.NoError(t, TakeListMemory(context.Background(), 1<<40, 0), "not a request of a client")
}

// The answer to a deletecollection has the objects of all pages that it reads.
func TestPagesOfDeletedCollections(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 400 * listFactor
	for name, test := range map[string]struct {
		verb string
		want int64
	}{
		"a list":             {"list", 20},
		"a deletecollection": {"deletecollection", 30 + 20},
	} {
		t.Run(name, func(t *testing.T) {
			called := false
			inner := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				called = true
				s := req.Context().Value(reservationKey{}).(listReservation)
				for _, page := range []int64{30, 20} {
					assert.NoError(t, ReserveListMemory(req.Context(), 2*page))
					assert.NoError(t, TakeListMemory(req.Context(), page, 0))
				}
				assert.Equal(t, test.want*listFactor, s.used)
			})
			handler := WithMemoryBounds(inner, requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<10, anyBody)
			requests.Serve(handler, requests.As(requests.WithInfo(httptest.NewRequest(http.MethodDelete, "/", nil), test.verb), "first"))
			require.True(t, called)
		})
	}
}

// A list that may be as large as all memory can be read and sent beside a watch of the same account.
func TestLargeListsBesideWatches(t *testing.T) {
	for _, user := range []string{"first", "system:first"} {
		budget := newBudget(1 << 20)
		require.True(t, budget.reserve(accountOfUser(user)).take(1<<15))
		require.True(t, budget.reserve(accountOfUser("second")).take(1<<15))
		ctx := context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: budget.reserve(accountOfUser(user)), factor: listFactor})
		require.NoError(t, ReserveListMemory(ctx, 1<<30), user)
		require.NoError(t, TakeListMemory(ctx, 1<<30, 0), user)
	}
}

// A further page, which may have been read from etcd, fits where the first one did.
func TestReadPages(t *testing.T) {
	budget := newBudget(1 << 20)
	require.True(t, budget.reserve(accountOfUser("first")).take(1<<16))
	s := budget.reserve(accountOfUser("first"))
	ctx := context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: s, factor: listFactor})
	for _, test := range []struct{ bytes, read, want int64 }{
		{1 << 10, 0, 4 << 10},
		{1 << 10, 4 << 10, 16 << 10},
		{1 << 10, 1 << 20, 1 << 17},
		{1 << 15, 1 << 20, 1 << 17},
		{40 << 10, 1 << 20, 160 << 10},
	} {
		require.NoError(t, TakeListMemory(ctx, test.bytes, test.read))
		require.Equal(t, test.want, s.taken)
	}
}

// A client that prefers JSON, or does not say, gets it without indentation.
func TestIndentedByAccept(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                  false,
		"application/json":                  false,
		"application/yaml":                  true,
		"application/json,application/yaml": false,
		"application/yaml,application/json": true,
		"application/json;q=0.1,application/yaml":                             true,
		"application/yaml;q=0.1,application/json;q=0.2":                       false,
		"application/json;pretty=1":                                           true,
		"application/json;pretty=1,application/vnd.kubernetes.protobuf;q=0.1": true,
		"application/vnd.kubernetes.protobuf":                                 false,
		"application/vnd.kubernetes.protobuf,application/yaml":                true,
		"application/vnd.kubernetes.protobuf,application/json":                false,
		"application/vnd.example+json,application/yaml":                       true,
		"text/json,application/yaml":                                          true,
		"*/json,application/yaml":                                             true,
		"text/html,application/yaml;q=0.9,*/*;q=0.8":                          true,
		"text/html,*/*;q=0.8":                                                 false,
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json":       false,
		"application/json;as=Table;v=v1;g=meta.k8s.io":                        false,
		"application/json;as=Nothing;v=v1;g=example.com,application/yaml":     true,
	} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Accept", accept)
		require.Equal(t, want, prefersIndented(req), accept)
	}
}

// A list is indented only if its client asks for that, since that takes four times as much memory.
func TestIndentedLists(t *testing.T) {
	for name, test := range map[string]struct {
		verb, query, agent string
		wantQuery          string
		factor             int64
	}{
		"nothing is said":          {"list", "", "kubectl", "", listFactor},
		"a list by curl":           {"list", "limit=5", "curl/8", "limit=5&pretty=false", listFactor},
		"a browser":                {"list", "", "Mozilla/5.0", "pretty=false", listFactor},
		"an empty value":           {"list", "pretty", "Wget/1", "pretty=false", listFactor},
		"curl asks for it":         {"list", "pretty=true", "curl/8", "pretty=true", listFactorIndented},
		"curl wants none":          {"list", "pretty=0", "curl/8", "pretty=0", listFactor},
		"the escaped name":         {"list", "%70retty=true", "curl/8", "pretty=false", listFactor},
		"the escaped name for one": {"get", "%70retty=false", "curl/8", "%70retty=false", listFactorIndented},
		"something else asks":      {"list", "pretty=1", "kubectl", "pretty=1", listFactorIndented},
		"an object by curl":        {"get", "", "curl/8", "", listFactorIndented},
		"a deletecollection by it": {"deletecollection", "", "curl/8", "pretty=false", listFactor},
		"a value that is none":     {"list", "pretty=yes", "curl/8", "pretty=yes", listFactor},
	} {
		t.Run(name, func(t *testing.T) {
			called := false
			handler := WithMemoryBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				called = true
				assert.Equal(t, test.wantQuery, req.URL.RawQuery)
				assert.Equal(t, test.factor, req.Context().Value(reservationKey{}).(listReservation).factor)
			}), requests.NewCodecs(), requests.IsWatch, DefaultBounds(), NewWatches(DefaultBounds()), 1<<10, anyBody)
			req := requests.As(requests.WithInfo(httptest.NewRequest(http.MethodGet, "/?"+test.query, nil), test.verb), "first")
			req.Header.Set("User-Agent", test.agent)
			requests.Serve(handler, req)
			require.True(t, called)
		})
	}
}

// However many accounts take what they can, with one request each or with several, the next one finds some. Four that
// had a quarter each once left nothing.
func TestMemoryOfManyAccounts(t *testing.T) {
	const total = 256 << 20
	for name, requestsOfEach := range map[string]int{"one request each": 1, "several requests each": 3} {
		t.Run(name, func(t *testing.T) {
			memory := newBudget(total)
			takeMost := func(of account) int64 {
				reservation := memory.reserve(of)
				most := sort.Search(total/userPart, func(bytes int) bool {
					free := reservation.take(int64(bytes))
					reservation.release(false)
					return !free
				}) - 1
				require.True(t, reservation.take(int64(most)))
				return int64(most)
			}
			for i := range 10 {
				for range requestsOfEach {
					takeMost(account{user: fmt.Sprintf("attacker-%d", i)})
				}
			}
			require.Equal(t, int64(total/leastPart), takeMost(account{user: "innocent"}))
			require.GreaterOrEqual(t, takeMost(account{user: "system:apiserver", system: true}), int64(total/systemPart))
		})
	}
}

// The changes of a user count until watch caches forget them. They refuse no other requests, and the changes of no other
// user. Eight accounts with a quarter of all memory each once ended the server.
func TestHistoryMemory(t *testing.T) {
	const of, tooMuch = "first", "this user has changed as much of large objects of late as it leaves to others"
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("x", pastObject)}}
	size := sizeOf(reflect.ValueOf(object))
	for name, test := range map[string]struct {
		changes int
		user    string
		after   time.Duration
		err     string
	}{
		"less than half":                {2, of, 0, ""},
		"more than half":                {3, of, 0, tooMuch},
		"another user":                  {3, "second", 0, ""},
		"an account of the cluster":     {3, "system:apiserver", 0, ""},
		"before watch caches forget it": {3, of, HistoryTime - time.Second, tooMuch},
		"when watch caches forget it":   {3, of, HistoryTime + time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := newBudget(6 * size * historyPart)
				ctx := func(user string) context.Context {
					return context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: memory.reserve(accountOfUser(user)), factor: 1, object: 1})
				}
				for range test.changes {
					_, err := TakeHistoryMemory(ctx(of), object, 1)
					require.NoError(t, err)
				}
				time.Sleep(test.after)
				for range 2 { // Forgotten changes count no more.
					forget, err := TakeHistoryMemory(ctx(test.user), object, 1)
					if test.err != "" {
						require.EqualError(t, err, test.err)
					} else {
						require.NoError(t, err)
					}
					forget()
				}
				require.NoError(t, TakeListMemory(ctx(of), 6*size, 0))
				time.Sleep(2 * HistoryTime)
				synctest.Wait()
				require.Empty(t, memory.history.taken)
			})
		})
	}
}

// The work on a write goes on after the library has answered it, at the end of its time or after 34 seconds.
func TestWorkThatGoesOn(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 400 * listFactor
	for name, test := range map[string]struct {
		verb          string
		work, timeout time.Duration
		user          string
		want          bool
	}{
		"ended in time":                     {"create", time.Second, time.Minute, "first", true},
		"at the end of its time":            {"create", 2 * time.Second, time.Second, "first", false},
		"at the end of that of the library": {"patch", 34 * time.Second, time.Minute, "first", false},
		"of another user":                   {"create", 2 * time.Second, time.Second, "second", true},
		"a list":                            {"list", 2 * time.Second, time.Second, "first", true},
		"a deletecollection":                {"deletecollection", 2 * time.Second, time.Second, "first", true},
		"a watch":                           {"watch", time.Minute, time.Second, "first", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var work time.Duration
				var taken error
				handler := WithMemoryBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
					time.Sleep(work)
					taken = TakeListMemory(req.Context(), 100, 0)
				}), requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<10, anyBody)
				serve := func(verb, user string) error {
					ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
					defer cancel()
					req := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
					requests.RequireStatus(t, requests.Serve(handler, requests.As(requests.WithInfo(req, verb), user)), "", http.StatusOK)
					return taken
				}
				work = test.work
				require.NoError(t, serve(test.verb, "first"))
				work = 0
				require.Equal(t, test.want, serve("list", test.user) == nil)
				time.Sleep(HistoryTime)
				synctest.Wait()
				require.NoError(t, serve("list", test.user))
			})
		})
	}
}

// Bodies whose elements could all be invalid take the part of a user, for the square of how many there are.
func TestElementsMemory(t *testing.T) {
	const part, most = 1000, 100
	for name, test := range map[string]struct {
		before, elements int
		want             bool
	}{
		"all that there may be":             {0, most, true},
		"more, for an object that has them": {0, 10 * most, true},
		"half beside half":                  {most / 2, most / 2, true},
		"more beside half":                  {most / 2, 10 * most, false},
		"some beside all":                   {most, 4, false},
		"nothing beside all":                {most, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			memory := newBudget(userPart * part)
			take := func(elements int) error {
				reservation := memory.reserve(account{user: "first"})
				return TakeElementsMemory(context.WithValue(t.Context(), reservationKey{}, listReservation{reservation: reservation, factor: 1, object: 1}), elements, most)
			}
			require.NoError(t, take(test.before))
			err := take(test.elements)
			if test.want {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, "other bodies of many elements take all the memory that there is for them, or for those of this user")
			}
		})
	}
	require.NoError(t, TakeElementsMemory(t.Context(), 1<<40, 1), "not a request of a client")
}

// Over HTTP/2, the server holds a part of a body that nobody reads. One user's watches with bodies once ended it.
func TestBodiesOfWatches(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 400 * decodeFactor
	for name, test := range map[string]struct {
		verb string
		code int
	}{
		"a watch that goes on": {"watch", http.StatusTooManyRequests},
		"a list that ends":     {"list", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat("a", 80)
			var meanwhile []func()
			handler := WithMemoryBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				body, err := io.ReadAll(req.Body)
				assert.NoError(t, err)
				assert.Len(t, body, int(req.ContentLength))
				for _, next := range meanwhile {
					meanwhile = nil
					next()
				}
			}), requests.NewCodecs(), requests.IsWatch, bounds, Watches{NewShares(1 << 10)}, 1<<10, anyBody)
			serve := func(body string) int {
				return requests.Serve(handler, requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body)), test.verb)).Code
			}
			meanwhile = []func(){func() { assert.Equal(t, test.code, serve(text)) }, func() { assert.Equal(t, http.StatusOK, serve("")) }}
			require.Equal(t, http.StatusOK, serve(text))
		})
	}
}

// However many clients accept compressed responses, some get one, and the others an uncompressed one.
func TestCompressedResponses(t *testing.T) {
	var accepted []string
	var handler http.Handler
	request := func() *http.Request {
		req := requests.WithInfo(httptest.NewRequest(http.MethodGet, "/", nil), "list")
		req.Header.Set("Accept-Encoding", "gzip")
		return req
	}
	handler = WithMemoryBounds(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		accepted = append(accepted, req.Header.Get("Accept-Encoding"))
		if len(accepted) <= compressors {
			another := request()
			requests.Serve(handler, another)
			assert.NotEmpty(t, another.Header, "The library may read it at the same time.")
		}
	}), requests.NewCodecs(), requests.IsWatch, DefaultBounds(), NewWatches(DefaultBounds()), 1<<10, anyBody)
	want := append(slices.Repeat([]string{"gzip"}, compressors), "")
	for range 2 { // Those that have ended count no more.
		accepted = nil
		requests.Serve(handler, request())
		require.Equal(t, want, accepted)
	}
	accepted = make([]string, compressors)
	requests.Serve(handler, requests.WithInfo(request(), "watch"))
	require.Empty(t, accepted[compressors], "a watch")
}

func TestBrokenBody(t *testing.T) {
	memory := newBudget(1 << 20)
	reservation := memory.reserve(account{})
	failure := errors.New("broken")
	_, err := reservation.read(io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(failure)))
	require.ErrorIs(t, err, failure)
	reservation.release(false)
	require.Zero(t, memory.used)
	require.Empty(t, memory.users)
}

// A client that announces bodies, and sends next to nothing, takes memory from nobody. Five
// ServiceAccounts of one namespace once kept all lists of all users from the server that way.
func TestAnnouncedBodies(t *testing.T) {
	memory := newBudget(100 << 20)
	for range 1000 {
		reservation := memory.reserve(account{user: "first"})
		_, err := reservation.read(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrNoProgress)))
		require.ErrorIs(t, err, io.ErrNoProgress)
	}
	require.Equal(t, int64(1000*decodeFactor), memory.used)
}

func TestAccounts(t *testing.T) {
	for name, want := range map[string]account{
		"user":                                 {user: "user"},
		"system:anonymous":                     {user: "system:anonymous"},
		"system:serviceaccount:a:one":          {user: "system:serviceaccounts:a"},
		"system:serviceaccount:a:two":          {user: "system:serviceaccounts:a"},
		"system:serviceaccount:kube-system:gc": {user: "system:serviceaccount:kube-system:gc", system: true},
		"system:node:one":                      {user: "system:node:one", system: true},
		"system:kube-controller-manager":       {user: "system:kube-controller-manager", system: true},
	} {
		require.Equal(t, want, accountOf(requests.As(httptest.NewRequest(http.MethodGet, "/", nil), name)), name)
	}
	require.Zero(t, accountOf(httptest.NewRequest(http.MethodGet, "/", nil)), "a request without a user")
}
