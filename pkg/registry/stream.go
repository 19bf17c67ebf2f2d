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

package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Stream declares a subresource that answers a GET with lines of plain text about an
// object of internal type O. Its query parameters have a kind of their own, with
// internal type P.
type Stream[O Object, P runtime.Object] struct {
	// NewOptions returns the options of a request without parameters.
	NewOptions func() P
	// Follow returns for how long a request continues after its first line, or 0. The
	// first line is about the current state. The options must have a field follow.
	// Requests without it end with the request timeout.
	Follow func(P) time.Duration
	// Line describes an object without a line break, and reports whether the line is the
	// last one. A line equal to the one before is not sent.
	Line func(O) (line string, last bool)
}

// writeTimeout is how long a client may take for a line before it is cut off.
const writeTimeout = 10 * time.Second

// LongRunning implements Subresource.
func (Stream[O, P]) LongRunning() LongRunning { return IfFollowed }

// Storage implements Subresource.
func (s Stream[O, P]) Storage(of Parent[O]) (rest.Storage, error) {
	return &streamREST[O, P]{Stream: s, of: of, broadcaster: newBroadcaster(of.Store, s.Line)}, nil
}

// streamREST serves a Stream.
type streamREST[O Object, P runtime.Object] struct {
	Stream[O, P]
	of          Parent[O]
	broadcaster *broadcaster[O]
}

var (
	_ rest.Storage   = &streamREST[Object, runtime.Object]{}
	_ rest.Connecter = &streamREST[Object, runtime.Object]{}
)

// New returns empty options. Admission sees the options as the object of the request.
func (r *streamREST[O, P]) New() runtime.Object { return r.NewOptions() }

// Destroy does nothing: the store is destroyed by objectREST.
func (r *streamREST[O, P]) Destroy() {}

// NewConnectOptions returns the options. No field of them is part of the path.
func (r *streamREST[O, P]) NewConnectOptions() (options runtime.Object, hasPath bool, pathField string) {
	return r.NewOptions(), false, ""
}

// ConnectMethods returns GET. Users need the permission to get the subresource.
func (r *streamREST[O, P]) ConnectMethods() []string { return []string{http.MethodGet} }

// Connect answers with lines about an object.
func (r *streamREST[O, P]) Connect(ctx context.Context, name string, options runtime.Object, _ rest.Responder) (http.Handler, error) {
	if err := checkOptions(ctx, r.of.Scheme, options); err != nil {
		return nil, err
	}
	if follow := r.Follow(options.(P)); follow > 0 {
		return r.follow(ctx, name, follow)
	}
	now, err := r.broadcaster.read(ctx, name)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// k8s.io/apiserver's timeout may have ended the response. A deadline would apply to the next one.
		_, _ = io.WriteString(newLineWriter(w), now.line+"\n")
	}), nil
}

// follow answers with lines until there is nothing more to say, or the client is gone.
func (r *streamREST[O, P]) follow(ctx context.Context, name string, limit time.Duration) (http.Handler, error) {
	// The order matters: the news then has every change after the read. Older news is
	// skipped by version.
	news, leave := r.broadcaster.follow(genericapirequest.NamespaceValue(ctx), name)
	now, err := r.broadcaster.read(ctx, name)
	if err != nil {
		leave()
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer leave()
		lines := newLineWriter(w)
		timeout := time.NewTimer(limit)
		defer timeout.Stop()
		for client := lines.write(now.line); client && !now.last; {
			select {
			case next := <-news:
				if next.version <= now.version {
					continue
				}
				if next.uid != now.uid { // Another object may have its name by now.
					lines.write("deleted")
					return
				}
				if next.line != now.line {
					client = lines.write(next.line)
				}
				now = next
			case <-timeout.C:
				lines.write(fmt.Sprintf("timed out after %s", limit))
				return
			case <-shutdown(ctx):
				lines.write("the server is shutting down")
				return
			case <-ctx.Done():
				return
			}
		}
	}), nil
}

// checkOptions checks query parameters by their validation tags.
func checkOptions(ctx context.Context, scheme *runtime.Scheme, options runtime.Object) error {
	errs := rest.DeclarativeValidation{Scheme: scheme}.ValidateDeclaratively(
		withoutSubresource(ctx), options, nil, nil, operation.Create, rest.DeclarativeValidationConfig{})
	if len(errs) > 0 {
		return invalid(scheme, options, "", errs)
	}
	return nil
}

// lineWriter writes lines that reach the client at once.
type lineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newLineWriter(w http.ResponseWriter) lineWriter {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	return lineWriter{w, http.NewResponseController(w)}
}

// write returns false if the client is gone.
func (w lineWriter) write(line string) bool {
	if err := w.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return false
	}
	if _, err := io.WriteString(w, line+"\n"); err != nil {
		return false
	}
	if err := w.control.Flush(); err != nil {
		return false
	}
	// The deadline of an HTTP/2 stream also ends the stream while nothing is written.
	// Upstream fault 68.
	return w.control.SetWriteDeadline(time.Time{}) == nil
}

// shutdown returns a channel that is closed when the server shuts down. It is nil if
// the context has no such signal.
func shutdown(ctx context.Context) <-chan struct{} {
	if signal := genericapirequest.ServerShutdownSignalFrom(ctx); signal != nil {
		return signal.ShuttingDown()
	}
	return nil
}
