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
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

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
	for _, want := range []int{512, 512, 256, 128, 64, 32, 16, 8, 8, 8, 8, 8} {
		got := 0
		for listener.shares.Take(strconv.Itoa(all), 1) {
			got++
		}
		require.Equal(t, want, got)
		all += got
	}
}

// The address of a front proxy has no bound, even if it has no connection for a while.
func TestConnectionsOfFrontProxy(t *testing.T) {
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			drain := NewDrain(testStreams, limits.DefaultBounds())
			server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				Trust(req.Context())
				assert.True(t, Trusted(req.Context()))
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
