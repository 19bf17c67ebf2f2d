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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// handlerTime is when the library answers a write at the latest, if the time of the request is not over before.
const handlerTime = 34 * time.Second

// compressors is how many responses are compressed at once. Each compressor takes 1.2 MiB.
const compressors = 32

// WithMemoryBounds bounds the memory that bodies, lists and watches take, and the time that clients take
// to send them. Check is called with each body that is not larger than maxBody. The
// handler belongs behind authorization, so that the server reads bodies only from clients that may
// write, and inside WithResponseDeadlines.
//
// The work on a write whose time is over goes on in a goroutine of the library's, which tells nobody when it ends. So
// what the request has taken counts in the part of its account for another while.
//
// Responses beyond the compressors are not compressed. Nor are watches, which would keep theirs as long as they like.
func WithMemoryBounds(next http.Handler, serializer runtime.NegotiatedSerializer, longRunning genericapirequest.LongRunningRequestCheck, bounds Bounds, watches Watches, maxBody int64,
	check func(req *http.Request, verb string, body []byte) error) http.Handler {
	memory, compressed := newBudget(bounds.RequestMemory), semaphore.NewWeighted(compressors)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		response := responseOf(req.Context())
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		goesOn := ok && longRunning(req, info)
		if goesOn {
			response.longRunning = true // No other goroutine writes such a response.
		}
		if ok && info.IsResourceRequest {
			version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			reservation := memory.reserve(accountOf(req))
			reservation.watch.initialized = func() { utilflowcontrol.WatchInitialized(req.Context()) }
			if goesOn && info.Verb == "watch" {
				end, ok := watches.take(reservation.account, 1)
				if !ok {
					responsewriters.ErrorNegotiated(ErrTooManyWatches(), serializer, version, w, req)
					return
				}
				defer end()
				response.watch = &reservation.watch
			}
			began := time.Now()
			defer func() {
				reservation.release(outlives(info.Verb) && !goesOn && (req.Context().Err() != nil || time.Since(began) >= handlerTime))
			}()
			if info.Verb == "list" || info.Verb == "deletecollection" {
				req = withoutImpliedIndent(req)
			}
			req = req.WithContext(context.WithValue(req.Context(), reservationKey{}, listReservation{
				reservation: reservation, factor: listFactorFor(req), object: objectFactorFor(req, info.Verb),
				indented: prefersIndented(req), sums: info.Verb == "deletecollection",
			}))
			if err := checkBody(req, info.Verb, maxBody, reservation, response, check); err != nil {
				responsewriters.ErrorNegotiated(err, serializer, version, w, req)
				return
			}
		}
		if req.Header.Get("Accept-Encoding") != "" {
			if !goesOn && compressed.TryAcquire(1) {
				defer compressed.Release(1)
			} else {
				req = req.WithContext(req.Context())
				req.Header = req.Header.Clone()
				req.Header.Del("Accept-Encoding")
			}
		}
		next.ServeHTTP(w, req)
	})
}

// hasBody tells whether the handlers of a verb read a body. Those of all others ignore it.
func hasBody(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// outlives tells whether the work for a verb may go on when the time of the request is over. A deletecollection ends then.
func outlives(verb string) bool { return hasBody(verb) && verb != "deletecollection" }

// checkBody reads the body, as far as it is not too large for the handler anyway,
// and puts it back.
func checkBody(req *http.Request, verb string, maxBody int64, reservation *reservation, response *timedWriter, check func(*http.Request, string, []byte) error) error {
	if !hasBody(verb) && (!response.longRunning || req.ContentLength == 0) {
		return nil // The library ignores it, and forgets it soon.
	}
	waits, deadline := response.waits, time.Now().Add(bodyTime)
	if end, limited := req.Context().Deadline(); limited && end.Before(deadline) {
		deadline = end
	}
	response.setReadDeadline(deadline)
	var counted, ended bool
	stop := after(slowAfter, func() {
		if counted = waits.Take(reservation.user, 1); !counted {
			ended = true
			response.setReadDeadline(time.Now())
		}
	})
	body, err := reservation.read(io.LimitReader(req.Body, maxBody+1))
	stop()
	if counted {
		waits.Give(reservation.user, 1)
	}
	switch {
	case ended && err != nil:
		return errTooManyWaits()
	case errors.Is(err, errBudget):
		return errTooMuchMemory("bodies")
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("the body can't be read: %v", err))
	}
	// The time of a body does not bound the work on it.
	response.setReadDeadline(time.Time{})
	req.Body = readCloser{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
	if int64(len(body)) > maxBody || !hasBody(verb) {
		return nil // The handler says so, or ignores it.
	}
	return check(req, verb, body)
}

// listFactorFor returns the factor for a list in the form that a client accepts.
func listFactorFor(req *http.Request) int64 {
	if _, implied := indents(req); implied || prefersIndented(req) {
		return listFactorIndented
	}
	return listFactor
}

const prettyParameter = "pretty"

// indents tells whether the query asks for JSON that is indented, or implies it by the User-Agent, as the library
// decides that.
func indents(req *http.Request) (asked, implied bool) {
	if strings.Contains(req.URL.RawQuery, prettyParameter) { // Escaped, it does not count.
		if value := req.URL.Query().Get(prettyParameter); value != "" {
			asked, _ = strconv.ParseBool(value)
			return asked, false
		}
	}
	agent := req.UserAgent()
	return false, strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// prefersIndented tells whether a client may get a list indented, as the library decides that. Clauses with other
// parameters, or for protobuf, do not apply to each kind.
func prefersIndented(req *http.Request) bool {
	if asked, _ := indents(req); asked {
		return true
	}
	for _, clause := range goautoneg.ParseAccept(req.Header.Get("Accept")) {
		_, pretty := clause.Params[prettyParameter]
		switch kind := clause.Type + "/" + clause.SubType; {
		case kind == runtime.ContentTypeYAML || pretty:
			return true
		case len(clause.Params) == 0 && (kind == runtime.ContentTypeJSON || kind == "application/*" || kind == "*/*"):
			return false
		}
	}
	return false
}

// withoutImpliedIndent has a list sent compactly unless its client asks for more. Indented, it takes four times as much
// memory, and a large one would be refused.
func withoutImpliedIndent(req *http.Request) *http.Request {
	if _, implied := indents(req); !implied {
		return req
	}
	query := req.URL.Query()
	query.Set(prettyParameter, "false")
	req = req.WithContext(req.Context())
	compact := *req.URL
	compact.RawQuery = query.Encode()
	req.URL = &compact
	return req
}

// objectFactorFor returns the factor for a single object.
func objectFactorFor(req *http.Request, verb string) int64 {
	if verb == "get" {
		return listFactorFor(req)
	}
	return writeFactor
}

type readCloser struct {
	io.Reader
	io.Closer
}
