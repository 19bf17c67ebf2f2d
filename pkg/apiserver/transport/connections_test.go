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

package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

var protocols = []string{"http/1.1", "h2"}

// serve serves connections until the test ends.
func serve(t *testing.T, connections *Connections, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(connections.Handler(handler))
	server.EnableHTTP2 = true
	server.Listener = connections.Listener(server.Listener)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// newClient returns a client with one connection of its own.
func newClient(t *testing.T, protocol string) *http.Client {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: protocol == "h2", MaxConnsPerHost: 1,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}},
	}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func get(client *http.Client, url string) (*http.Response, error) {
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response, errors.Join(err, response.Body.Close())
}

// taken returns how much of the memory of strangers an address has.
func (c *Connections) taken(client string) int64 {
	left := int64(strangerBytes)
	for !c.memory.Take(client, left) {
		left--
	}
	c.memory.Give(client, left)
	return strangerBytes - left
}

// Connections beyond the bound are closed, and each one that ends makes room for another.
func TestConnectionsPerClient(t *testing.T) {
	const limit = 2
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := NewConnections(limits.Bounds{ConnectionsPerClient: limit}).Listener(tcp)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", tcp.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var open []net.Conn
	for range limit {
		dial()
		open = append(open, <-accepted)
	}
	requireRefused := func() {
		t.Helper()
		_, err := dial().Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	requireRefused()

	// One that has ended makes room for one, however often it is closed.
	for range 2 {
		_ = open[0].Close()
	}
	client := dial()
	next := <-accepted
	_, err = next.Write([]byte("your turn"))
	require.NoError(t, err)
	_, err = io.ReadFull(client, make([]byte, len("your turn")))
	require.NoError(t, err)
	requireRefused()

	_ = listener.Close()
	_, more := <-accepted
	require.False(t, more, "a listener that is closed accepts a connection")
}

// However many addresses have all the connections that they can, kube-apiserver gets some from the next one.
func TestConnectionsOfAddresses(t *testing.T) {
	number := NewConnections(limits.Bounds{ConnectionsPerClient: 512}).number
	var all int
	for _, want := range []int{512, 512, 128, 8, 8, 8, 8, 8} {
		got := 0
		for number.Take(strconv.Itoa(all), 1) {
			got++
		}
		require.Equal(t, want, got)
		all += got
	}
	for address := range 1000 {
		for number.Take("other "+strconv.Itoa(address), 1) {
			all++
		}
	}
	require.Equal(t, 3*512, all, "There are no more, whatever each one may have.")
}

// A connection with a front proxy's certificate has no bound. Others from its address do.
func TestConnectionsOfFrontProxy(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			server := serve(t, NewConnections(limits.Bounds{ConnectionsPerClient: 1}), func(_ http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/proxy" {
					Trust(req)
				}
			})
			for range 3 {
				_, err := get(newClient(t, protocol), server.URL+"/proxy")
				require.NoError(t, err)
			}
			_, err := get(newClient(t, protocol), server.URL)
			require.NoError(t, err)
			_, err = get(newClient(t, protocol), server.URL)
			require.Error(t, err, "A stranger has more connections than it may, beside the front proxy's.")
		})
	}
}

// The certificate of a connection is trusted for a minute.
func TestTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection := &conn{Conn: &net.TCPConn{}, all: NewConnections(limits.DefaultBounds())}
		req := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, address{conn: connection}), http.MethodGet, "/", nil)
		require.False(t, Trusted(req))
		Trust(req)
		time.Sleep(trustTime - time.Second)
		require.True(t, Trusted(req))
		time.Sleep(time.Second)
		require.False(t, Trusted(req))
	})
}

// Headers without end are read until the headers from their address would take too much memory, whether a
// front proxy has connections from there or not.
func TestStrangersMemory(t *testing.T) {
	const most = strangerBytes / headerFactor
	synctest.Test(t, func(t *testing.T) {
		connections := NewConnections(limits.DefaultBounds())
		connect := func(client string) *conn {
			server, peer := net.Pipe()
			go func() {
				for written := 1; written > 0; {
					written, _ = peer.Write(make([]byte, 1<<10))
				}
			}()
			t.Cleanup(func() { _ = peer.Close() })
			return &conn{Conn: server, all: connections, client: client, counted: true}
		}
		read := func(conn *conn, bytes int) error {
			_, err := io.ReadFull(conn, make([]byte, bytes))
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		proxy := connect("192.0.2.1")
		proxy.admit(true)
		first, second := connect("192.0.2.1"), connect("192.0.2.1")
		require.NotErrorIs(t, read(first, most/2), errStrangers)
		require.NotErrorIs(t, read(second, most/2), errStrangers)
		began := time.Now()
		require.ErrorIs(t, read(second, 2<<10), errStrangers)
		require.WithinRange(t, time.Now(), began.Add(patience), began.Add(patience+2*pause))

		require.NotErrorIs(t, read(proxy, 2*most), errStrangers)
		require.NotErrorIs(t, read(connect("192.0.2.2"), most/2), errStrangers)

		// One that waits goes on as soon as there is memory.
		time.AfterFunc(patience/2, func() { _ = first.Close() })
		require.NotErrorIs(t, read(second, 2<<10), errStrangers)
	})
}

// The memory of a connection is given back with its last request, or once a request is authorized.
func TestMemoryOfConnections(t *testing.T) {
	for _, protocol := range protocols {
		for name, test := range map[string]struct {
			user       *user.DefaultInfo
			authorized bool
		}{
			"nobody":    {nil, false},
			"anonymous": {&user.DefaultInfo{Name: user.Anonymous}, false},
			"a user":    {&user.DefaultInfo{Name: "anna"}, true},
		} {
			t.Run(name+" over "+protocol, func(t *testing.T) {
				connections := NewConnections(limits.DefaultBounds())
				var authorized bool
				server := serve(t, connections, func(_ http.ResponseWriter, req *http.Request) {
					if test.user != nil {
						req = req.WithContext(genericapirequest.WithUser(req.Context(), test.user))
					}
					Admit(req)
					authorized = !connOf(req.Context()).isStranger()
					_, _ = io.Copy(io.Discard, req.Body)
				})
				client := newClient(t, protocol)
				for n := range 50 {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(strings.Repeat("x", n<<10)))
					require.NoError(t, err)
					request.Header.Set("Padding", strings.Repeat("x", n%3*1_000))
					response, err := client.Do(request)
					require.NoError(t, err)
					require.NoError(t, response.Body.Close())
					require.Equal(t, test.authorized, authorized)
				}
				const small = 10_000 * headerFactor // HTTP/2 has other frames.
				require.Eventually(t, func() bool { return connections.taken("127.0.0.1") < small }, time.Minute, time.Millisecond)
			})
		}
	}
}

