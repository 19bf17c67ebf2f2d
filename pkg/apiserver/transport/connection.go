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
	"net/http"
	"sync"

	"k8s.io/utils/lru"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// proxyAddresses is how many IP addresses of front proxies are remembered.
const proxyAddresses = 100

// leastConnections is how many connections an IP address may have even if others have all. Otherwise, connections from
// ten addresses would keep kube-apiserver from a server that has just started, and from the webhook.
const leastConnections = 8

// The server holds memory for its clients before their requests, in bytes. These are estimates of the worst that a
// client can send.
const (
	// heldBytes is how much an IP address may have, a third of what all have. leastHeld is how much it may have even if
	// others have all: a stream, and what clients send at once.
	heldBytes, leastHeld = 32 << 20, 512 << 10
	// handshakeFactor, headerFactor, blockFactor and certificateFactor are how many times their size handshakes, headers
	// over HTTP/1.1, headers over HTTP/2 and parsed certificates take.
	handshakeFactor, headerFactor, blockFactor, certificateFactor = 4, 25, 40, 16
)

// BoundConnections returns a listener that bounds the connections of each IP address. It closes those beyond
// ConnectionsPerClient, or beyond as many as the address leaves to others. It also closes those that have the server
// hold more than heldBytes before their requests begin. An address of the front proxy may have any number. The server
// has to be that of a Drain, which tells when requests begin.
func BoundConnections(listener net.Listener, bounds limits.Bounds) net.Listener {
	most := int64(bounds.ConnectionsPerClient)
	return &boundedListener{
		Listener: listener, shares: limits.NewBoundShares(leastConnections, most), held: limits.NewBoundShares(leastHeld, heldBytes),
		trusted: lru.New(proxyAddresses), streamBytes: int64(bounds.HeaderBytes + bounds.PathBytes + bounds.QueryBytes),
	}
}

type boundedListener struct {
	net.Listener
	// shares are those of connections, and held those of what the server holds for them.
	shares, held *limits.Shares
	// streamBytes is how much a stream over HTTP/2 takes that no handler of ours has. The library itself
	// refuses some, and keeps their decoded headers until the client has read that. A few bytes suffice for these headers.
	streamBytes int64
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
			return &boundedConn{Conn: conn, listener: l, client: client, factor: handshakeFactor}, nil
		}
		_ = conn.Close() // The client is told by nothing else.
	}
}

// purpose is one of those that the server holds memory for: the next request, streams that no handler has, and
// certificates.
type purpose int

const (
	forRequest purpose = iota
	forStreams
	forCertificates
	purposes
)

// boundedConn is a connection that counts.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	client   string

	mu sync.Mutex
	// factor is how many times its size takes what arrives, or 0. arrived is its size.
	factor, arrived int
	// held is how much the server holds for each purpose.
	held [purposes]int64
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
	if c.factor > 0 && !c.set(forRequest, c.arrived*c.factor) {
		return errHeld
	}
	return nil
}

var errHeld = errors.New("the connections of the client's IP address have sent more together than the server holds before a request")

// expect forgets the bytes that have arrived. From now on, bytes count factor times, or not at all.
func (c *boundedConn) expect(factor int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.factor, c.arrived = factor, 0
	c.set(forRequest, 0)
}

// begin counts no more bytes until expect is called. The server holds the headers until then.
func (c *boundedConn) begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.factor = 0
}

// open tells whether the client may have a number of streams that no handler has.
func (c *boundedConn) open(streams int) bool {
	return c == nil || c.hold(forStreams, streams*int(c.listener.streamBytes))
}

// hold tells whether the server may hold a number of bytes for a purpose, in place of those before.
func (c *boundedConn) hold(what purpose, bytes int) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set(what, bytes)
}

// set does that under the lock.
func (c *boundedConn) set(what purpose, bytes int) bool {
	change := int64(bytes) - c.held[what]
	switch {
	case c.free || change == 0:
		return true
	case change < 0:
		c.listener.held.Give(c.client, -change)
	case !c.listener.held.Take(c.client, change):
		return false
	}
	c.held[what] += change
	return true
}

func (c *boundedConn) give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.free {
		c.listener.shares.Give(c.client, 1)
		for what := range c.held {
			c.set(purpose(what), 0)
		}
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

// Trust exempts the connection of a request from pacing, and its IP address from the connection bound. The front
// proxy sends the requests of many clients from one address, and needs a connection for each
// WebSocket.
func Trust(req *http.Request) {
	conn, ok := req.Context().Value(connectionKey{}).(*drainedConn)
	if !ok {
		return
	}
	conn.proven.Store(req.TLS)
	if bounded := boundOf(conn); !conn.trusted.Swap(true) && bounded != nil {
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

// Trusted tells whether Trust was called for a request of the same connection since WithKnownCertificates has last
// verified its certificates.
func Trusted(req *http.Request) bool {
	conn, ok := req.Context().Value(connectionKey{}).(*drainedConn)
	return ok && req.TLS != nil && conn.proven.Load() == req.TLS
}
