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
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/streaming/pkg/httpstream"
)

// Streams lets requests for some subresources go on like watches. No timeout ends them, and a
// stopping server tells them to end and waits for it. k8s.io/apiserver does so only for requests whose
// verb is watch.
// Upstream fault 56.
type Streams struct {
	always, followed sets.Set[schema.GroupResource]
	shutdown         chan struct{}
}

var _ genericapirequest.ServerShutdownSignal = &Streams{}

// NewStreams returns the Streams of these subresources. Requests for those in always, such as
// "machines/exec", always go on. Requests for those in followed, such as "pizzas/track", go on if
// they are GET requests whose query parameter "follow" is true.
func NewStreams(always, followed []schema.GroupResource) *Streams {
	return &Streams{always: sets.New(always...), followed: sets.New(followed...), shutdown: make(chan struct{})}
}

// ShuttingDown is closed when the server accepts no new requests.
func (s *Streams) ShuttingDown() <-chan struct{} { return s.shutdown }

// LongRunning adds the streams to the requests that are long-running.
func (s *Streams) LongRunning(check genericapirequest.LongRunningRequestCheck) genericapirequest.LongRunningRequestCheck {
	return func(req *http.Request, info *genericapirequest.RequestInfo) bool {
		return s.has(req, info) || check(req, info)
	}
}

// has reports whether a request is for a stream and may go on. A request that is not followed takes
// its turn like every other request.
func (s *Streams) has(req *http.Request, info *genericapirequest.RequestInfo) bool {
	if !info.IsResourceRequest || info.Subresource == "" {
		return false
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource + "/" + info.Subresource}
	return s.always.Has(resource) || s.followed.Has(resource) && req.Method == http.MethodGet && follows(req)
}

// follows reports whether a request asks to follow a stream. It reads the parameter as k8s.io/apiserver
// does.
func follows(req *http.Request) bool {
	follow := parameters(req.URL.RawQuery)["follow"]
	return len(follow) > 0 && !strings.EqualFold(follow[0], "false") && follow[0] != "0"
}

// WithShutdown makes a stopping server tell the streams to end and wait for them. WebSockets that watch are streams here,
// since k8s.io/apiserver does not tell them to end.
// Upstream fault 80.
func (s *Streams) WithShutdown(next http.Handler, config *genericapiserver.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || !httpstream.IsUpgradeRequest(req) && !s.has(req, info) {
			next.ServeHTTP(w, req)
			return
		}
		version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
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

// Install makes the server tell the streams when it stops.
func (s *Streams) Install(server *genericapiserver.GenericAPIServer) error {
	return server.AddPreShutdownHook("end-streams", func() error {
		// Until then, clients are still sent to this server.
		time.AfterFunc(server.ShutdownDelayDuration, func() { close(s.shutdown) })
		return nil
	})
}
