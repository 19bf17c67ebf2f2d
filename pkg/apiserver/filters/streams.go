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
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// streamRetrySeconds is when a user may hope that one of their streams has ended.
const streamRetrySeconds = 10

// Streams lets the requests for some subresources go on like watches: no timeout
// ends them, and a stopping server tells them to end and waits for it. The library
// does so only for requests whose verb is watch.
// Upstream fault 56.
type Streams struct {
	always, followed sets.Set[schema.GroupResource]
	shutdown         chan struct{}
	forwarded        func(user.Info) bool
	bounds           limits.Bounds

	mu    sync.Mutex
	users map[follower]int
}

// follower is a user with streams. Those that take seats of kube-apiserver, which takes them for
// requests of up to a minute, are counted by themselves.
type follower struct {
	name   string
	seated bool
}

var _ genericapirequest.ServerShutdownSignal = &Streams{}

// NewStreams returns the Streams of subresources, such as "machines/exec", whose requests
// always go on, and of others, such as "pizzas/track", whose requests go on if they are
// followed: those by GET whose query parameter "follow" is true. Forwarded tells whether
// kube-apiserver has forwarded the requests of a user.
func NewStreams(bounds limits.Bounds, always, followed []schema.GroupResource, forwarded func(user.Info) bool) *Streams {
	return &Streams{
		always:    sets.New(always...),
		followed:  sets.New(followed...),
		shutdown:  make(chan struct{}),
		forwarded: forwarded,
		bounds:    bounds,
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

// has tells whether a request is for a stream and may go on: what answers with one line
// takes its turn like every other request.
func (s *Streams) has(req *http.Request, info *genericapirequest.RequestInfo) bool {
	if !info.IsResourceRequest || info.Subresource == "" {
		return false
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource + "/" + info.Subresource}
	return s.always.Has(resource) || s.followed.Has(resource) && req.Method == http.MethodGet && follows(req)
}

// follows tells whether a request has the parameter by which a stream is followed.
func follows(req *http.Request) bool {
	follow := parameters(req.URL.RawQuery)["follow"]
	return len(follow) > 0 && follow[0] != "false" && follow[0] != "0"
}

// enter counts another stream, or tells the user why not.
func (s *Streams) enter(of follower) error {
	most, where := s.bounds.StreamsPerUser, ""
	if of.seated {
		most, where = s.bounds.ForwardedStreamsPerUser, " through kube-apiserver"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[of] >= most {
		return apierrors.NewTooManyRequests(fmt.Sprintf("a user must not follow more than %d streams at once%s", most, where), streamRetrySeconds)
	}
	s.users[of]++
	return nil
}

func (s *Streams) leave(of follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[of]--; s.users[of] == 0 {
		delete(s.users, of)
	}
}

// WithShutdown makes a stopping server wait for the streams, and tells them when. It
// refuses those of a user who has too many.
func (s *Streams) WithShutdown(next http.Handler, config *genericapiserver.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !s.has(req, info) {
			next.ServeHTTP(w, req)
			return
		}
		version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		of := s.follower(req, info)
		if err := s.enter(of); err != nil {
			responsewriters.ErrorNegotiated(err, config.Serializer, version, w, req)
			return
		}
		defer s.leave(of)
		if err := config.WatchRequestWaitGroup.Add(1); err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable("the server is shutting down"), config.Serializer, version, w, req)
			return
		}
		defer config.WatchRequestWaitGroup.Done()
		next.ServeHTTP(w, req.WithContext(genericapirequest.WithServerShutdownSignal(req.Context(), s)))
	})
}

func (s *Streams) follower(req *http.Request, info *genericapirequest.RequestInfo) follower {
	user, ok := genericapirequest.UserFrom(req.Context())
	if !ok {
		return follower{}
	}
	return follower{user.GetName(), s.forwarded(user) && !longRunning(info.Subresource)}
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
