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

package apiserver

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// streams lets the requests for some subresources go on like watches: no timeout
// ends them, and a stopping server tells them to end and waits for it. The library
// does so only for requests whose verb is watch.
type streams struct {
	subresources sets.Set[schema.GroupResource]
	shutdown     chan struct{}
}

var _ genericapirequest.ServerShutdownSignal = &streams{}

func newStreams(groups []registry.Group) *streams {
	s := &streams{subresources: sets.New[schema.GroupResource](), shutdown: make(chan struct{})}
	for _, group := range groups {
		s.subresources.Insert(group.LongRunning()...)
	}
	return s
}

// ShuttingDown is closed when the server accepts no new requests.
func (s *streams) ShuttingDown() <-chan struct{} { return s.shutdown }

// or adds the streams to the requests that are long-running.
func (s *streams) or(check genericapirequest.LongRunningRequestCheck) genericapirequest.LongRunningRequestCheck {
	return func(req *http.Request, info *genericapirequest.RequestInfo) bool {
		return s.has(info) || check(req, info)
	}
}

func (s *streams) has(info *genericapirequest.RequestInfo) bool {
	return info.IsResourceRequest && info.Subresource != "" &&
		s.subresources.Has(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource + "/" + info.Subresource})
}

// with makes the server wait for the streams, and tells them when.
func (s *streams) with(next http.Handler, config *genericapiserver.Config) http.Handler {
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

// install makes the server tell the streams when it stops.
func (s *streams) install(server *genericapiserver.GenericAPIServer) error {
	return server.AddPreShutdownHook("end-streams", func() error {
		// Until then, clients are still sent to this server.
		time.AfterFunc(server.ShutdownDelayDuration, func() { close(s.shutdown) })
		return nil
	})
}
