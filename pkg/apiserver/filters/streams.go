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
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Streams lets the requests for some subresources go on like watches: no timeout
// ends them, and a stopping server tells them to end and waits for it. The library
// does so only for requests whose verb is watch.
// Upstream fault 56.
type Streams struct {
	subresources sets.Set[schema.GroupResource]
	shutdown     chan struct{}
}

var _ genericapirequest.ServerShutdownSignal = &Streams{}

// NewStreams returns the Streams of subresources such as "pizzas/track".
func NewStreams(subresources ...schema.GroupResource) *Streams {
	return &Streams{subresources: sets.New(subresources...), shutdown: make(chan struct{})}
}

// ShuttingDown is closed when the server accepts no new requests.
func (s *Streams) ShuttingDown() <-chan struct{} { return s.shutdown }

// LongRunning adds the streams to the requests that are long-running.
func (s *Streams) LongRunning(check genericapirequest.LongRunningRequestCheck) genericapirequest.LongRunningRequestCheck {
	return func(req *http.Request, info *genericapirequest.RequestInfo) bool {
		return s.has(info) || check(req, info)
	}
}

func (s *Streams) has(info *genericapirequest.RequestInfo) bool {
	return info.IsResourceRequest && info.Subresource != "" &&
		s.subresources.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource + "/" + info.Subresource})
}

// WithShutdown makes a stopping server wait for the streams, and tells them when.
func (s *Streams) WithShutdown(next http.Handler, config *genericapiserver.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := genericapirequest.RequestInfoFrom(req.Context())
		if !ok || !s.has(info) {
			next.ServeHTTP(w, req)
			return
		}
		if err := config.WatchRequestWaitGroup.Add(1); err != nil {
			version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable("the server is shutting down"), config.Serializer, version, w, req)
			return
		}
		defer config.WatchRequestWaitGroup.Done()
		next.ServeHTTP(w, req.WithContext(genericapirequest.WithServerShutdownSignal(req.Context(), s)))
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
