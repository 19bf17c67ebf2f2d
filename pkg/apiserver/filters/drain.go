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

package filters

import (
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// drainGrace is how long, after a listener is closed, a connection without a request
	// may wait for one.
	drainGrace = 2 * time.Second
	// drainInterval is how often connections without requests are looked for. What has
	// been answered between two looks is written by the second.
	drainInterval = 250 * time.Millisecond
)

// Drain closes the connections that a stopping server would wait for although they have no
// requests. The library tells the connections of HTTP/2 that it has at that moment to end;
// one whose TLS handshake ends a little later is never told, and keeps the server for the
// minute that it waits at most.
// Upstream fault 75.
type Drain struct {
	mu     sync.Mutex
	closed bool
	// connections are those that are open, by the address of the client.
	connections map[string]*drainedConn
}

// NewDrain returns a Drain for one listener and the handler of all its requests.
func NewDrain() *Drain { return &Drain{connections: map[string]*drainedConn{}} }

// Listener returns a listener whose connections end some time after it is closed, as soon
// as they have no requests.
func (d *Drain) Listener(listener net.Listener) net.Listener {
	return &drainedListener{listener, d}
}

// Handler counts the requests of each connection, and asks clients to use another
// connection once the listener is closed.
func (d *Drain) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if d.add(req.RemoteAddr, 1) {
			w.Header().Set("Connection", "close") // In HTTP/2, a GOAWAY.
		}
		defer d.add(req.RemoteAddr, -1)
		next.ServeHTTP(w, req)
	})
}

// add counts requests, and tells whether the listener is closed.
func (d *Drain) add(client string, requests int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if conn := d.connections[client]; conn != nil {
		conn.requests += requests
		conn.idle = false
	}
	return d.closed
}

// begin closes connections until none is left.
func (d *Drain) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.closed = true
	go func() {
		time.Sleep(drainGrace)
		for d.sweep() {
			time.Sleep(drainInterval)
		}
	}()
}

// sweep closes the connections that had no request the last time, either, and tells whether
// there are others.
func (d *Drain) sweep() bool {
	d.mu.Lock()
	var idle []*drainedConn
	for _, conn := range d.connections {
		if conn.idle {
			idle = append(idle, conn)
		}
		conn.idle = conn.requests == 0
	}
	more := len(d.connections) > len(idle)
	d.mu.Unlock()
	for _, conn := range idle {
		_ = conn.Close()
	}
	return more
}

type drainedListener struct {
	net.Listener
	drain *Drain
}

// Accept returns the next connection.
func (l *drainedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	drained := &drainedConn{Conn: conn, drain: l.drain}
	l.drain.mu.Lock()
	defer l.drain.mu.Unlock()
	l.drain.connections[conn.RemoteAddr().String()] = drained
	return drained, nil
}

// Close closes the listener, and begins to close its connections.
func (l *drainedListener) Close() error {
	l.drain.begin()
	return l.Listener.Close()
}

type drainedConn struct {
	net.Conn
	drain *Drain
	// requests and idle belong to the Drain. Idle is set if there have been no requests
	// since the last look.
	requests int
	idle     bool
}

// Close closes the connection.
func (c *drainedConn) Close() error {
	c.drain.mu.Lock()
	client := c.RemoteAddr().String()
	if c.drain.connections[client] == c {
		delete(c.drain.connections, client)
	}
	c.drain.mu.Unlock()
	return c.Conn.Close()
}