// Streams whose responses nobody reads count, although their handlers have returned.
func TestUnreadStreams(t *testing.T) {
	const streams = 10
	connections := NewConnections(limits.DefaultBounds())
	server := serve(t, connections, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "an answer") })
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, nil)
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for stream := range uint32(streams) {
		headers.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "server"}, {":path", "/"}} {
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*stream + 1, BlockFragment: headers.Bytes(), EndHeaders: true, EndStream: true}))
	}
	require.Eventually(t, func() bool {
		return framer.WritePing(false, [8]byte{}) == nil && connections.taken("127.0.0.1") >= streams*requestBytes
	}, time.Minute, time.Millisecond)
	for stream := range uint32(streams) {
		require.NoError(t, framer.WriteRSTStream(2*stream+1, http2.ErrCodeCancel))
	}
	require.Eventually(t, func() bool { return connections.taken("127.0.0.1") < requestBytes }, time.Minute, time.Millisecond)
}

// A connection whose client reads nothing ends in time.
func TestUnreadConnections(t *testing.T) {
	for name, test := range map[string]struct {
		deadline time.Duration
		next     bool
		want     time.Duration
	}{
		"a response":                     {0, false, stallTime},
		"a refusal":                      {time.Second, false, time.Second},
		"a longer response":              {time.Hour, false, stallTime},
		"a response to the next request": {time.Second, true, stallTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, peer := net.Pipe()
				defer func() { _ = peer.Close() }()
				conn := &conn{Conn: server, all: NewConnections(limits.DefaultBounds())}
				conn.begin(&http.Request{})
				began := time.Now()
				if test.deadline > 0 {
					require.NoError(t, conn.SetWriteDeadline(began.Add(test.deadline)))
				}
				if test.next {
					conn.done()
					conn.begin(&http.Request{})
				}
				_, err := io.WriteString(conn, "a part")
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, test.want, time.Since(began))
			})
		})
	}
}

// Clients of a server that leaves use another connection after the next response, until the port is closed.
func TestLeave(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			connections := NewConnections(limits.DefaultBounds())
			server, client := serve(t, connections, func(http.ResponseWriter, *http.Request) {}), newClient(t, protocol)
			reuses := func() (reused bool) {
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }})
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				require.NoError(t, err)
				response, err := client.Do(request)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				return reused
			}
			require.False(t, reuses())
			require.True(t, reuses())
			connections.leaving.Store(true)
			require.Eventually(t, func() bool { return !reuses() }, time.Minute, time.Millisecond)
			connections.Leave()
			_, err := net.Dial("tcp", server.Listener.Addr().String())
			require.Error(t, err, "the port is open")
		})
	}
}

// A server that stops waits for no client whose request has not begun.
func TestClientsThatBeginNothing(t *testing.T) {
	for name, test := range map[string]struct{ handshake, sent string }{
		"no handshake":                  {"", ""},
		"a part of a handshake":         {"", "\x16\x03\x01"},
		"no request":                    {"http/1.1", ""},
		"a part of a header":            {"http/1.1", "GET / HTTP/1.1\r\n"},
		"a preface of HTTP/2":           {"h2", http2.ClientPreface},
		"HTTP/2 that begins no request": {"h2", http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			connections := NewConnections(limits.DefaultBounds())
			server := serve(t, connections, func(http.ResponseWriter, *http.Request) {})
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			if test.handshake != "" {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{test.handshake}})
			}
			_, err = io.WriteString(conn, test.sent)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				connections.mu.Lock()
				defer connections.mu.Unlock()
				return len(connections.open) == 1
			}, time.Minute, time.Millisecond)
			const soon = 5 * time.Second // So long, net/http waits for a new connection, and for a minute if a handshake ends late.
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			require.NoError(t, server.Config.Shutdown(ctx))
		})
	}
}
