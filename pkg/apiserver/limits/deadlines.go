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
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/klog/v2"
)

const (
	// responseTime is how long a client may take to read a response, and refusalTime how long if it is a refusal, which
	// strangers can have, too. Until then, it holds a seat of priority and fairness.
	responseTime, refusalTime = 60 * time.Second, time.Second
	// EventTime is how long a client may take to read a part of a response that goes on.
	EventTime = 30 * time.Second
)

// WithDeadlines ends the wait for a body when the time for a request is over, and responses that their clients do not
// read. k8s.io/apiserver waits as long as the connection lives, over HTTP/1.1 even after its answer.
// Upstream fault 9.
// Upstream fault 76.
func WithDeadlines(next http.Handler, bodyTime time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		response := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w), http2: req.ProtoMajor > 1}
		if req.ContentLength != 0 {
			if err := response.control.SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
				klog.FromContext(req.Context()).Error(err, "A body is waited for without a limit")
			}
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), req)
	})
}

// timedWriter ends a response that its client does not read.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	http2   bool
	// begun is set by the first write, and goesOn by a flush: then each part has its own time.
	begun, goesOn bool
}

// Unwrap is for k8s.io/apiserver's wrapper.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader begins the response.
func (w *timedWriter) WriteHeader(code int) {
	if !w.begun && code >= http.StatusOK {
		w.begun = true
		switch {
		case code >= http.StatusBadRequest:
			_ = w.control.SetWriteDeadline(time.Now().Add(refusalTime))
		case !w.http2: // Over HTTP/2, the timeout of the request ends the response, too.
			_ = w.control.SetWriteDeadline(time.Now().Add(responseTime))
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write writes a part of the response.
func (w *timedWriter) Write(content []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if w.goesOn {
		defer after(EventTime, w.end)()
	}
	return w.ResponseWriter.Write(content)
}

// Flush writes what is in buffers.
func (w *timedWriter) Flush() {
	if !w.goesOn {
		w.goesOn = true
		_ = w.control.SetWriteDeadline(time.Time{})
	}
	defer after(EventTime, w.end)()
	_ = w.control.Flush() // The next write fails, too.
}

// Hijack returns the connection of a WebSocket.
func (w *timedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := w.control.Hijack()
	if err != nil {
		return conn, buffers, err
	}
	timed := timedConn{conn}
	return timed, bufio.NewReadWriter(buffers.Reader, bufio.NewWriter(timed)), nil
}

func (w *timedWriter) end() { _ = w.control.SetWriteDeadline(time.Now()) }

type timedConn struct{ net.Conn }

// Write waits until the client has read enough.
func (c timedConn) Write(content []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(EventTime)) // Write returns the same error.
	return c.Conn.Write(content)
}

// after calls a function when some time has passed, unless the returned one has been called. That waits for a call that
// has begun: k8s.io/apiserver's writers must not be used when their handler has returned.
func after(delay time.Duration, call func()) (stop func()) {
	var mu sync.Mutex
	stopped := false
	timer := time.AfterFunc(delay, func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			call()
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
