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
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/httplog"
)

// pendingRetrySeconds is when a client may hope that other requests have ended.
const pendingRetrySeconds = 1

// WithInFlightLimit refuses requests beyond RequestsInFlight with 429. It counts each
// until its work has ended, which the library does not: as soon as a client resets a
// stream of HTTP/2, or closes its connection, it may have another, while the library goes
// on with the first in a goroutine of its own. So the client's context is kept from the
// library, and given back by WithClientContext to what can end with it. That also ends the count,
// since the library goes on with the work on a request whose time is over, too. Health checks
// and long-running requests, which end with their clients, are not counted.
func WithInFlightLimit(next http.Handler, serializer runtime.NegotiatedSerializer, resolver genericapirequest.RequestInfoResolver,
	longRunning genericapirequest.LongRunningRequestCheck, bounds Bounds) http.Handler {
	var pending atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Context().Err() != nil {
			return // The client has given it up before anything has begun.
		}
		info, err := resolver.NewRequestInfo(req)
		if err != nil || longRunning(req, info) || isHealthCheck(info.Path) {
			next.ServeHTTP(w, req)
			return
		}
		counted := &countedRequest{client: req.Context(), end: sync.OnceFunc(func() { pending.Add(-1) })}
		defer func() {
			if !counted.inWork.Load() {
				counted.end()
			}
		}()
		if pending.Add(1) > int64(bounds.RequestsInFlight) {
			err := apierrors.NewTooManyRequests(fmt.Sprintf("this server works on %d requests already", bounds.RequestsInFlight), pendingRetrySeconds)
			responsewriters.ErrorNegotiated(err, serializer, metav1.Unversioned, w, req)
			return
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(context.WithoutCancel(counted.client), countedKey{}, counted)))
	})
}

func isHealthCheck(path string) bool {
	for _, check := range []string{"/healthz", "/livez", "/readyz"} {
		if path == check || strings.HasPrefix(path, check+"/") {
			return true
		}
	}
	return false
}

// countedKey is that of the countedRequest of a context.
type countedKey struct{}

type countedRequest struct {
	client context.Context
	// end ends the count, however often it is called.
	end func()
	// inWork is set if WithClientContext calls it.
	inWork atomic.Bool
}

// WithClientContext ends the work on a request when its client has given it up, and the count of
// WithInFlightLimit when the work has ended.
func WithClientContext(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if counted, ok := req.Context().Value(countedKey{}).(*countedRequest); ok {
			counted.inWork.Store(true)
			defer counted.end()
		}
		ctx, cancel := UntilClientLeaves(req.Context())
		defer cancel()
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// UntilClientLeaves returns a context that ends with the client of WithInFlightLimit, too.
func UntilClientLeaves(ctx context.Context) (context.Context, context.CancelFunc) {
	counted, ok := ctx.Value(countedKey{}).(*countedRequest)
	if !ok {
		return ctx, func() {}
	}
	bounded, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(counted.client, func() {
		// What fails now is no error of the server's.
		httplog.SetStacktracePredicate(ctx, func(int) bool { return false })
		cancel(context.Cause(counted.client))
	})
	return bounded, func() {
		stop()
		cancel(context.Canceled)
	}
}
