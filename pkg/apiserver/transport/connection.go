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
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// leastConnections is how many connections an IP address may have even if others have all. Otherwise, connections from
// ten addresses would keep kube-apiserver from a server that has just started.
const leastConnections = 8

// Until a request of a connection is authorized, its memory counts for its IP address, in bytes.
const (
	// strangerBytes is how much an IP address may have, a third of what all have; leastStrangerBytes, even if others
	// have all.
	strangerBytes, leastStrangerBytes = 32 << 20, 512 << 10
	// headerFactor is how many times its size a header takes once it is parsed, at worst.
	headerFactor = 40
	// requestBytes is what a request takes beside its headers and its body.
	requestBytes = 32 << 10
	// patience is how long a connection waits for memory, and pause how often it asks.
	patience, pause = 10 * time.Second, 10 * time.Millisecond
)

// conn is a connection of a client.
type conn struct {
	net.Conn
	all    *Connections
	client string

	http2 atomic.Bool
	// trusted is the state of a connection for which Trust was called.
	trusted atomic.Pointer[tls.ConnectionState]
	known   knownCertificates

	mu sync.Mutex
	// requests are in progress. body is how much the last one's may have left, over HTTP/1.1.
	requests int
	body     int64
	// wanted is the memory of a stranger's connection, and held the part that is taken from its IP address's.
	wanted, held int64
	// authorized is set once a request was. counted is set until the connection is trusted, or closed.
	authorized, counted bool
}

var errStrangers = errors.New("connections of the client's IP address hold too much memory without an authorized request; retry")

// Read reads what has arrived, when there is memory for it.
func (c *conn) Read(p []byte) (int, error) {
	for end := time.Now().Add(patience); !c.hold(); time.Sleep(pause) {
		if time.Now().After(end) {
			return 0, errStrangers
		}
	}
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	body := min(int64(n), c.body)
	if c.requests > 0 {
		body = int64(n)
	}
	c.body -= min(body, c.body)
	c.wanted += body + (int64(n)-body)*headerFactor
	return n, err
}

// Write ends a connection of HTTP/2 whose client reads nothing. For HTTP/1.1, responses have deadlines.
func (c *conn) Write(p []byte) (int, error) {
	if c.http2.Load() {
		_ = c.SetWriteDeadline(time.Now().Add(limits.EventTime))
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.http2.Store(false)
	}
	return n, err
}

// hold reports whether the connection has the memory that it wants.
func (c *conn) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authorized || !c.counted {
		return true
	}
	if c.wanted > c.held && !c.all.memory.Take(c.client, c.wanted-c.held) {
		return false
	}
	c.held = c.wanted
	return true
}

// begin counts another request.
func (c *conn) begin(req *http.Request) {
	c.http2.Store(req.ProtoMajor > 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.ProtoMajor == 1 {
		c.body = max(0, req.ContentLength)
	}
	c.requests++
	c.wanted += requestBytes
}

// end gives the memory back after the last request.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests--; c.requests == 0 {
		c.release()
	}
}

func (c *conn) release() {
	c.all.memory.Give(c.client, c.held)
	c.wanted, c.held = 0, 0
}

// admit ends the count of the memory, and of the connection itself if it is trusted or closed.
func (c *conn) admit(uncounted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authorized = true
	c.release()
	if uncounted && c.counted {
		c.counted = false
		c.all.number.Give(c.client, 1)
	}
}

func (c *conn) isStranger() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.authorized
}

// endsAtOnce reports whether a stopping server has nothing to tell the client.
func (c *conn) endsAtOnce() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests == 0 && !c.http2.Load()
}

// Close closes the connection.
func (c *conn) Close() error {
	c.all.forget(c)
	c.admit(true)
	return c.Conn.Close()
}

// address has the connection for requests, as the value of http.LocalAddrContextKey.
type address struct {
	net.Addr
	conn *conn
}

// LocalAddr returns the address of this end.
func (c *conn) LocalAddr() net.Addr { return address{c.Conn.LocalAddr(), c} }

// connOf returns the connection of a request, or nil if it is not one of Connections.
func connOf(req *http.Request) *conn {
	local, _ := req.Context().Value(http.LocalAddrContextKey).(address)
	return local.conn
}

// WithAuthorizedClients exempts connections from the bound on memory once one of their requests is authorized. The
// handler must be inside authorization.
func WithAuthorizedClients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sender, ok := genericapirequest.UserFrom(req.Context())
		if conn := connOf(req); conn != nil && ok && sender.GetName() != user.Anonymous {
			conn.admit(false)
		}
		next.ServeHTTP(w, req)
	})
}

// Trust exempts the connection of a request from all bounds. The front proxy sends the requests of many clients from
// one address, and needs a connection for each WebSocket.
func Trust(req *http.Request) {
	if conn := connOf(req); conn != nil {
		conn.trusted.Store(req.TLS)
		conn.admit(true)
	}
}

// Trusted reports whether Trust was called for a request of the same connection since WithKnownCertificates has last
// verified its certificates.
func Trusted(req *http.Request) bool {
	conn := connOf(req)
	return conn != nil && req.TLS != nil && conn.trusted.Load() == req.TLS
}
