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
	// paceGrace is how long a client may neither read nor write.
	paceGrace = 30 * time.Second
	// paceBytes is how much it has to read or write in each second after that.
	paceBytes = 64 << 10
	// hurry is how long a client may take to read what is written when the memory for
	// requests is used up.
	hurry = 100 * time.Millisecond
	// smallWrite is up to which size what is written is not worth counting: connections
	// have buffers as large.
	smallWrite = 4 << 10
)

// pace returns how long a client may take to read or write so many bytes.
func pace(bytes int) time.Duration {
	return paceGrace + time.Duration(bytes)*time.Second/paceBytes
}

// pacedWriter ends a response that its client does not read. The library waits for as long
// as the connection lives, with all of the response in memory: what times a request out
// waits for the write, too.
// Upstream fault 76.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	share   *share
	// longRunning responses may pause for any time, but not while they write much.
	longRunning bool
	// large is set if the last write was worth counting.
	large    bool
	begun    time.Time
	written  int
	deadline time.Time
}

// withPace returns a writer for the response to a request.
func withPace(w http.ResponseWriter, req *http.Request, share *share, longRunning genericapirequest.LongRunningRequestCheck) http.ResponseWriter {
	info, ok := genericapirequest.RequestInfoFrom(req.Context())
	return responsewriter.WrapForHTTP1Or2(&pacedWriter{
		ResponseWriter: w, control: http.NewResponseController(w), share: share, longRunning: ok && longRunning(req, info),
	})
}

// Unwrap is for the library's wrapper.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write waits until the client has read enough.
func (p *pacedWriter) Write(content []byte) (int, error) {
	patience := pace(len(content))
	p.large = len(content) > smallWrite
	if p.large {
		if p.share.take(int64(len(content))) {
			defer p.share.give(int64(len(content)))
		} else if p.longRunning || p.share.listed() == 0 { // What is of a list is counted.
			patience = hurry
		}
	}
	switch deadline := time.Now().Add(patience); {
	case !p.longRunning:
		if p.written == 0 {
			p.begun = time.Now()
		}
		p.written += len(content)
		if total := p.begun.Add(pace(p.written)); total.Before(deadline) {
			deadline = total
		}
		p.until(deadline)
		defer p.awaitClient().over()
	case p.large:
		p.until(deadline)
		defer p.until(time.Time{})
	}
	return p.ResponseWriter.Write(content)
}

// Flush writes what is in buffers.
func (p *pacedWriter) Flush() {
	switch {
	case !p.longRunning:
		defer p.awaitClient().over()
	case p.large:
		p.until(time.Now().Add(paceGrace))
		defer p.until(time.Time{})
	}
	_ = p.control.Flush() // The next write fails, too.
	if p.share.watch.flushed != nil {
		p.share.watch.flushed()
	}
}

func (p *pacedWriter) awaitClient() *clientWait {
	return p.share.awaitClient(func() { _ = p.control.SetWriteDeadline(time.Now()) })
}

// until sets the deadline, unless it is about the same.
func (p *pacedWriter) until(deadline time.Time) {
	if difference := deadline.Sub(p.deadline); !deadline.IsZero() && difference >= 0 && difference < time.Second {
		return
	}
	p.deadline = deadline
	_ = p.control.SetWriteDeadline(deadline) // Without one, the request's end is one.
}
