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
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// chain is work with the bounds and the library's handlers around it that are special
// about clients that leave.
func chain(work http.HandlerFunc, bounds Bounds, timeout time.Duration) http.Handler {
	resolver := genericapiserver.NewRequestInfoResolver(&genericapiserver.Config{})
	longRunning := func(_ *http.Request, info *genericapirequest.RequestInfo) bool { return info.Verb == "watch" }
	handler := genericfilters.WithTimeoutForNonLongRunningRequests(WithClientsThatWait(work), longRunning)
	handler = genericapifilters.WithRequestDeadline(handler, nil, nil, longRunning, requests.NewCodecs(), timeout)
	handler = genericapifilters.WithRequestInfo(handler, resolver)
	return WithInFlightLimit(handler, requests.NewCodecs(), resolver, longRunning, forwardedFor, bounds)
}

// proxied is a header in place of the certificate of a front proxy, with the user.
const proxied = "Proxied"

func forwardedFor(req *http.Request) (string, bool) {
	user := req.Header.Get(proxied)
	return user, user != ""
}

// The library answers as soon as the client leaves, and goes on with the work.
func TestPendingUntilTheirEnd(t *testing.T) {
	const things, tooMany = "/apis/example.com/v1/things", "this server works on 1 requests already"
	synctest.Test(t, func(t *testing.T) {
		started, goOn := make(chan context.Context, 1), make(chan struct{})
		handler := chain(func(_ http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodPost {
				started <- req.Context()
				<-goOn
			}
		}, Bounds{RequestsInFlight: 1}, time.Minute)

		ctx, leave := context.WithCancel(t.Context())
		go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, things, nil))
		work := <-started
		leave()
		synctest.Wait()
		require.NoError(t, work.Err(), "the work has not gone on to its end")
		for name, test := range map[string]struct{ path, want string }{
			"another":        {things, tooMany},
			"a health check": {"/readyz/ping", ""},
		} {
			answer := requests.Serve(handler, httptest.NewRequest(http.MethodGet, test.path, nil))
			t.Log(name)
			requests.RequireStatus(t, answer, test.want, http.StatusTooManyRequests)
			if test.want != "" {
				require.NotEmpty(t, answer.Header().Get("Retry-After"))
			}
		}
		close(goOn)
		synctest.Wait()
		requests.RequireStatus(t, requests.Serve(handler, httptest.NewRequest(http.MethodGet, things, nil)), "", http.StatusOK)
	})
}

// The library answers when the time for a request is over, and goes on with the work.
func TestPendingAfterTheirTime(t *testing.T) {
	const things = "/apis/example.com/v1/things"
	started, goOn := make(chan struct{}), make(chan struct{})
	handler := chain(func(_ http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			close(started)
			<-goOn
		}
	}, Bounds{RequestsInFlight: 1}, time.Second)
	first := requests.Serve(handler, httptest.NewRequest(http.MethodPost, things, nil))
	<-started
	require.Equal(t, http.StatusGatewayTimeout, first.Code)
	requests.RequireStatus(t, requests.Serve(handler, httptest.NewRequest(http.MethodGet, things, nil)), "this server works on 1 requests already", http.StatusTooManyRequests)
	close(goOn)
	for requests.Serve(handler, httptest.NewRequest(http.MethodGet, things, nil)).Code != http.StatusOK {
		runtime.Gosched() // Its end is counted.
	}
}

// Direct clients leave a quarter to the front proxy, and what it asks about the server is answered
// whatever others do.
func TestPendingOfFrontProxy(t *testing.T) {
	const things, discovery = "/apis/example.com/v1/things", "/apis/example.com/v1"
	const ofAddress, ofUser = "this IP address has as many requests in this server already as it leaves to others", "this user has as many requests in this server already as it leaves to others"
	for name, test := range map[string]struct {
		own, others, proxied int
		path                 string
		byProxy              bool
		want                 string
	}{
		"direct, below its part":            {1, 3, 1, things, false, ""},
		"direct, beyond its address's part": {3, 0, 0, things, false, ofAddress},
		"direct, beside another address":    {0, 3, 0, things, false, ""},
		"direct, beside two addresses":      {0, 6, 0, things, false, ""},
		"direct, beyond what others leave":  {2, 4, 0, things, false, ofAddress},
		"direct, beyond the part of all":    {1, 0, 6, things, false, ofAddress},
		"direct, discovery":                 {3, 0, 0, discovery, false, ofAddress},
		"forwarded, beside direct ones":     {3, 3, 0, things, true, ""},
		"forwarded, beside other forwarded": {0, 0, 7, things, true, ofUser},
		"forwarded, discovery":              {0, 0, 8, discovery, true, ""},
		"forwarded, OpenAPI":                {3, 3, 2, "/openapi/v3", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				handler := chain(func(_ http.ResponseWriter, req *http.Request) {
					if req.Method == http.MethodPost {
						<-goOn
					}
				}, Bounds{RequestsInFlight: 8}, time.Minute)
				request := func(method, path string, byProxy bool) *http.Request {
					req := httptest.NewRequest(method, path, nil)
					if byProxy {
						req.Header.Set(proxied, "true")
					}
					return req
				}
				for range test.own {
					go requests.Serve(handler, request(http.MethodPost, things, false))
				}
				synctest.Wait()
				for i := range test.others {
					other := request(http.MethodPost, things, false)
					other.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", i/3)
					go requests.Serve(handler, other)
					synctest.Wait()
				}
				for i := range test.proxied {
					forwarded := request(http.MethodPost, things, true)
					forwarded.Header.Set(proxied, fmt.Sprintf("user-%d", i))
					go requests.Serve(handler, forwarded)
				}
				synctest.Wait()
				requests.RequireStatus(t, requests.Serve(handler, request(http.MethodGet, test.path, test.byProxy)), test.want, http.StatusTooManyRequests)
				close(goOn)
				synctest.Wait()
				for range 3 { // All counts have ended.
					requests.RequireStatus(t, requests.Serve(handler, request(http.MethodGet, things, false)), "", http.StatusOK)
				}
			})
		})
	}
}

