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

// Package transport bounds the connections of a server, and ends them when it stops. It also makes the connections to
// etcd and to networks behind proxies.
package transport

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// farewell is how long a stopping server tells its clients to use other connections.
const farewell = 2 * time.Second

// Connections are those of one server. They are bounded for each IP address: their number, and the memory of those
// without an authorized request. Connections with a front proxy's certificate are exempt.
type Connections struct {
	number, memory *limits.Shares
	leaving        atomic.Bool

	mu sync.Mutex
	// open is nil after the listener is closed.
	open map[*conn]struct{}
}

// NewConnections returns the Connections of a server that has none yet.
func NewConnections(bounds limits.Bounds) *Connections {
	return &Connections{
		number: limits.NewBoundShares(leastConnections, int64(bounds.ConnectionsPerClient)),
		memory: limits.NewBoundShares(leastStrangerBytes, strangerBytes),
		open:   map[*conn]struct{}{},
	}
}

// Listener returns a listener that closes connections beyond the bound of their IP address.
func (c *Connections) Listener(of net.Listener) net.Listener { return &listener{of, c} }

type listener struct {
	net.Listener
	all *Connections
}

// Accept returns the next connection whose client does not have too many.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := limits.ClientAddress(accepted.RemoteAddr().String())
		if !l.all.number.Take(client, 1) {
			_ = accepted.Close() // Before TLS, nothing else can be said.
			continue
		}
		conn := &conn{Conn: accepted, all: l.all, client: client, counted: true}
		if l.all.remember(conn) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// Close closes the listener. It also closes the connections that net/http would wait for, or would close without a
// word: those whose TLS handshake or headers have not ended, and idle ones of HTTP/1.1.
// Upstream fault 75.
func (l *listener) Close() error {
	l.all.mu.Lock()
	open := l.all.open
	l.all.open = nil
	l.all.mu.Unlock()
	for conn := range open {
		if conn.endsAtOnce() {
			_ = conn.Close()
		}
	}
	return l.Listener.Close()
}

func (c *Connections) remember(conn *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return false
	}
	c.open[conn] = struct{}{}
	return true
}

func (c *Connections) forget(conn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

// Handler must be around all others. It counts the requests of connections, and tells clients of a stopping server to
// use others.
func (c *Connections) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c.leaving.Load() {
			w.Header().Set("Connection", "close") // HTTP/2 has GOAWAY sent.
		}
		conn := connOf(req)
		if conn == nil {
			next.ServeHTTP(w, req)
			return
		}
		conn.begin(req)
		defer conn.end()
		if err := checkCertificates(req); err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		next.ServeHTTP(w, req)
		if req.ProtoMajor > 1 && conn.isStranger() {
			_ = http.NewResponseController(w).Flush() // The request counts until its response is read.
		}
	})
}

// Leave has clients use other connections from now on: those of other servers, if this one is not ready.
func (c *Connections) Leave() { c.leaving.Store(true) }

// Start leaves when the context ends and the server's delay is over, some time before the server closes its listener.
// Clients are told one after the other, by responses. Even so, what is on its way when a client reads its GOAWAY is
// lost: clients repeat it if it has no body.
// Upstream fault 77.
// Upstream fault 79.
//
// Once k8s.io/apiserver has closed the listener, it answers 503. kube-apiserver would take the API for unavailable.
func (c *Connections) Start(ctx context.Context, server *genericapiserver.GenericAPIServer) {
	delay := server.ShutdownDelayDuration
	server.ShutdownDelayDuration += farewell
	context.AfterFunc(ctx, func() {
		time.Sleep(delay)
		c.Leave()
	})
}
