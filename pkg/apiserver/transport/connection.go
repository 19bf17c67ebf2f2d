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
	"context"
	"crypto/tls"
	"net"
	"sync"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// BoundConnections returns a listener that closes connections of an IP address beyond
// ConnectionsPerClient at a time, unless the front proxy has one from there.
func BoundConnections(listener net.Listener, bounds limits.Bounds) net.Listener {
	return &boundedListener{Listener: listener, limit: bounds.ConnectionsPerClient, clients: map[string]connections{}}
}

type boundedListener struct {
	net.Listener
	limit int

	mu sync.Mutex
	// clients are the IP addresses with connections.
	clients map[string]connections
}

// connections are numbers of connections, and how many of them are trusted.
type connections struct{ all, trusted int }

// Accept returns the next connection whose client does not have too many.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		bounded := &boundedConn{Conn: conn, listener: l, client: limits.ClientAddress(conn.RemoteAddr().String())}
		if l.enter(bounded.client) {
			return bounded, nil
		}
		_ = conn.Close() // The client is told by nothing else.
	}
}

// enter tells whether a client may have another connection.
func (l *boundedListener) enter(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.clients[client]
	if has.trusted == 0 && has.all >= l.limit {
		return false
	}
	has.all++
	l.clients[client] = has
	return true
}

// change counts connections of a client.
func (l *boundedListener) change(client string, by connections) {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.clients[client]
	has.all += by.all
	has.trusted += by.trusted
	if l.clients[client] = has; has.all == 0 {
		delete(l.clients, client)
	}
}

type boundedConn struct {
	net.Conn
	listener *boundedListener
	client   string

	mu              sync.Mutex
	trusted, closed bool
}

// trust lifts the bound of its IP address while this connection is open.
func (c *boundedConn) trust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.trusted && !c.closed {
		c.trusted = true
		c.listener.change(c.client, connections{trusted: 1})
	}
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		ended := connections{all: -1}
		if c.trusted {
			ended.trusted = -1
		}
		c.listener.change(c.client, ended)
	}
	return c.Conn.Close()
}

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

// withConnection returns a context for the requests of a connection.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// Trust exempts a connection from pacing and its IP address from the connection bound. The front
// proxy sends the requests of many clients from one address, and needs a connection for each
// WebSocket.
func Trust(ctx context.Context) {
	conn, ok := ctx.Value(connectionKey{}).(*drainedConn)
	if !ok || conn.trusted.Swap(true) {
		return
	}
	if bounded, ok := conn.Conn.(*boundedConn); ok {
		bounded.trust()
	}
}

// Trusted tells whether Trust was called for the connection of a request's context.
func Trusted(ctx context.Context) bool {
	conn, ok := ctx.Value(connectionKey{}).(*drainedConn)
	return ok && conn.trusted.Load()
}
