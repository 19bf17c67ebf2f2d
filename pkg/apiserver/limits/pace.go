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
	"net/http"
	"time"

	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
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
// as the connection lives, with all of the response in memory: what times a request out
// waits for the write, too.
// Upstream fault 76.
type timedWriter struct {
	http.ResponseWriter
	control     *http.ResponseController
	reservation *reservation
	// longRunning responses may pause for any time between writes.
	longRunning bool
	// begun is set by the first write.
	begun bool
}

// withDeadlines returns a writer for the response to a request.
func withDeadlines(w http.ResponseWriter, req *http.Request, reservation *reservation, longRunning genericapirequest.LongRunningRequestCheck) http.ResponseWriter {
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	return responsewriter.WrapForHTTP1Or2(&timedWriter{
		ResponseWriter: w, control: http.NewResponseController(w), reservation: reservation, longRunning: ok && longRunning(req, info),
	})
}

// Unwrap is for the library's wrapper.
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write waits until the client has read enough.
func (w *timedWriter) Write(content []byte) (int, error) {
	defer w.awaitClient()()
	return w.ResponseWriter.Write(content)
}

// Flush writes what is in buffers.
func (w *timedWriter) Flush() {
	defer w.awaitClient()()
	_ = w.control.Flush() // The next write fails, too.
	if w.reservation.watch.flushed != nil {
		w.reservation.watch.flushed()
	}
}

// awaitClient ends the response if the client is waited for too long until over is called.
func (w *timedWriter) awaitClient() (over func() bool) {
	end := func() { _ = w.control.SetWriteDeadline(time.Now()) }
	if w.longRunning {
		return time.AfterFunc(EventTime, end).Stop
	}
	if !w.begun {
		w.begun = true
		_ = w.control.SetWriteDeadline(time.Now().Add(responseTime)) // Without one, the request's end is one.
	}
	return w.reservation.awaitClient(end).over
}
