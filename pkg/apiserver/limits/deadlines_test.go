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
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
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
	const bodyTime, size = 30 * time.Second, 100 << 10
	for name, test := range map[string]struct {
		request string
		work    func(w http.ResponseWriter, req *http.Request) error
		want    time.Duration
	}{
		"a response": {get, func(w http.ResponseWriter, _ *http.Request) error {
			_, err := w.Write(make([]byte, size))
			return err
		}, responseTime},
		"a refusal": {get, func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusForbidden)
			_, err := w.Write(make([]byte, size))
			return err
		}, refusalTime},
		"a watch": {get, func(w http.ResponseWriter, _ *http.Request) error {
			w.(http.Flusher).Flush()
			_, err := w.Write(make([]byte, size))
			return err
		}, EventTime},
		"a watch by WebSocket": {get, func(w http.ResponseWriter, _ *http.Request) error {
			_, buffers, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, err = buffers.Write(make([]byte, size))
			}
			return err
		}, EventTime},
		"a body": {post, func(_ http.ResponseWriter, req *http.Request) error {
			_, err := io.ReadAll(req.Body)
			return err
		}, bodyTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				worked := make(chan error, 1)
				server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: WithDeadlines(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					worked <- test.work(w, req)
				}), bodyTime)}
				listener := newPipes()
				go func() { _ = server.Serve(listener) }()
				client, conn := net.Pipe()
				begun := time.Now()
				listener.next <- conn
				_, err := io.WriteString(client, test.request)
				require.NoError(t, err)
				require.ErrorIs(t, <-worked, os.ErrDeadlineExceeded)
				require.Equal(t, test.want.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond), "how long the client was waited for")
				_ = client.Close()
				_ = server.Close()
			})
		})
	}
}
