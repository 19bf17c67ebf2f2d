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

// Stream declares a subresource that is connected to by GET, and answers with lines
// of plain text about an object of internal type O. Its query parameters have a kind
// of their own, with internal type P.
type Stream[O Object, P runtime.Object] struct {
	// NewOptions returns the options of a request without parameters.
	NewOptions func() P
	// Follow says for how long a request goes on after its first line, which is
	// about the object as it is. There is no other line if that is 0. The options must
	// have a field follow, without which a request ends with the request timeout.
	Follow func(P) time.Duration
	// Line describes an object without a line break, and says whether there is
	// nothing more to wait for. What has not changed is not written
	// again.
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

// New returns the options, which are the object that admission sees.
func (r *streamREST[O, P]) New() runtime.Object { return r.NewOptions() }

// Destroy does nothing: the store is destroyed by objectREST.
func (r *streamREST[O, P]) Destroy() {}

// NewConnectOptions returns the options. No field of them is part of the path.
func (r *streamREST[O, P]) NewConnectOptions() (options runtime.Object, hasPath bool, pathField string) {
	return r.NewOptions(), false, ""
}

// ConnectMethods is GET, for which users need the permission to get the subresource.
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
		newLineWriter(w).write(now.line)
	}), nil
}

// follow answers with lines until there is nothing more to say, or nobody to listen.
func (r *streamREST[O, P]) follow(ctx context.Context, name string, limit time.Duration) (http.Handler, error) {
	// What happens after the object has been read is in the news then, and of all
	// else that is there, the versions tell.
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

// write tells whether the client is still there.
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
	// Of an HTTP/2 stream the deadline holds when nothing is written, too.
	// Upstream fault 68.
	return w.control.SetWriteDeadline(time.Time{}) == nil
}

// shutdown is closed when the server wants to end, if it has said how it tells.
func shutdown(ctx context.Context) <-chan struct{} {
	if signal := genericapirequest.ServerShutdownSignalFrom(ctx); signal != nil {
		return signal.ShuttingDown()
	}
	return nil
}
