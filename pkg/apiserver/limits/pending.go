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
	"k8s.io/utils/lru"
)

// pendingRetrySeconds is when a client may hope that other requests have ended.
const pendingRetrySeconds = 1

const (
	// proxyPart is the part of the requests in flight that is kept for the front proxy, and
	// addressPart the part of the others that an IP address may have.
	proxyPart, addressPart = 4, 2
	// trackedAddresses is the number of IP addresses whose requests are counted, those that have
	// been used last.
	trackedAddresses = 4096
)

// WithInFlightLimit refuses requests beyond RequestsInFlight with 429, and those of clients other
// than the front proxy beyond three quarters of it. An IP address may have half of these.
//
// It counts each until its work has ended, which the library does not: as soon as a client resets a
// stream of HTTP/2, or closes its connection, it may have another, while the library goes on with the
// first in a goroutine of its own. So the client's context is kept from the library, and
// WithClientsThatWait looks at it before the work begins, and ends the count. The work on a request whose time is over
// goes on even then; WithMemoryBounds counts that.
//
// Health checks and long-running requests, which end with their clients, are not counted. Nor is
// what the front proxy asks about the server itself, such as discovery: kube-apiserver would take
// the group away from all clients if the answer were 429.
func WithInFlightLimit(next http.Handler, serializer runtime.NegotiatedSerializer, resolver genericapirequest.RequestInfoResolver,
	longRunning genericapirequest.LongRunningRequestCheck, byFrontProxy func(*http.Request) bool, bounds Bounds) http.Handler {
	all := &inFlight{limit: int64(bounds.RequestsInFlight)}
	direct := &inFlight{limit: int64(bounds.RequestsInFlight - bounds.RequestsInFlight/proxyPart), all: all}
	addresses := lru.New(trackedAddresses)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Context().Err() != nil {
			return // The client has given it up before anything has begun.
		}
		of := all
		if !byFrontProxy(req) {
			of = direct.at(addresses, ClientAddress(req.RemoteAddr))
		}
		info, err := resolver.NewRequestInfo(req)
		if err != nil || longRunning(req, info) || isHealthCheck(info.Path) || of == all && !info.IsResourceRequest {
			next.ServeHTTP(w, req)
			return
		}
		if !of.enter() {
			err := apierrors.NewTooManyRequests(fmt.Sprintf("this server works on %d requests already", of.limit), pendingRetrySeconds)
			responsewriters.ErrorNegotiated(err, serializer, metav1.Unversioned, w, req)
			return
		}
		counted := &countedRequest{client: req.Context(), end: sync.OnceFunc(of.leave)}
		defer func() {
			if !counted.inWork.Load() {
				counted.end()
			}
		}()
		next.ServeHTTP(w, req.WithContext(context.WithValue(context.WithoutCancel(counted.client), countedKey{}, counted)))
	})
}

// inFlight counts requests up to a limit. They count in all, too, unless that is nil.
type inFlight struct {
	limit    int64
	all      *inFlight
	requests atomic.Int64
}

// enter counts another request, or tells that there are too many.
func (f *inFlight) enter() bool {
	if f.requests.Add(1) <= f.limit && (f.all == nil || f.all.enter()) {
		return true
	}
	f.requests.Add(-1)
	return false
}

// at returns the count of an IP address, which counts in f, too.
func (f *inFlight) at(addresses *lru.Cache, address string) *inFlight {
	found, ok := addresses.Get(address)
	if !ok {
		// Of two that are made at the same time, one is forgotten.
		found = &inFlight{limit: max(1, f.limit/addressPart), all: f}
		addresses.Add(address, found)
	}
	return found.(*inFlight)
}

func (f *inFlight) leave() {
	f.requests.Add(-1)
	if f.all != nil {
		f.all.leave()
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
	// end ends the count, however often it is called.
	end func()
	// inWork is set if WithClientsThatWait calls it.
	inWork atomic.Bool
}

// statusClientClosedRequest is what nginx, and others after it, log for such requests.
const statusClientClosedRequest = 499

// WithClientsThatWait begins no work on a request whose client has given it up, and ends the count
// of WithInFlightLimit when the work has ended. What has begun goes on to its end, so that it fails
// for no other reason: a client that leaves is no failure of the server.
// Upstream fault 82.
func WithClientsThatWait(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		counted, ok := req.Context().Value(countedKey{}).(*countedRequest)
		if !ok {
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
