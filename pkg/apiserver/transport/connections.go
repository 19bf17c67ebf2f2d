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

// Package transport bounds the connections of a server, and ends them when it stops.
package transport

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// farewell is how long a stopping server tells its clients to use other connections, and then as long answers those that
// have just connected. HTTP/2 of net/http takes another second to stop.
const farewell = 600 * time.Millisecond

const (
	// leastConnections is how many connections an IP address may have even if others have all. Otherwise, connections
	// from ten addresses would keep kube-apiserver from a server that has just started.
	leastConnections = 8
	// strangerBytes limits the memory of an IP address's connections that have had no authorized request, a third of
	// what all may have; leastStrangerBytes is for each address, even if others have all.
	strangerBytes, leastStrangerBytes = 32 << 20, 512 << 10
	// headerFactor is how many times its size a header takes once it is parsed, at worst.
	headerFactor = 40
	// requestBytes is what a request takes beside its headers and its body.
	requestBytes = 32 << 10
	// stallTime is how long a client may read nothing of what is written to it. Until then, a response holds a seat of
	// priority and fairness: k8s.io/apiserver waits for the write, whatever the timeout of the request.
	// Upstream fault 76.
	stallTime = 30 * time.Second
	// patience is how long a connection waits for memory, and pause how often it asks.
	patience, pause = 10 * time.Second, 10 * time.Millisecond
	// trustTime is how long a verified certificate of a front proxy is trusted on its connection.
	trustTime = time.Minute
)

// Connections are the connections of one server. They are bounded for each IP address: their number, and the memory of
// connections without an authorized request. Connections with a front proxy's certificate are exempt.
type Connections struct {
	number, memory *limits.Shares
	leaving        atomic.Bool
	// stopListening closes the port.
	stopListening func() error

	mu   sync.Mutex
	open map[*conn]struct{}
}

// NewConnections returns the Connections of a server that has none yet.
func NewConnections(bounds limits.Bounds) *Connections {
	return &Connections{
		number: limits.NewShares(3*int64(bounds.ConnectionsPerClient), int64(bounds.ConnectionsPerClient), min(leastConnections, int64(bounds.ConnectionsPerClient))),
		memory: limits.NewShares(3*strangerBytes, strangerBytes, leastStrangerBytes),
		open:   map[*conn]struct{}{},
	}
}

// Listener returns a listener that closes connections beyond the bound of their IP address. It must be called once.
func (c *Connections) Listener(of net.Listener) net.Listener {
	c.stopListening = sync.OnceValue(of.Close)
	return &listener{Listener: of, all: c, closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	all    *Connections
	once   sync.Once
	closed chan struct{}
}

// Accept returns the next connection whose client does not have too many.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			<-l.closed // Leave has closed the port, and net/http still serves connections.
		}
		if err != nil {
			return nil, err
		}
		client := limits.ClientAddress(accepted.RemoteAddr().String())
		if !l.all.number.Take(client, 1) {
			_ = accepted.Close() // Before TLS, nothing else can be said.
			continue
		}
		conn := &conn{Conn: accepted, all: l.all, client: client, counted: true}
		l.all.mu.Lock()
		l.all.open[conn] = struct{}{}
		l.all.mu.Unlock()
		return conn, nil
	}
}

// Close closes the listener, and connections without a request: net/http would wait for handshakes and headers that do
// not end.
// Upstream fault 75.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.all.mu.Lock()
	open := slices.Collect(maps.Keys(l.all.open))
	l.all.mu.Unlock()
	for _, conn := range open {
		conn.closeWithoutRequest()
	}
	return l.all.stopListening()
}

// Handler must be around all others. It counts the requests of connections, and tells clients of a stopping server to
// use others.
func (c *Connections) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		GrowStack()
		if c.leaving.Load() {
			w.Header().Set("Connection", "close") // HTTP/2 has GOAWAY sent.
		}
		conn := connOf(req.Context())
		if conn == nil {
			next.ServeHTTP(w, req)
			return
		}
		conn.begin(req)
		defer conn.done()
		next.ServeHTTP(w, req)
		if req.ProtoMajor > 1 && conn.isStranger() {
			_ = http.NewResponseController(w).Flush() // The request counts until its response is read.
		}
	})
}

// GrowStack makes the stack of a new goroutine as large as the handlers of a request need it, while there is little on it.
// Otherwise the runtime doubles it several times, and moves all frames each time: a tenth of the processor time of a get.
//
//go:noinline
func GrowStack() {
	var frames [20 << 10]byte // More than half of what is needed: a stack is a power of two.
	runtime.KeepAlive(&frames)
}

