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
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
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
	perUser          int

	mu    sync.Mutex
	users map[string]int
}

var _ genericapirequest.ServerShutdownSignal = &Streams{}

// NewStreams returns the Streams of subresources, such as "machines/exec", whose requests
// always go on, and of others, such as "pizzas/track", whose requests go on if they are
// followed: those by GET whose query parameter "follow" is true.
func NewStreams(bounds Bounds, always, followed []schema.GroupResource) *Streams {
	return &Streams{
		always:   sets.New(always...),
		followed: sets.New(followed...),
		shutdown: make(chan struct{}),
		perUser:  bounds.StreamsPerUser,
		users:    map[string]int{},
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

// enter tells whether the user may have another stream, and counts it.
func (s *Streams) enter(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[user] >= s.perUser {
		return false
	}
	s.users[user]++
	return true
}

func (s *Streams) leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
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
		name := userName(req)
		if !s.enter(name) {
			err := apierrors.NewTooManyRequests(fmt.Sprintf("a user must not follow more than %d streams at once", s.perUser), streamRetrySeconds)
			responsewriters.ErrorNegotiated(err, config.Serializer, version, w, req)
			return
		}
		defer s.leave(name)
		if err := config.WatchRequestWaitGroup.Add(1); err != nil {
			responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable("the server is shutting down"), config.Serializer, version, w, req)
			return
		}
		defer config.WatchRequestWaitGroup.Done()
		next.ServeHTTP(w, req.WithContext(genericapirequest.WithServerShutdownSignal(req.Context(), s)))
	})
}

func userName(req *http.Request) string {
	if user, ok := genericapirequest.UserFrom(req.Context()); ok {
		return user.GetName()
	}
	return ""
}

// Install makes the server tell the streams when it stops.
func (s *Streams) Install(server *genericapiserver.GenericAPIServer) error {
	return server.AddPreShutdownHook("end-streams", func() error {
		// Until then, clients are still sent to this server.
		time.AfterFunc(server.ShutdownDelayDuration, func() { close(s.shutdown) })
		return nil
	})
}
