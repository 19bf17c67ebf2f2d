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
	"iter"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/operation"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
	// about the object as it is. There is no other line if that is 0.
	Follow func(P) time.Duration
	// Line describes an object without a line break, and says whether there is
	// nothing more to wait for. What is no different from before is not written
	// again.
	Line func(O) (line string, last bool)
}

const (
	// queuedLines is how many lines may wait for a client. When there are more it
	// misses the oldest of them: the newest says how the object is.
	queuedLines = 16
	// writeTimeout is how long a client may take for a line before it is cut off.
	writeTimeout = 10 * time.Second
	// resumePause is between attempts to go on after what feeds the stream has
	// been interrupted, such as by a restart of etcd.
	resumePause = time.Second
)

func (s Stream[O, P]) longRunning() bool { return true }

func (s Stream[O, P]) storage(of parent[O], _ string) rest.Storage {
	return &streamREST[O, P]{s, of}
}

// streamREST serves a Stream. All requests are fed by the one watch cache of the
// kind, as watches are.
type streamREST[O Object, P runtime.Object] struct {
	Stream[O, P]
	of parent[O]
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

// ConnectMethods is GET, for which one needs the right to get the subresource.
func (r *streamREST[O, P]) ConnectMethods() []string { return []string{http.MethodGet} }

// Connect answers with lines about an object.
func (r *streamREST[O, P]) Connect(ctx context.Context, name string, options runtime.Object, _ rest.Responder) (http.Handler, error) {
	errs := rest.DeclarativeValidation{Scheme: r.of.group.scheme}.ValidateDeclaratively(
		withoutSubresource(ctx), options, nil, nil, operation.Create, rest.DeclarativeValidationConfig{})
	if len(errs) > 0 {
		return nil, invalid(r.of.group.scheme, options, "", errs)
	}
	o, err := r.get(ctx, name)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.serve(ctx, newLineWriter(w), o, r.Follow(options.(P)))
	}), nil
}

func (r *streamREST[O, P]) get(ctx context.Context, name string) (o O, err error) {
	obj, err := r.of.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return o, err
	}
	return obj.(O), nil
}

// serve writes lines about an object until there is nothing more to say, or nobody
// to listen. The context, the request's, ends with it.
func (r *streamREST[O, P]) serve(ctx context.Context, w lineWriter, o O, follow time.Duration) {
	line, last := r.Line(o)
	if !w.write(line) || last || follow == 0 {
		return
	}
	lines := make(chan string, queuedLines)
	go r.watch(ctx, o, lines)
	for timeout := time.After(follow); ; {
		select {
		case line, more := <-lines:
			if !more || !w.write(line) {
				return
			}
		case <-timeout:
			w.write(fmt.Sprintf("timed out after %s", follow))
			return
		case <-shutdown(ctx):
			w.write("the server is shutting down")
			return
		case <-ctx.Done():
			return
		}
	}
}

// watch sends lines about what happens to an object from now on, and closes the
// channel after the last.
func (r *streamREST[O, P]) watch(ctx context.Context, o O, lines chan string) {
	defer close(lines)
	before, _ := r.Line(o)
	for o := range r.changes(ctx, o) {
		line, last := r.Line(o)
		if line != before {
			enqueue(lines, line)
		}
		if last {
			return
		}
		before = line
	}
	enqueue(lines, "deleted")
}

func enqueue(lines chan string, line string) {
	for {
		select {
		case lines <- line:
			return
		default:
		}
		select {
		case <-lines:
		default:
		}
	}
}

// changes yields what becomes of an object, until it is deleted or the context ends.
func (r *streamREST[O, P]) changes(ctx context.Context, o O) iter.Seq[O] {
	return func(yield func(O) bool) {
		for {
			var more bool
			if o, more = r.cached(ctx, o, yield); !more {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(resumePause):
			}
			newest, err := r.get(ctx, o.GetName())
			switch {
			case apierrors.IsNotFound(err):
				return
			case err != nil:
				continue
			case !yield(newest):
				return
			}
			o = newest
		}
	}
}

// cached yields what the watch cache tells of an object, and returns the newest and
// whether there is more to come, when the cache has no more of it.
func (r *streamREST[O, P]) cached(ctx context.Context, o O, yield func(O) bool) (newest O, more bool) {
	changes, err := r.of.store.Watch(ctx, &metainternalversion.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", o.GetName()),
		ResourceVersion: o.GetResourceVersion(),
	})
	if err != nil {
		return o, true
	}
	defer changes.Stop()
	for event := range changes.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified:
			o = object[O](event.Object)
			if !yield(o) {
				return o, false
			}
		case watch.Deleted:
			return o, false
		}
	}
	return o, true
}

// object returns the object of an event. If there are many watchers, it comes from
// the watch cache in a wrapping that all of them share.
func object[O Object](obj runtime.Object) O {
	if shared, ok := obj.(runtime.CacheableObject); ok {
		obj = shared.GetObject()
	}
	return obj.(O)
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
	return w.control.SetWriteDeadline(time.Time{}) == nil
}

// shutdown is closed when the server wants to end, if it has said how it tells.
func shutdown(ctx context.Context) <-chan struct{} {
	if signal := genericapirequest.ServerShutdownSignalFrom(ctx); signal != nil {
		return signal.ShuttingDown()
	}
	return nil
}
