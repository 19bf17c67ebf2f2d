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
	"strings"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// openAPIV3Path is the parent of the OpenAPI v3 documents of all groups and versions.
const openAPIV3Path = "/openapi/v3/"

// KeepOwnOpenAPI removes the OpenAPI v3 documents that are not about an API group. Every
// server built on k8s.io/apiserver has the same ones, "apis" and "version". kube-apiserver,
// which merges the lists of all servers, would mix them: clients would ask one server for a
// document with the hash of another's.
// Upstream fault 28.
func KeepOwnOpenAPI(generic *genericapiserver.GenericAPIServer) {
	if generic.OpenAPIV3VersionedService == nil {
		return
	}
	for _, service := range generic.Handler.GoRestfulContainer.RegisteredWebServices() {
		if !strings.HasPrefix(service.RootPath(), genericapiserver.APIGroupPrefix+"/") {
			generic.OpenAPIV3VersionedService.DeleteGroupVersion(strings.TrimPrefix(service.RootPath(), "/"))
		}
	}
}

// WithCurrentOpenAPI answers requests for an OpenAPI v3 document by an older hash with the
// current one. k8s.io/apiserver would redirect to it, but kube-apiserver does not let redirects
// pass. After an upgrade that changes a schema, all clients would fail until kube-apiserver
// has heard of the new hash.
// Upstream fault 27.
func WithCurrentOpenAPI(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		if !strings.HasPrefix(req.URL.Path, openAPIV3Path) || !query.Has("hash") {
			next.ServeHTTP(w, req)
			return
		}
		stopped := &redirectStopper{ResponseWriter: w}
		next.ServeHTTP(stopped, req)
		if !stopped.redirected {
			return
		}
		w.Header().Del("Location")
		query.Del("hash")
		req = req.Clone(req.Context())
		req.URL.RawQuery = query.Encode()
		next.ServeHTTP(w, req)
	})
}

// redirectStopper passes on all answers but redirects.
type redirectStopper struct {
	http.ResponseWriter
	redirected bool
}

func (s *redirectStopper) WriteHeader(code int) {
	if code == http.StatusMovedPermanently {
		s.redirected = true
		return
	}
	s.ResponseWriter.WriteHeader(code)
}

func (s *redirectStopper) Write(body []byte) (int, error) {
	if s.redirected {
		return len(body), nil
	}
	return s.ResponseWriter.Write(body)
}
