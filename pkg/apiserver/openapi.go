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
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	baseversion "k8s.io/component-base/version"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
)

// setOpenAPI sets the sources of the OpenAPI documents. Without a base, the server makes them
// itself, see installOpenAPI.
func (c *Config) setOpenAPI() error {
	var models []common.GetOpenAPIDefinitions
	for _, group := range c.Groups {
		of, err := group.Models(c.Scheme)
		if err != nil {
			return err
		}
		models = append(models, of)
	}
	definitions := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := map[string]common.OpenAPIDefinition{}
		for _, of := range models {
			maps.Copy(all, of(ref))
		}
		if c.base != nil {
			maps.Copy(all, c.base.OpenAPI(ref))
		}
		return all
	}
	names := make([]string, 0, len(c.Groups))
	for _, group := range c.Groups {
		names = append(names, group.Name)
	}
	schemes := []*runtime.Scheme{c.Scheme}
	if c.base != nil {
		schemes = append(schemes, c.base.Scheme)
	}
	namer := openapi.NewDefinitionNamer(schemes...)
	c.Generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	c.Generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	c.Generic.OpenAPIConfig.Info.Title = cmp.Or(strings.Join(slices.Sorted(slices.Values(names)), ", "), c.Name)
	c.Generic.OpenAPIConfig.Info.Version = baseversion.Get().GitVersion
	c.Generic.OpenAPIV3Config.Info = c.Generic.OpenAPIConfig.Info
	c.Generic.SkipOpenAPIInstallation = c.base == nil
	return nil
}

// installOpenAPI serves the OpenAPI documents. The library would make that of v2 before the
// server is ready. This takes longer than any other step that grows with the number of kinds.
func (s *Server) installOpenAPI() {
	if s.config.SkipOpenAPIInstallation {
		container, mux := s.Generic.Handler.GoRestfulContainer, s.Generic.Handler.NonGoRestfulMux
		s.Generic.OpenAPIV3VersionedService = routes.OpenAPI{V3Config: s.config.OpenAPIV3Config}.InstallV3(container, mux)
		s.Generic.OpenAPIVersionedService = handler.NewOpenAPIServiceLazy(cached.Once(cached.Func(func() (*spec.Swagger, string, error) {
			document, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(container.RegisteredWebServices()), s.config.OpenAPIConfig)
			if err != nil {
				return nil, "", err
			}
			document.Definitions = handler.PruneDefaults(document.Definitions)
			// It does not change while the server runs.
			return document, baseversion.Get().GitVersion, nil
		})))
		s.Generic.OpenAPIVersionedService.RegisterOpenAPIVersionedService("/openapi/v2", mux)
	}
	filters.KeepOwnOpenAPI(s.Generic)
}