// An account has as many forwarded requests as it leaves to others, unless it is one of the cluster itself.
func TestPendingOfForwardedAccounts(t *testing.T) {
	const ofUser, ofAll = "this user has as many requests in this server already as it leaves to others", "this server works on 8 requests already"
	const one, two, other = "system:serviceaccount:a:one", "system:serviceaccount:a:two", "system:serviceaccount:b:one"
	for name, test := range map[string]struct {
		direct int
		// pending are the users of requests, four of each.
		pending []string
		user    string
		want    string
	}{
		"as many as are left":                    {0, []string{"first"}, "first", ofUser},
		"another user":                           {0, []string{"first"}, "second", ""},
		"beside direct ones":                     {3, []string{"first"}, "first", ofUser},
		"another user beside direct ones":        {3, []string{"first"}, "second", ""},
		"another ServiceAccount":                 {0, []string{one}, two, ofUser},
		"a ServiceAccount of another namespace":  {0, []string{one}, other, ""},
		"anonymous":                              {0, []string{"system:anonymous"}, "system:anonymous", ofUser},
		"of the cluster":                         {0, []string{"system:kube-scheduler"}, "system:kube-scheduler", ""},
		"of the cluster, beside all others":      {0, []string{"first", "second", "third", "fourth"}, "system:apiserver", ""},
		"beside all others":                      {0, []string{"first", "second", "third", "fourth"}, "fifth", ofUser},
		"of the cluster, beyond the part of all": {0, []string{"system:kube-scheduler", "system:apiserver"}, "system:apiserver", ofAll},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				goOn := make(chan struct{})
				handler := chain(func(_ http.ResponseWriter, req *http.Request) {
					if req.Method == http.MethodPost {
						<-goOn
					}
				}, Bounds{RequestsInFlight: 8}, time.Minute)
				by := func(method, user string) *http.Request {
					req := httptest.NewRequest(method, "/apis/example.com/v1/things", nil)
					req.Header.Set(proxied, user)
					return req
				}
				for range test.direct {
					go requests.Serve(handler, by(http.MethodPost, ""))
				}
				synctest.Wait()
				for _, user := range test.pending {
					for range 4 {
						go requests.Serve(handler, by(http.MethodPost, user))
						synctest.Wait()
					}
				}
				requests.RequireStatus(t, requests.Serve(handler, by(http.MethodGet, test.user)), test.want, http.StatusTooManyRequests)
				close(goOn)
				synctest.Wait()
				requests.RequireStatus(t, requests.Serve(handler, by(http.MethodGet, test.user)), "", http.StatusOK)
			})
		})
	}
}

