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

	"k8s.io/utils/lru"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// proxyAddresses is how many IP addresses of front proxies are remembered.
const proxyAddresses = 100

// leastConnections is how many connections an IP address may have even if others have all. Otherwise, connections from
// ten addresses would keep kube-apiserver from a server that has just started, and from the webhook.
const leastConnections = 8

// BoundConnections returns a listener that closes connections of an IP address beyond ConnectionsPerClient at a time,
// or beyond as many as it leaves to others. An address of the front proxy may have any number.
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
			give := sync.OnceFunc(func() { l.shares.Give(client, 1) })
			return &boundedConn{conn, give, func() { l.trusted.Add(client, nil) }}, nil
		}
		_ = conn.Close() // The client is told by nothing else.
	}
}

type boundedConn struct {
	net.Conn
	give func()
	// remember exempts its IP address from now on.
	remember func()
}

// trust exempts the connection.
func (c *boundedConn) trust() {
	c.remember()
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
	if bounded, ok := conn.Conn.(*boundedConn); ok {
		bounded.trust()
	}
}

// Trusted tells whether Trust was called for the connection of a request's context.
func Trusted(ctx context.Context) bool {
	conn, ok := ctx.Value(connectionKey{}).(*drainedConn)
	return ok && conn.trusted.Load()
}
