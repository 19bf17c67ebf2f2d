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

package crdserver

import (
	"net/http"
	"strings"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

const privatePath = genericapiserver.APIGroupPrefix + "/" + apiextensions.GroupName

// privateAPI serves the copies of the definitions to the server itself, over its
// loopback connection. For all other clients the copies do not exist: they should read
// definitions from kube-apiserver.
type privateAPI struct {
	container *restful.Container
}

// takeFrom takes the API out of a server's, with its discovery and OpenAPI.
func (p *privateAPI) takeFrom(server *genericapiserver.GenericAPIServer) {
	p.container = restful.NewContainer()
	p.container.Router(restful.CurlyRouter{})
	public := server.Handler.GoRestfulContainer
	for _, service := range public.RegisteredWebServices() {
		if service.RootPath() == privatePath || strings.HasPrefix(service.RootPath(), privatePath+"/") {
			p.container.Add(service)
			_ = public.Remove(service) // It is one of its own.
		}
	}
}

// inside returns a chain with the API behind all other handlers.
func (p *privateAPI) inside(chain func(http.Handler, *genericapiserver.Config) http.Handler, reads func(http.Handler) http.Handler) func(http.Handler, *genericapiserver.Config) http.Handler {
	return func(next http.Handler, config *genericapiserver.Config) http.Handler {
		next = withoutProtobuf(reads(next))
		return chain(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			who, known := genericapirequest.UserFrom(req.Context())
			if known && who.GetName() == user.APIServerUser && strings.HasPrefix(req.URL.Path, privatePath+"/") {
				p.container.Dispatch(w, req)
				return
			}
			next.ServeHTTP(w, req)
		}), config)
	}
}
