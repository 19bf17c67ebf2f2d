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
	baseversion "k8s.io/component-base/version"
	"k8s.io/kube-openapi/pkg/common"
)

// setOpenAPI sets the sources of the OpenAPI documents.
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
	return nil
}