// Long-running requests count while they wait for their authorization. Thousands once did, with queries of 250 KB each.
// Kube-apiserver has authorized those that it forwards before.
func TestLongRunningUntilAuthorized(t *testing.T) {
	const watches, profiles, reads = "/apis/example.com/v1/things?watch=1", "/debug/pprof/1", "/apis/example.com/v1/things"
	const tooMany = "this IP address has as many requests in this server already as it leaves to others"
	for name, test := range map[string]struct {
		path, another         string
		forwarded, authorized bool
		want                  string
	}{
		"watches":                  {watches, watches, false, false, tooMany},
		"profiles":                 {profiles, profiles, false, false, tooMany},
		"a read beside watches":    {watches, reads, false, false, tooMany},
		"authorized watches":       {watches, watches, false, true, ""},
		"authorized profiles":      {profiles, profiles, false, true, ""},
		"a read beside authorized": {watches, reads, false, true, ""},
		"forwarded watches":        {watches, watches, true, false, ""},
		"a read beside forwarded":  {watches, reads, true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resolver := genericapiserver.NewRequestInfoResolver(&genericapiserver.Config{})
				longRunning := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), nil)
				var waiting, working atomic.Int64
				stay := func(req *http.Request, in *atomic.Int64) {
					if req.Header.Get("Stay") != "" {
						in.Add(1)
						<-req.Context().Done()
						in.Add(-1)
					}
				}
				work := WithClientsThatWait(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { stay(req, &working) }))
				handler := WithInFlightLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if !test.authorized {
						stay(req, &waiting)
					}
					work.ServeHTTP(w, req)
				}), requests.NewCodecs(), resolver, longRunning, forwardedFor, Bounds{RequestsInFlight: 2})

				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				for range 10 {
					req := httptest.NewRequestWithContext(ctx, http.MethodGet, test.path, nil)
					req.Header.Set("Stay", "true")
					if test.forwarded {
						req.Header.Set(proxied, "true")
					}
					go requests.Serve(handler, req)
					synctest.Wait()
				}
				switch {
				case test.authorized:
					require.Equal(t, int64(10), working.Load())
				case test.forwarded:
					require.Equal(t, int64(10), waiting.Load())
				default:
					require.Equal(t, int64(1), waiting.Load())
				}
				another := httptest.NewRequest(http.MethodGet, test.another, nil)
				requests.RequireStatus(t, requests.Serve(handler, another), test.want, http.StatusTooManyRequests)
				leave()
				synctest.Wait()
				require.Zero(t, waiting.Load()+working.Load(), "They have not ended with their clients.")
				requests.RequireStatus(t, requests.Serve(handler, another), "", http.StatusOK)
			})
		})
	}
}

// A request that its client gives up while it waits for its turn is no failure of the server, and no work.
func TestGivenUpBeforeItsTurn(t *testing.T) {
	resolver := genericapiserver.NewRequestInfoResolver(&genericapiserver.Config{})
	ctx, leave := context.WithCancel(t.Context())
	work := WithClientsThatWait(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "there was work on the request") }))
	handler := WithInFlightLimit(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		leave()
		work.ServeHTTP(w, req)
	}), requests.NewCodecs(), resolver, requests.IsWatch, forwardedFor, Bounds{RequestsInFlight: 1})
	got := requests.Serve(handler, httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis/example.com/v1/things", nil))
	require.Equal(t, 499, got.Code)
}

// A client that resets each of its streams once had as many requests in work as it
// could send, and the memory for them.
func TestRapidResets(t *testing.T) {
	const streams, sent = 10, 1000
	var working, most atomic.Int64
	goOn := make(chan struct{})
	server := httptest.NewUnstartedServer(chain(func(http.ResponseWriter, *http.Request) {
		now := working.Add(1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		<-goOn
		working.Add(-1)
	}, DefaultBounds(), time.Minute))
	server.EnableHTTP2 = true
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	server.StartTLS()
	defer server.Close()
	defer close(goOn)

	trust := server.Client().Transport.(*http.Transport).TLSClientConfig
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{RootCAs: trust.RootCAs, ServerName: "example.com", NextProtos: []string{"h2"}})
	require.NoError(t, err)
	defer conn.Close()
	go resetStreams(conn, sent)

	framer := http2.NewFramer(io.Discard, conn)
	for {
		frame, err := framer.ReadFrame()
		require.NoError(t, err, "the server ended the connection without a reason")
		if goAway, ok := frame.(*http2.GoAwayFrame); ok {
			require.Equal(t, http2.ErrCodeEnhanceYourCalm, goAway.ErrCode)
			break
		}
	}
	require.LessOrEqual(t, most.Load(), int64(streams), "requests in work at once")
}

// resetStreams opens streams over a connection and resets each at once.
func resetStreams(conn net.Conn, n uint32) {
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
		// Sensitive fields are not remembered, so that each block stands by itself.
		{Name: ":authority", Value: "example.com", Sensitive: true}, {Name: ":path", Value: "/apis/example.com/v1/things", Sensitive: true},
	} {
		_ = encoder.WriteField(field)
	}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, nil)
	_ = framer.WriteSettings()
	for i := range n {
		stream := 2*i + 1
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndStream: true, EndHeaders: true}) != nil ||
			framer.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			return // The server has ended the connection, which is what is tested.
		}
	}
}

// TestGivenUpBeforeItBegins does nothing for a client that has left already.
func TestGivenUpBeforeItBegins(t *testing.T) {
	handler := chain(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "there was work on the request") }, Bounds{RequestsInFlight: 1}, time.Minute)
	request := httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/things", nil)
	ctx, leave := context.WithCancel(request.Context())
	leave()
	handler.ServeHTTP(httptest.NewRecorder(), request.WithContext(ctx))
}
