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
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// A server has a name in traces and in OpenAPI documents, also without groups that are declared in Go.
func TestNames(t *testing.T) {
	for name, test := range map[string]struct {
		groups         []registry.Group
		service, title string
	}{
		"groups":    {[]registry.Group{{Name: "example.org"}, {Name: "example.com"}}, "example.org,example.com", "example.com, example.org"},
		"no groups": {nil, "bakery", "bakery"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := serviceName("bakery", test.groups); got != test.service {
				t.Errorf("got the service %q, want %q", got, test.service)
			}
			config := &Config{
				Name: "bakery", Groups: test.groups, Scheme: runtime.NewScheme(), Generic: &genericapiserver.RecommendedConfig{},
				base: &Base{Scheme: runtime.NewScheme(), OpenAPI: func(common.ReferenceCallback) map[string]common.OpenAPIDefinition { return nil }},
			}
			for i := range config.Groups {
				config.Groups[i].OpenAPI = config.base.OpenAPI
			}
			if err := config.setOpenAPI(); err != nil {
				t.Fatal(err)
			}
			if got := config.Generic.OpenAPIConfig.Info.Title; got != test.title {
				t.Errorf("got the title %q, want %q", got, test.title)
			}
		})
	}
}
