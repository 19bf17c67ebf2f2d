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
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

const (
	// drainGrace is how long, after a listener is closed, requests that are on their way
	// may take to arrive.
	drainGrace = 2 * time.Second
	// drainInterval is how often connections without requests are looked for. An answer before one
	// look is written by the next.
	drainInterval = 250 * time.Millisecond
	// headerPatience is how long the headers of a request over HTTP/1.1 may take.
	headerPatience = 10 * time.Second
)

// Drain ends the connections of a stopping server without losing a request.
//
// GOAWAY tells a client of HTTP/2 to begin no more requests on a connection. The library's GOAWAY
// names the last request that the server has seen at that moment. Requests that the client has sent
// meanwhile are lost. kube-apiserver can't repeat those with a body, and reports an error. So there
// is another GOAWAY here, which names none. After it, the server answers all requests that come
// (RFC 9113, section 6.8).
// Upstream fault 77.
//
// The library answers requests with 503 as soon as it closes the listener. Until kube-apiserver has
// read the GOAWAY, it also asks on this connection whether the server is available. After a 503 it
// would refuse the requests of all users. So the listener is closed, and GOAWAY sent, before the
// library does anything.
//
// Connections without requests are then closed. The library would wait for a minute for those whose
// TLS handshake ended late, since it would tell them nothing.
// Upstream fault 75.
type Drain struct {
	streams uint32
	// textBytes is how large the headers of a request may be, with its path and query. Each
	// connection keeps as much while they arrive.
	textBytes int
	frames    *framePace

	mu sync.Mutex
	// listener is nil before there is one.
	listener *drainedListener
	closed   bool
	// connections are those that are open, by the address of the client.
	connections map[string]*drainedConn
}

// NewDrain returns a Drain for one listener and the handler of all its requests. streams is
// MaxConcurrentStreams.
func NewDrain(streams int, bounds limits.Bounds) *Drain {
	return &Drain{
		streams:     uint32(max(0, streams)), //nolint:gosec // G115: flags are validated.
		textBytes:   bounds.HeaderBytes + bounds.PathBytes + bounds.QueryBytes,
		frames:      newFramePace(framesPerSecond),
		connections: map[string]*drainedConn{},
	}
}

// Listener returns a listener whose connections end some time after it is closed, as soon
// as they have no requests.
func (d *Drain) Listener(listener net.Listener) net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listener = &drainedListener{Listener: listener, drain: d, closed: make(chan struct{}), introduced: make(chan struct{})}
	return d.listener
}

// Start drains the server when the context ends. The listener is closed after the server's delay.
// Requests are then answered for a grace period before the library ends the server.
func (d *Drain) Start(ctx context.Context, server *genericapiserver.GenericAPIServer) {
	delay := server.ShutdownDelayDuration
	server.ShutdownDelayDuration += drainGrace
	context.AfterFunc(ctx, func() {
		time.Sleep(delay)
		d.Leave()
	})
}

// Handler counts the requests of each connection, and asks clients of HTTP/1.1 to use another
// connection once the listener is closed.
func (d *Drain) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.RemoteAddr == introduction {
			d.take(req.Context().Value(http.ServerContextKey).(*http.Server))
			return
		}
		if req.ProtoMajor == 1 {
			conn, _ := req.Context().Value(connectionKey{}).(net.Conn)
			boundOf(conn).begin()
		}
		if d.add(req.RemoteAddr, 1) && req.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		defer d.add(req.RemoteAddr, -1)
		if req.ProtoMajor == 1 {
			next.ServeHTTP(w, req)
			return
		}
		if conn, ok := req.Context().Value(connectionKey{}).(*drainedConn); ok && conn.http2 != nil {
			defer conn.http2.handle(req.Context())()
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // That of the library is for what it answers itself.
		next.ServeHTTP(w, req.WithContext(req.Context()))
		// The library keeps this one until the client has read the response.
		req.Header, req.URL, req.RequestURI = nil, nil, ""
	})
}

// take bounds what a server holds of its clients before their requests, and takes HTTP/2 from it.
func (d *Drain) take(server *http.Server) {
	server.MaxHeaderBytes, server.ReadHeaderTimeout = d.textBytes, headerPatience
	server.ConnContext = withConnection
	others := server.ConnState
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		if others != nil {
			others(conn, state)
		}
		if state == http.StateIdle {
			boundOf(conn).expect(headerFactor)
		}
	}
	boundHandshakes(server.TLSConfig)
	if server.TLSNextProto != nil {
		d.takeHTTP2(server)
	}
}

