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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// Connections beyond the bound are closed, and each one that ends makes room for another.
func TestConnectionsPerClient(t *testing.T) {
	const limit = 2
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := BoundConnections(tcp, limits.Bounds{ConnectionsPerClient: limit})
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
	listener := BoundConnections(nil, limits.Bounds{ConnectionsPerClient: 512}).(*boundedListener)
	var all int
	for _, want := range []int{512, 512, 128, 8, 8, 8, 8, 8} {
		got := 0
		for listener.shares.Take(strconv.Itoa(all), 1) {
			got++
		}
		require.Equal(t, want, got)
		all += got
	}
	for address := range 1000 {
		for listener.shares.Take("other "+strconv.Itoa(address), 1) {
			all++
		}
	}
	require.Equal(t, 3*512, all, "There are no more, whatever each one may have.")
}

// holds returns how much of what a client may have the server holds.
func (l *boundedListener) holds(client string) int64 {
	left := int64(heldBytes)
	for !l.held.Take(client, left) {
		left--
	}
	l.held.Give(client, left)
	return heldBytes - left
}

// All connections of a client share a bound on the memory that the server holds for them, until their requests end.
func TestHeldBytes(t *testing.T) {
	const client = "192.0.2.1"
	listener := BoundConnections(nil, limits.DefaultBounds()).(*boundedListener)
	server, peer := net.Pipe()
	t.Cleanup(func() { _ = peer.Close() })
	conn := &boundedConn{Conn: server, listener: listener, client: client, factor: handshakeFactor}
	require.True(t, listener.shares.Take(client, 1))
	receive := func(bytes int) error {
		go func() { _, _ = peer.Write(make([]byte, bytes)) }()
		_, err := io.ReadFull(conn, make([]byte, bytes))
		return errors.Join(err, conn.wait())
	}
	const certificates, headers, block = 9_000 * certificateFactor, 5_000 * headerFactor, 4_000 * blockFactor
	for _, step := range []struct {
		name string
		do   func() error
		want int
	}{
		{"a part of a handshake", func() error { return receive(1_000) }, 1_000 * handshakeFactor},
		{"more of it", func() error { return receive(2_000) }, 3_000 * handshakeFactor},
		{"its end, with certificates", func() error { return endHandshake(conn, []*x509.Certificate{{Raw: make([]byte, 9_000)}}) }, certificates},
		{"a part of headers", func() error { return receive(5_000) }, certificates + headers},
		{"their request", func() error { conn.begin(); return receive(100_000) }, certificates + headers},
		{"its end", func() error { conn.expect(headerFactor); return nil }, certificates},
		{"HTTP/2", func() error { conn.expect(0); return receive(100_000) }, certificates},
		{"headers of several frames", func() error { require.True(t, conn.hold(forRequest, 4_000*blockFactor)); return nil }, certificates + block},
		{"more than it may have", func() error { require.False(t, conn.hold(forRequest, heldBytes*blockFactor)); return nil }, certificates + block},
		{"their end", func() error { require.True(t, conn.hold(forRequest, 0*blockFactor)); return nil }, certificates},
		{"streams", func() error { require.True(t, conn.open(2)); return nil }, certificates + 2*int(listener.streamBytes)},
		{"the end", conn.Close, 0},
		{"another end", conn.Close, 0},
		{"what comes later", func() error { require.True(t, conn.hold(forRequest, 4_000*blockFactor)); return nil }, 0},
	} {
		require.NoError(t, step.do(), step.name)
		require.EqualValues(t, step.want, listener.holds(client), step.name)
	}

	server, peer = net.Pipe()
	conn = &boundedConn{Conn: server, listener: listener, client: client, factor: headerFactor}
	require.ErrorIs(t, receive(heldBytes/headerFactor+1), errHeld)
}

// The server holds nothing for a connection whose requests have ended.
func TestRequestsDoNotAddUp(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			bounded := BoundConnections(tcp, limits.DefaultBounds()).(*boundedListener)
			serveCertificates(t, bounded)
			client := &http.Client{Transport: &http.Transport{
				ForceAttemptHTTP2: protocol == "h2", MaxConnsPerHost: 1,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}},
			}}
			t.Cleanup(client.CloseIdleConnections)
			for n := range 50 {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+tcp.Addr().String(), strings.NewReader(strings.Repeat("x", n<<10)))
				require.NoError(t, err)
				request.Header.Set("Padding", strings.Repeat("x", n%3*1_000))
				response, err := client.Do(request)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
			}
			require.Eventually(t, func() bool { return bounded.holds("127.0.0.1") == 0 }, time.Minute, time.Millisecond)
		})
	}
}

// The address of a front proxy has no bound, even if it has no connection for a while.
func TestConnectionsOfFrontProxy(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			drain := NewDrain(testStreams, limits.DefaultBounds())
			server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				Trust(req)
				assert.True(t, Trusted(req))
			})))
			server.EnableHTTP2 = true
			bounded := BoundConnections(server.Listener, limits.Bounds{ConnectionsPerClient: 1}).(*boundedListener)
			server.Listener = drain.Listener(bounded)
			server.StartTLS()
			t.Cleanup(server.Close)
			var clients []*http.Client
			for range 3 {
				client := &http.Client{Transport: &http.Transport{
					ForceAttemptHTTP2: protocol == "h2",
					TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}},
				}}
				response, err := client.Get(server.URL)
				require.NoError(t, err)
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				clients = append(clients, client)
			}
			for _, client := range clients {
				client.CloseIdleConnections()
			}
			// All of them have been given back.
			require.True(t, bounded.shares.Take("127.0.0.1", 1))
			require.False(t, bounded.shares.Take("127.0.0.1", 1))
		})
	}
}
