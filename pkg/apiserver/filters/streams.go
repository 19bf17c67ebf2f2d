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

package filters

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/streaming/pkg/httpstream"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// streamRetrySeconds is the Retry-After of a user with too many streams.
const streamRetrySeconds = 10

// Streams lets requests for some subresources go on like watches. No timeout ends them, and a
// stopping server tells them to end and waits for it. The library does so only for requests whose
// verb is watch.
// Upstream fault 56.
type Streams struct {
	always, followed sets.Set[schema.GroupResource]
	shutdown         chan struct{}
	forwarded        func(user.Info) bool
	bounds           limits.Bounds
	watches          limits.Watches

	mu    sync.Mutex
	users map[follower]int
}

// follower is an account with streams of a kind that has a bound of its own.
type follower struct {
	account string
	kind    streamKind
}

type streamKind int

const (
	// plainStream is the kind of all other streams, which has none.
	plainStream streamKind = iota
	// seatedStream takes a seat of kube-apiserver, which treats it like a request of up to a
	// minute.
	seatedStream
	// upgradedStream takes a connection here and another one at kube-apiserver. WebSockets that
	// watch do so, too.
	upgradedStream
)

var _ genericapirequest.ServerShutdownSignal = &Streams{}

// NewStreams returns the Streams of these subresources. Requests for those in always, such as
// "machines/exec", always go on. Requests for those in followed, such as "pizzas/track", go on if
// they are GET requests whose query parameter "follow" is true. Forwarded tells whether
// kube-apiserver has forwarded the requests of a user. All streams count as watches.
func NewStreams(bounds limits.Bounds, watches limits.Watches, always, followed []schema.GroupResource, forwarded func(user.Info) bool) *Streams {
	return &Streams{
		always:    sets.New(always...),
		followed:  sets.New(followed...),
		shutdown:  make(chan struct{}),
		forwarded: forwarded,
		bounds:    bounds,
		watches:   watches,
		users:     map[follower]int{},
	}
}

// ShuttingDown is closed when the server accepts no new requests.
func (s *Streams) ShuttingDown() <-chan struct{} { return s.shutdown }

// LongRunning adds the streams to the requests that are long-running.
func (s *Streams) LongRunning(check genericapirequest.LongRunningRequestCheck) genericapirequest.LongRunningRequestCheck {
	return func(req *http.Request, info *genericapirequest.RequestInfo) bool {
		return s.has(req, info) || check(req, info)
	}
}

// has tells whether a request is for a stream and may go on. A request that is not followed takes
// its turn like every other request.
func (s *Streams) has(req *http.Request, info *genericapirequest.RequestInfo) bool {
	if !info.IsResourceRequest || info.Subresource == "" {
		return false
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource + "/" + info.Subresource}
	return s.always.Has(resource) || s.followed.Has(resource) && req.Method == http.MethodGet && follows(req)
}

// follows tells whether a request asks to follow a stream. It reads the parameter as the library
// does.
func follows(req *http.Request) bool {
	follow := parameters(req.URL.RawQuery)["follow"]
	return len(follow) > 0 && !strings.EqualFold(follow[0], "false") && follow[0] != "0"
}

// enter counts another stream, or returns an error if the user has too many.
func (s *Streams) enter(of follower) error {
	var most int
	var text string
	switch of.kind {
	case plainStream:
		return nil
	case seatedStream:
		most, text = s.bounds.ForwardedStreamsPerUser, "a user must not follow more than %d streams at once through kube-apiserver"
	case upgradedStream:
		most, text = s.bounds.UpgradesPerUser, "a user must not have more than %d connections, such as WebSockets, upgraded at once"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[of] >= most {
		return apierrors.NewTooManyRequests(fmt.Sprintf(text, most), streamRetrySeconds)
	}
	s.users[of]++
	return nil
}

func (s *Streams) leave(of follower) {
	if of.kind == plainStream {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[of]--; s.users[of] == 0 {
		delete(s.users, of)
	}
}

// WithShutdown makes a stopping server tell the streams to end and wait for them. It refuses those
// of a user beyond the bound. WebSockets that watch are streams here, since the library does not
// tell them to end.
// Upstream fault 80.
func (s *Streams) WithShutdown(next http.Handler, config *genericapiserver.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		upgraded := httpstream.IsUpgradeRequest(req)
		if !ok || !info.IsResourceRequest || !upgraded && !s.has(req, info) {
			next.ServeHTTP(w, req)
			return
		}
		version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		of := s.follower(req, info, upgraded)
		if err := s.enter(of); err != nil {
			responsewriters.ErrorNegotiated(err, config.Serializer, version, w, req)
			return
		}
		defer s.leave(of)
		if info.Verb != "watch" { // WithMemoryBounds counts those.
			end, ok := s.watches.Follow(req)
			if !ok {
				responsewriters.ErrorNegotiated(limits.ErrTooManyWatches(), config.Serializer, version, w, req)
				return
			}
			defer end()
		}
		if err := config.WatchRequestWaitGroup.Add(1); err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable("the server is shutting down"), config.Serializer, version, w, req)
			return
		}
		defer config.WatchRequestWaitGroup.Done()
		ctx := genericapirequest.WithServerShutdownSignal(req.Context(), s)
		if info.Verb == "watch" {
			var end context.CancelFunc
			ctx, end = context.WithCancel(ctx)
			defer end()
			defer context.AfterFunc(wait.ContextForChannel(s.shutdown), end)()
		}
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

func (s *Streams) follower(req *http.Request, info *genericapirequest.RequestInfo, upgraded bool) follower {
	user, ok := genericapirequest.UserFrom(req.Context())
	if !ok {
		return follower{}
	}
	account := limits.Account(user.GetName())
	switch {
	case upgraded:
		return follower{account, upgradedStream}
	case s.forwarded(user) && !longRunning(info.Subresource):
		return follower{account, seatedStream}
	default:
		return follower{account, plainStream}
	}
}

// longRunning tells whether requests for a subresource are long-running for kube-apiserver.
func longRunning(subresource string) bool {
	switch subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return false
}

// Install makes the server tell the streams when it stops.
func (s *Streams) Install(server *genericapiserver.GenericAPIServer) error {
	return server.AddPreShutdownHook("end-streams", func() error {
		// Until then, clients are still sent to this server.
		time.AfterFunc(server.ShutdownDelayDuration, func() { close(s.shutdown) })
		return nil
	})
}
