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
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// pendingRetrySeconds is when a client may hope that other requests have ended.
const pendingRetrySeconds = 1

// proxyPart is the part of the requests in flight that is kept for the front proxy.
const proxyPart = 4

// leastInFlight is how many requests in flight an account or an IP address may have in any case.
const leastInFlight = 4

// WithInFlightLimit refuses requests beyond RequestsInFlight with 429, and those of clients other
// than the front proxy beyond three quarters of it. An IP address may have as many of these as it leaves to others. An
// account may have as many of the forwarded ones as it leaves to others. An eighth is kept for the accounts of the cluster.
//
// It counts each until its work has ended, which the library does not. A client that resets a stream of HTTP/2, or
// closes its connection, may have another request at once. The library goes on with the first in a goroutine of its
// own. So the client's context is kept from the library, and WithClientsThatWait looks at it before the work begins,
// and ends the count. The work on a request whose time is over goes on even then; WithMemoryBounds counts that.
//
// Long-running requests, which end with their clients, count until they are authorized, but not those that the front
// proxy sends: kube-apiserver has authorized them before. Health checks are not counted. Nor is what the front proxy
// asks about the server itself, such as discovery. If the answer were 429, kube-apiserver would take the group away
// from all clients.
func WithInFlightLimit(next http.Handler, serializer runtime.NegotiatedSerializer, resolver genericapirequest.RequestInfoResolver,
	longRunning genericapirequest.LongRunningRequestCheck, forwardedFor func(*http.Request) (user string, ok bool), bounds Bounds) http.Handler {
	inFlight := newInFlight(int64(bounds.RequestsInFlight))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Context().Err() != nil {
			return // The client has given it up before anything has begun.
		}
		user, forwarded := forwardedFor(req)
		from := sender{accountOfUser(user), !forwarded}
		if from.direct {
			from.user = ClientAddress(req.RemoteAddr)
		}
		info, err := resolver.NewRequestInfo(req)
		endsWithClient := err == nil && longRunning(req, info)
		if err != nil || isHealthCheck(info.Path) || forwarded && (endsWithClient || !info.IsResourceRequest) {
			next.ServeHTTP(w, req)
			return
		}
		if refusal := inFlight.enter(from); refusal != "" {
			err := apierrors.NewTooManyRequests(refusal, pendingRetrySeconds)
			responsewriters.ErrorNegotiated(err, serializer, metav1.Unversioned, w, req)
			return
		}
		counted := &countedRequest{client: req.Context(), endsWithClient: endsWithClient, end: sync.OnceFunc(func() { inFlight.leave(from) })}
		defer func() {
			if !counted.inWork.Load() {
				counted.end()
			}
		}()
		ctx := counted.client
		if !endsWithClient {
			ctx = context.WithoutCancel(ctx)
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(ctx, countedKey{}, counted)))
	})
}

// sender is the account of a request, or the IP address of a client other than the front proxy.
type sender struct {
	account
	direct bool
}

// key differs for an address and for a user of that name.
func (s sender) key() string {
	if s.direct {
		return "address " + s.user
	}
	return s.user
}

// inFlight counts requests, and those of each sender but the accounts of the cluster.
type inFlight struct {
	limit          int64
	requests       atomic.Int64
	shared, direct *Shares
}

func newInFlight(limit int64) *inFlight {
	shares := func(total int64) *Shares {
		return NewShares(total + 1).WithLeast(min(leastInFlight, total/16)) // Without a least, nobody could have the last.
	}
	return &inFlight{limit: limit, shared: shares(limit - limit/systemPart), direct: shares(limit - limit/proxyPart)}
}

// enter counts another request, or tells why not.
func (f *inFlight) enter(from sender) (refusal string) {
	switch now := f.requests.Add(1); {
	case now > f.limit:
		refusal = fmt.Sprintf("this server works on %d requests already", f.limit)
	case f.take(from):
		return ""
	case from.direct:
		refusal = "this IP address has as many requests in this server already as it leaves to others"
	default:
		refusal = "this user has as many requests in this server already as it leaves to others"
	}
	f.requests.Add(-1)
	return refusal
}

func (f *inFlight) take(from sender) bool {
	if from.system {
		return true
	}
	if !f.shared.Take(from.key(), 1) {
		return false
	}
	if from.direct && !f.direct.Take(from.key(), 1) {
		f.shared.Give(from.key(), 1)
		return false
	}
	return true
}

func (f *inFlight) leave(from sender) {
	f.requests.Add(-1)
	if from.system {
		return
	}
	f.shared.Give(from.key(), 1)
	if from.direct {
		f.direct.Give(from.key(), 1)
	}
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
	// endsWithClient is set for long-running requests.
	endsWithClient bool
	// end ends the count, however often it is called.
	end func()
	// inWork is set if WithClientsThatWait calls it.
	inWork atomic.Bool
}

// statusClientClosedRequest is what nginx, and others after it, log for such requests.
const statusClientClosedRequest = 499

// WithClientsThatWait begins no work on a request whose client has given it up. It ends the count of
// WithInFlightLimit when the work has ended, or has begun if the request is a long-running one. Work goes on to its
// end after its client has left, since that is no failure of the server.
// Upstream fault 82.
func WithClientsThatWait(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		counted, ok := req.Context().Value(countedKey{}).(*countedRequest)
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		if counted.endsWithClient {
			counted.end()
			next.ServeHTTP(w, req)
			return
		}
		counted.inWork.Store(true)
		defer counted.end()
		if counted.client.Err() != nil {
			w.WriteHeader(statusClientClosedRequest)
			return
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&waitedWriter{w, counted.client}), req)
	})
}

// waitedWriter drops a response that nobody waits for. The library would log it as an error.
type waitedWriter struct {
	http.ResponseWriter
	client context.Context
}

// Unwrap is for the library's wrapper.
func (w *waitedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes a part of the response.
func (w *waitedWriter) Write(content []byte) (int, error) {
	n, err := w.ResponseWriter.Write(content)
	if w.client.Err() != nil {
		n, err = len(content), nil
	}
	return n, err
}