// Leave has clients use other connections, to other servers if this one is not ready. It returns when the server
// may be shut down. Clients are told one after the other, by responses. Even so, what is on its way over HTTP/2 when a
// client reads its GOAWAY is lost: clients repeat it if it has no body.
// Upstream fault 77.
// Upstream fault 79.
//
// net/http drops the first request of a connection that it reads while it shuts down, so that the port is closed before.
func (c *Connections) Leave() {
	c.leaving.Store(true)
	time.Sleep(farewell)
	_ = c.stopListening() // Close returns the error.
	time.Sleep(farewell)
}

// Start leaves when the context ends and the server's delay is over, before the server shuts down.
//
// Once k8s.io/apiserver has closed the listener, it answers 503. kube-apiserver would take the API for unavailable.
func (c *Connections) Start(ctx context.Context, server *genericapiserver.GenericAPIServer) {
	delay := server.ShutdownDelayDuration
	server.ShutdownDelayDuration += 2 * farewell
	context.AfterFunc(ctx, func() {
		time.Sleep(delay)
		c.Leave()
	})
}

// conn is a connection of a client.
type conn struct {
	net.Conn
	all    *Connections
	client string

	http2 atomic.Bool
	// trusted is when Trust was called, in Unix nanoseconds.
	trusted atomic.Int64

	mu sync.Mutex
	// end is when net/http ends the response that is written, or zero.
	end time.Time
	// requests are in progress.
	requests int
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
	bytes := int64(n)
	if c.requests == 0 {
		bytes *= headerFactor
	}
	c.wanted += bytes
	return n, err
}

// Write ends a connection whose client reads nothing.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	deadline := time.Now().Add(stallTime)
	if !c.end.IsZero() && c.end.Before(deadline) {
		deadline = c.end
	}
	_ = c.Conn.SetWriteDeadline(deadline) // Write returns the same error.
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	if err != nil {
		c.http2.Store(false)
	}
	return n, err
}

// SetWriteDeadline sets when the response ends, even if its client still reads.
func (c *conn) SetWriteDeadline(end time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end = end
	return c.Conn.SetWriteDeadline(end)
}

// hold reports whether the connection has the memory that it wants.
func (c *conn) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.authorized {
		return true
	}
	if c.wanted > c.held && !c.all.memory.Take(c.client, c.wanted-c.held) {
		return false
	}
	c.held = c.wanted
	return true
}

func (c *conn) begin(req *http.Request) {
	c.http2.Store(req.ProtoMajor > 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.end = time.Time{} // The last response's.
	if c.authorized {
		return
	}
	c.wanted += requestBytes + int64(len(req.RequestURI))
	for _, values := range req.Header {
		for _, value := range values {
			c.wanted += int64(len(value))
		}
	}
}

// done gives the memory back after the last request.
func (c *conn) done() {
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

// closeWithoutRequest closes a connection that is idle, or begins no request. Of HTTP/2, net/http ends it.
func (c *conn) closeWithoutRequest() {
	c.mu.Lock()
	idle := c.requests == 0
	c.mu.Unlock()
	if idle && !c.http2.Load() {
		_ = c.Close()
	}
}

// Close closes the connection.
func (c *conn) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
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

// connOf returns the connection of a request by its context, or nil if it is not one of Connections.
func connOf(ctx context.Context) *conn {
	local, _ := ctx.Value(http.LocalAddrContextKey).(address)
	return local.conn
}

// ClientOf returns the client of a request by its context: an IP address, or a prefix of 64 bits. It is empty if the
// request has not come by a connection of Connections.
func ClientOf(ctx context.Context) string {
	if conn := connOf(ctx); conn != nil {
		return conn.client
	}
	return ""
}

// Admit exempts the connection of an authorized request from the bound on memory, unless it is anonymous.
func Admit(req *http.Request) {
	sender, ok := genericapirequest.UserFrom(req.Context())
	if conn := connOf(req.Context()); conn != nil && ok && sender.GetName() != user.Anonymous {
		conn.admit(false)
	}
}

// Trust exempts the connection of a request from all bounds. The front proxy sends the requests of many clients from
// one address, and needs a connection for each WebSocket.
func Trust(req *http.Request) {
	if conn := connOf(req.Context()); conn != nil {
		conn.trusted.Store(time.Now().UnixNano())
		conn.admit(true)
	}
}

// Trusted reports whether Trust was called for a request of the same connection in the last minute.
func Trusted(req *http.Request) bool {
	conn := connOf(req.Context())
	return conn != nil && time.Since(time.Unix(0, conn.trusted.Load())) < trustTime
}
