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
	"net"
	"sync"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// waitingPerConnection is how many connections may wait for each that a client may have.
const waitingPerConnection = 8

// BoundConnections returns a listener that lets an IP address have ConnectionsPerClient
// connections at a time. Further ones wait, as far as they are not too many, until
// another of the client ends: kube-apiserver, which comes from one address for all users,
// dials for each of the requests that it has before its first connection stands, and
// needs few of these connections later.
func BoundConnections(listener net.Listener, bounds limits.Bounds) net.Listener {
	l := &boundedListener{
		Listener: listener,
		limit:    bounds.ConnectionsPerClient,
		next:     make(chan accepted),
		closed:   make(chan struct{}),
		clients:  map[string]*client{},
	}
	l.begin = sync.OnceFunc(func() { go l.run() })
	l.end = sync.OnceFunc(func() { close(l.closed) })
	return l
}

type boundedListener struct {
	net.Listener
	limit      int
	begin, end func()
	next       chan accepted
	closed     chan struct{}

	mu      sync.Mutex
	clients map[string]*client
}

// accepted is what an Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

// client is an IP address that has connections.
type client struct {
	open    int
	waiting []net.Conn
}

// Accept returns the next connection whose client does not have too many.
func (l *boundedListener) Accept() (net.Conn, error) {
	l.begin()
	select {
	case next := <-l.next:
		return next.conn, next.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener and the connections that wait.
func (l *boundedListener) Close() error {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		for _, conn := range c.waiting {
			_ = conn.Close()
		}
		c.waiting = nil
	}
	return l.Listener.Close()
}

func (l *boundedListener) run() {
	for {
		conn, err := l.Listener.Accept()
		if err == nil && !l.enter(conn) {
			continue
		}
		if !l.hand(conn, err) {
			return
		}
	}
}

// hand has Accept return a connection or an error, and tells whether it can.
func (l *boundedListener) hand(conn net.Conn, err error) bool {
	if conn != nil {
		conn = &boundedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(conn) })}
	}
	select {
	case l.next <- accepted{conn, err}:
		return true
	case <-l.closed:
		if conn != nil {
			_ = conn.Close()
		}
		return false
	}
}

// enter tells whether a connection need not wait.
func (l *boundedListener) enter(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	address := clientAddress(conn)
	c := l.clients[address]
	if c == nil {
		c = &client{}
		l.clients[address] = c
	}
	switch {
	case c.open < l.limit:
		c.open++
		return true
	case len(c.waiting) < waitingPerConnection*l.limit && !l.isClosed():
		c.waiting = append(c.waiting, conn)
	default:
		_ = conn.Close() // The client is told by nothing else.
	}
	return false
}

func (l *boundedListener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// leave gives the place of a connection that has ended to the client's next.
func (l *boundedListener) leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	address := clientAddress(conn)
	c := l.clients[address]
	if len(c.waiting) > 0 {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		go l.hand(next, nil)
		return
	}
	if c.open--; c.open == 0 {
		delete(l.clients, address)
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
	leave func()
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
