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
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/testing/requests"
)

// pipes is a listener whose connections have no buffers.
type pipes struct {
	next   chan net.Conn
	closed chan struct{}
	end    func()
}

func newPipes() *pipes {
	p := &pipes{next: make(chan net.Conn), closed: make(chan struct{})}
	p.end = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.next:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.end(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A client that does not read a response, or does not go on with a body, is not waited for.
func TestDeadlines(t *testing.T) {
	const get, post = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
	const small, failure, socket = 1, 200 << 10, 300 << 10 // The small one is left to Flush, which reports no error.
	for name, test := range map[string]struct {
		request, verb string
		size          int
		// want is how long the client is waited for.
		want time.Duration
		// noWaits is set if others of the user are waited for already.
		noWaits bool
	}{
		"a response":                          {get, "get", 100 << 10, responseTime, false},
		"a large response":                    {get, "get", 1 << 20, responseTime, false},
		"a small response":                    {get, "get", small, responseTime, false},
		"a watch":                             {get, "watch", 100 << 10, EventTime, false},
		"a watch of small events":             {get, "watch", small, EventTime, false},
		"a watch by WebSocket":                {get, "watch", socket, EventTime, false},
		"a body":                              {post, "create", 0, bodyTime, false},
		"a response, one too many":            {get, "get", 100 << 10, slowAfter, true},
		"a watch, one too many":               {get, "watch", 100 << 10, EventTime, true},
		"a body, one too many":                {post, "create", 0, slowAfter, true},
		"a body until the request's deadline": {post, "update", 0, time.Second, false},
		"a refusal":                           {get, "refused", 100 << 10, responseTime, false},
		"a refusal, one too many":             {get, "refused", 100 << 10, slowAfter, true},
		"a watch that fails, one too many":    {get, "watch", failure, slowAfter, true},
		"a response to a stranger":            {get, "unknown", 100 << 10, responseTime, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := DefaultBounds()
				code := http.StatusBadRequest
				if test.noWaits {
					bounds.WaitsPerUser, code = 0, http.StatusTooManyRequests
				}
				worked := make(chan error, 1)
				work := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					var err error
					if test.size == failure {
						w.WriteHeader(http.StatusBadRequest)
					}
					if test.size == socket {
						var buffers *bufio.ReadWriter
						if _, buffers, err = w.(http.Hijacker).Hijack(); err == nil {
							_, err = buffers.Write(make([]byte, test.size))
						}
						worked <- err
						return
					}
					for range 2 { // The first write may fill buffers.
						if err == nil {
							_, err = w.Write(make([]byte, test.size))
						}
						if err == nil {
							w.(http.Flusher).Flush()
						}
					}
					worked <- err
				})
				allowed := WithMemoryBounds(work, requests.NewCodecs(), requests.IsWatch, bounds, NewWatches(bounds), 1<<20, anyBody)
				inner := WithResponseDeadlines(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if test.verb != "unknown" {
						NoteUser(req.Context(), "reader")
					}
					if test.verb == "refused" || test.verb == "unknown" {
						work.ServeHTTP(w, req)
						return
					}
					allowed.ServeHTTP(w, req)
				}), bounds)
				begun, ended := time.Now(), make(chan time.Duration, 1)
				server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if test.verb == "update" {
						ctx, cancel := context.WithTimeout(req.Context(), time.Second)
						defer cancel()
						req = req.WithContext(ctx)
					}
					inner.ServeHTTP(w, requests.WithInfo(req, test.verb))
					ended <- time.Since(begun)
				})}
				listener := newPipes()
				go func() { _ = server.Serve(listener) }()
				client, conn := net.Pipe()
				listener.next <- conn
				_, err := io.WriteString(client, test.request)
				require.NoError(t, err)
				if test.request == post {
					response, err := http.ReadResponse(bufio.NewReader(client), nil)
					require.NoError(t, err)
					defer response.Body.Close()
					require.Equal(t, code, response.StatusCode)
				} else if err := <-worked; test.size > small {
					require.Error(t, err, "what nobody reads has been written")
				}
				require.Equal(t, test.want.Round(time.Millisecond), (<-ended).Round(time.Millisecond), "how long the client was waited for")
				_ = client.Close()
				_ = server.Close()
			})
		})
	}
}