// takeHTTP2 makes a server serve HTTP/2 on connections that are drained and paced. Its options are
// those of the library, which can't be set: see SecureServingInfo.Serve. Only writes end in time, frames and buffers are
// smaller, and headers are bounded more narrowly. A client in Go, such as that of kube-apiserver, refuses to send more over HTTP/2,
// and kube-apiserver calls that 503.
//
//nolint:staticcheck // SA1019: net/http serves no connection that is not its own.
func (d *Drain) takeHTTP2(server *http.Server) {
	const (
		idle   = 90 * time.Second
		buffer = 64 << 10 // The least that there can be: requests that wait for their turn keep as much of their bodies.
		frame  = 16 << 10 // The least, too: a connection keeps the memory of its largest one.
	)
	options := &http2.Server{
		IdleTimeout:                  idle,
		WriteByteTimeout:             limits.EventTime,
		MaxConcurrentStreams:         d.streams,
		MaxReadFrameSize:             frame,
		MaxUploadBufferPerStream:     buffer,
		MaxUploadBufferPerConnection: buffer * int32(d.streams), //nolint:gosec // G115: flags are validated.
	}
	base := &http.Server{ErrorLog: limits.PacedLog(server.ErrorLog), MaxHeaderBytes: d.textBytes, WriteTimeout: headerPatience} //nolint:gosec // G112: HTTP/2 has no use for it.
	server.TLSNextProto[http2.NextProtoTLS] = func(_ *http.Server, conn *tls.Conn, handler http.Handler) {
		drained, ok := conn.NetConn().(*drainedConn)
		if !ok {
			return // It is the introduction, which speaks HTTP/1.1.
		}
		told := newGoAwayConn(conn)
		d.mu.Lock()
		drained.http2 = told
		d.mu.Unlock()
		paced := d.frames.conn(told, &drained.trusted)
		options.ServeConn(paced, &http2.ServeConnOpts{
			Context: limits.WithEndStuck(withConnection(context.Background(), conn), paced.endStuck), BaseConfig: base, Handler: handler,
		})
	}
}

// add counts requests, and tells whether the listener is closed.
func (d *Drain) add(client string, requests int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if conn := d.connections[client]; conn != nil {
		conn.requests += requests
		conn.used, conn.idle = true, false
		if d.closed {
			conn.goAway()
		}
	}
	return d.closed
}

// Leave closes the listener, and then connections until none is left.
func (d *Drain) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.closed = true
	_ = d.listener.Listener.Close()
	for _, conn := range d.connections {
		// A client that has just connected would have to connect again for its first
		// request, to a server that no longer listens.
		if conn.used {
			conn.goAway()
		}
	}
	go func() {
		time.Sleep(drainGrace)
		for d.sweep() {
			time.Sleep(drainInterval)
		}
	}()
}

// sweep closes the connections that had no request at the last look, either, and tells whether
// there are others.
func (d *Drain) sweep() bool {
	d.mu.Lock()
	var idle []*drainedConn
	for _, conn := range d.connections {
		if conn.idle {
			idle = append(idle, conn)
		}
		if conn.idle = conn.requests == 0; conn.idle {
			conn.goAway()
		}
	}
	more := len(d.connections) > len(idle)
	d.mu.Unlock()
	for _, conn := range idle {
		_ = conn.Close()
	}
	return more
}

// introduction is the address of the first client of each server: the Drain itself, at the other
// end of a net.Pipe. Its request shows the handler the http.Server before any other connection uses
// it. The library shows it to nobody.
const introduction = "pipe"

type drainedListener struct {
	net.Listener
	drain *Drain
	// closed is closed by Close, which may come after the Drain has closed the listener.
	closed  chan struct{}
	closing sync.Once
	first   sync.Once
	// introduced is closed when the first connection has ended, with its error.
	introduced chan struct{}
	err        error
}

// Accept returns the next connection, and an error once Close is called. The library's server
// panics if one comes earlier.
func (l *drainedListener) Accept() (conn net.Conn, err error) {
	l.first.Do(func() { conn = l.introduce() })
	if conn != nil {
		return conn, nil
	}
	if <-l.introduced; l.err != nil {
		return nil, fmt.Errorf("the server could not talk to itself, and would serve without its bounds: %w", l.err)
	}
	conn, err = l.Listener.Accept()
	if errors.Is(err, net.ErrClosed) {
		<-l.closed
	}
	if err != nil {
		return nil, err
	}
	drained := &drainedConn{Conn: conn, drain: l.drain}
	l.drain.mu.Lock()
	defer l.drain.mu.Unlock()
	l.drain.connections[conn.RemoteAddr().String()] = drained
	return drained, nil
}

// introduce returns a connection with a request for the Drain's handler.
func (l *drainedListener) introduce() net.Conn {
	const patience = time.Minute
	server, client := net.Pipe()
	go func() {
		defer close(l.introduced)
		defer func() { _ = client.Close() }()
		_ = client.SetDeadline(time.Now().Add(patience))
		secured := tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: it is this process.
		if _, l.err = io.WriteString(secured, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); l.err == nil {
			_, l.err = io.Copy(io.Discard, secured)
		}
	}()
	return server
}

// Close closes the listener, and begins to close its connections.
func (l *drainedListener) Close() error {
	l.drain.Leave()
	l.closing.Do(func() { close(l.closed) })
	return nil
}

type drainedConn struct {
	net.Conn
	drain *Drain
	// requests, used and idle belong to the Drain. Used is set by the first request, and idle
	// if there have been none since the last look.
	requests   int
	used, idle bool
	// http2 writes its frames, if it has any. leaving is set when its client is being told.
	http2   *goAwayConn
	leaving bool
	// trusted is set by Trust, and proven is the state that its request had.
	trusted atomic.Bool
	proven  atomic.Pointer[tls.ConnectionState]
	// verified is the state with known certificates alone, as of the version.
	verifying sync.Mutex
	verified  *tls.ConnectionState
	version   [2]int64
}

// goAway asks the client of a connection of HTTP/2 to begin no more requests.
func (c *drainedConn) goAway() {
	if c.http2 != nil && !c.leaving {
		c.leaving = true
		go c.http2.goAway()
	}
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
