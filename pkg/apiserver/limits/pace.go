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

package limits

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

const (
	// bodyTime is how long a body may take to arrive.
	bodyTime = 30 * time.Second
	// responseTime is how long a client may take to read a response.
	responseTime = 60 * time.Second
)

// EventTime is how long a client may take to read a part of a response that goes on.
const EventTime = 30 * time.Second

// timedWriter ends a response that its client does not read. The library waits for as long
// as the connection lives, with all of the response in memory. Its timeout of requests
// waits for the write, too.
// Upstream fault 76.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	waits   *Shares
	// account is nil until NoteUser is called.
	account atomic.Pointer[string]
	// longRunning responses may pause for any time between writes.
	longRunning bool
	// watch is nil if the response is not that of a watch.
	watch *watchReservation
	// begun is set by the first write.
	begun bool
	// waited is how long the client has been waited for. After some time, slow is set, and counted if that counts for
	// the account.
	waited        time.Duration
	slow, counted bool

	mu sync.Mutex
	// left is set when the handler returns.
	left bool
}

// timedKey is the context key of a timedWriter.
type timedKey struct{}

// WithResponseDeadlines ends responses that their clients do not read. It belongs around the library's handlers: a request
// that authorization refuses holds a seat of priority and fairness until its refusal is written. WithMemoryBounds tells
// it which responses go on.
func WithResponseDeadlines(next http.Handler, bounds Bounds) http.Handler {
	waits := newWaits(bounds)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		response := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w), waits: waits}
		defer response.leave()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), req.WithContext(context.WithValue(req.Context(), timedKey{}, response)))
	})
}

// responseOf returns the response to the request of a context, or one that lets nobody wait.
func responseOf(ctx context.Context) *timedWriter {
	if response, ok := ctx.Value(timedKey{}).(*timedWriter); ok {
		return response
	}
	return &timedWriter{waits: NewShares(0), left: true}
}

// NoteUser counts the waits for the client of a request for the account of this user. The handler must be inside
// WithResponseDeadlines.
func NoteUser(ctx context.Context, name string) {
	account := Account(name)
	responseOf(ctx).account.Store(&account)
}

// Unwrap is for the library's wrapper.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the response. A refusal does not go on, whatever the request was for.
func (w *timedWriter) WriteHeader(code int) {
	if code >= http.StatusBadRequest {
		w.longRunning = false
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write waits until the client has read enough.
func (w *timedWriter) Write(content []byte) (int, error) {
	defer w.awaitClient()()
	return w.ResponseWriter.Write(content)
}

// Flush writes what is in buffers.
func (w *timedWriter) Flush() {
	defer w.awaitClient()()
	_ = w.control.Flush() // The next write fails, too.
	w.noteFlush()
}

func (w *timedWriter) noteFlush() {
	if w.watch != nil && w.watch.flushed != nil {
		w.watch.flushed()
	}
}

// Hijack returns the connection of a WebSocket. The events of a watch are written as those over HTTP are.
func (w *timedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := w.control.Hijack()
	if err != nil || w.watch == nil {
		return conn, buffers, err
	}
	timed := &timedConn{Conn: conn, response: w}
	return timed, bufio.NewReadWriter(buffers.Reader, bufio.NewWriter(timed)), nil
}

type timedConn struct {
	net.Conn
	response *timedWriter
	// left is how much of a frame is to be written.
	left uint64
	// data is set for frames that are not answers to pings and the like.
	data bool
}

// Write waits until the client has read enough.
func (c *timedConn) Write(content []byte) (int, error) {
	defer c.response.awaitClient()()
	n, err := c.Conn.Write(content)
	if c.endsEvent(content[:n]) {
		c.response.noteFlush()
	}
	return n, err
}

// endsEvent tells whether a part that has been written is the end of an event. It has the header of a frame as a whole.
func (c *timedConn) endsEvent(part []byte) bool {
	const headerBytes, isFrame, lengthBits, twoBytes, eightBytes, binaryFrame = 10, 0x80, 0x7f, 126, 127, 2
	header := make([]byte, headerBytes)
	copy(header, part)
	if c.left == 0 {
		if header[0]&isFrame == 0 {
			return false // It is no frame, but the answer to the handshake.
		}
		c.data = header[0]&^isFrame <= binaryFrame
		switch length := header[1] & lengthBits; length {
		case twoBytes:
			c.left = 4 + uint64(binary.BigEndian.Uint16(header[2:]))
		case eightBytes:
			c.left = headerBytes + binary.BigEndian.Uint64(header[2:])
		default:
			c.left = 2 + uint64(length)
		}
	}
	c.left -= min(c.left, uint64(len(part)))
	return c.data && c.left == 0
}

// awaitClient ends the response if the client is waited for too long until over is called.
func (w *timedWriter) awaitClient() (over func()) {
	stopEnd, stopSlow := func() {}, func() {}
	switch {
	case w.longRunning:
		stopEnd = after(EventTime, w.end)
	case !w.begun:
		w.begun = true
		_ = w.control.SetWriteDeadline(time.Now().Add(responseTime)) // Without one, the request's end is one.
	}
	if !w.slow {
		stopSlow = after(min(slowAfter, slowInAll-w.waited), w.late)
	}
	began := time.Now()
	return func() {
		stopEnd()
		stopSlow()
		w.waited += time.Since(began)
	}
}

func (w *timedWriter) end() {
	_ = w.control.SetWriteDeadline(time.Now())
}

// late counts the response for its account until it ends, or ends it. A watch only loses its seat of priority and
// fairness, which it has until it has sent the objects that there are.
func (w *timedWriter) late() {
	w.slow = true
	account := w.account.Load()
	switch {
	case w.longRunning:
		if w.watch != nil {
			w.watch.initialized()
		}
	case account == nil: // Strangers hold no seat, and share no bound.
	case w.waits.Take(*account, 1):
		w.counted = true
	default:
		w.end()
	}
}

// setReadDeadline does nothing after the handler has returned. The library's timeout goes on with the work then, whose
// deadline would be that of the next request over HTTP/1.1. Over HTTP/2 it would end the process.
func (w *timedWriter) setReadDeadline(deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.left {
		_ = w.control.SetReadDeadline(deadline) // Without it, there is that of WithBodyDeadline.
	}
}

func (w *timedWriter) leave() {
	w.mu.Lock()
	w.left = true
	w.mu.Unlock()
	if w.counted {
		w.waits.Give(*w.account.Load(), 1)
	}
}
