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
	"errors"
	"net"
	"sync"

	"k8s.io/utils/lru"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// proxyAddresses is how many IP addresses of front proxies are remembered.
const proxyAddresses = 100

// leastConnections is how many connections an IP address may have even if others have all. Otherwise, connections from
// ten addresses would keep kube-apiserver from a server that has just started, and from the webhook.
const leastConnections = 8

// So many bytes count as one more connection.
const (
	// arrivedBytes are those of a handshake, or of headers over HTTP/1.1, that have not ended. Clients send two to four
	// KiB. Parsed, headers take up to twenty-five times as much.
	arrivedBytes = 4 << 10
	// certificateBytes are those of a client's certificates. Parsed, they take up to sixteen times as much.
	certificateBytes = 4 << 10
	// headerBytes are those of headers over HTTP/2 that do not end in their first frame, as those of no usual client
	// do. Decoded, they take up to forty times as much.
	headerBytes = 1 << 10
)

// BoundConnections returns a listener that closes connections of an IP address beyond ConnectionsPerClient at a time,
// or beyond as many as it leaves to others. An address of the front proxy may have any number. A connection counts more
// than once while the server holds what the client has sent, before a request begins. The server has to be that of a
// Drain, which tells when.
func BoundConnections(listener net.Listener, bounds limits.Bounds) net.Listener {
	most := int64(bounds.ConnectionsPerClient)
	return &boundedListener{listener, limits.NewBoundShares(min(leastConnections, most), most), lru.New(proxyAddresses)}
}

type boundedListener struct {
	net.Listener
	shares *limits.Shares
	// trusted are the IP addresses from which a front proxy has sent a request.
	trusted *lru.Cache
}

// Accept returns the next connection whose client does not have too many.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := limits.ClientAddress(conn.RemoteAddr().String())
		if _, trusted := l.trusted.Get(client); trusted {
			return conn, nil
		}
		if l.shares.Take(client, 1) {
			return &boundedConn{Conn: conn, listener: l, client: client, unit: arrivedBytes}, nil
		}
		_ = conn.Close() // The client is told by nothing else.
	}
}

// boundedConn is a connection that counts.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	client   string

	mu sync.Mutex
	// unit is how many bytes that have arrived count as one more connection, or 0. arrived is their number.
	unit, arrived int
	// pending and certificates are how many more connections it counts as.
	pending, certificates int64
	// free is set when it counts no longer.
	free bool
}

// Read reads what has arrived, and fails if the server would hold too much while it waits for more.
func (c *boundedConn) Read(p []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived += n
	return n, err
}

// wait counts what has arrived so far.
func (c *boundedConn) wait() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unit > 0 && !c.count(&c.pending, c.arrived/c.unit) {
		return errHeld
	}
	return nil
}

var errHeld = errors.New("all connections of the client's IP address together have sent more than the server holds")

// expect has each unit of bytes that arrive from now on count as one more connection, and none if it is 0.
func (c *boundedConn) expect(unit int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unit, c.arrived = unit, 0
	c.count(&c.pending, 0)
}

// hold tells whether the server may hold so many bytes of headers.
func (c *boundedConn) hold(bytes int) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count(&c.pending, bytes/headerBytes)
}

// present tells whether the client may have certificates of so many bytes.
func (c *boundedConn) present(bytes int) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count(&c.certificates, bytes/certificateBytes)
}

// count tells whether the connection may count as so many more.
func (c *boundedConn) count(of *int64, more int) bool {
	change := int64(more) - *of
	switch {
	case c.free || change == 0:
		return true
	case change < 0:
		c.listener.shares.Give(c.client, -change)
	case !c.listener.shares.Take(c.client, change):
		return false
	}
	*of += change
	return true
}

func (c *boundedConn) give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.free {
		c.listener.shares.Give(c.client, 1+c.pending+c.certificates)
		c.free = true
	}
}

// trust exempts the connection, and its IP address from now on.
func (c *boundedConn) trust() {
	c.listener.trusted.Add(c.client, nil)
	c.give()
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.give()
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
	if bounded := boundOf(conn); bounded != nil {
		bounded.trust()
	}
}

// boundOf returns the part of a connection that counts, or nil.
func boundOf(conn net.Conn) *boundedConn {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if drained, ok := conn.(*drainedConn); ok {
		conn = drained.Conn
	}
	bounded, _ := conn.(*boundedConn)
	return bounded
}

// Trusted tells whether Trust was called for the connection of a request's context.
func Trusted(ctx context.Context) bool {
	conn, ok := ctx.Value(connectionKey{}).(*drainedConn)
	return ok && conn.trusted.Load()
}
