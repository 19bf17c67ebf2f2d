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
// ConnectionsPerClient at a time.
func BoundConnections(listener net.Listener, bounds limits.Bounds) net.Listener {
	return &boundedListener{Listener: listener, limit: bounds.ConnectionsPerClient, clients: map[string]int{}}
}

type boundedListener struct {
	net.Listener
	limit int

	mu sync.Mutex
	// clients are how many connections each IP address has.
	clients map[string]int
}

// Accept returns the next connection whose client does not have too many.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := clientAddress(conn)
		if l.enter(client) {
			return &boundedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(client) })}, nil
		}
		_ = conn.Close() // The client is told by nothing else.
	}
}

// enter tells whether a client may have another connection.
func (l *boundedListener) enter(client string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients[client] >= l.limit {
		return false
	}
	l.clients[client]++
	return true
}

func (l *boundedListener) leave(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients[client]--; l.clients[client] == 0 {
		delete(l.clients, client)
	}
}

func clientAddress(conn net.Conn) string {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.IP.String()
	}
	return conn.RemoteAddr().String()
}

type boundedConn struct {
	net.Conn
	// leave ends the count of the connection, however often it is called.
	leave func()
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// connectionKey is that of the connection of a request.
type connectionKey struct{}

// withConnection returns a context for the requests of a connection.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// Trust makes the connection of a request's context one that is neither counted nor paced: the
// front proxy sends the requests of many clients over few connections, from one address.
func Trust(ctx context.Context) {
	conn, ok := ctx.Value(connectionKey{}).(*drainedConn)
	if !ok || conn.trusted.Swap(true) {
		return
	}
	if bounded, ok := conn.Conn.(*boundedConn); ok {
		bounded.leave()
	}
}

// Trusted tells whether Trust was called for the connection of a request's context.
func Trusted(ctx context.Context) bool {
	conn, ok := ctx.Value(connectionKey{}).(*drainedConn)
	return ok && conn.trusted.Load()
}
