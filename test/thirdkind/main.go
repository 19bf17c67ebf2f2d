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

// Command thirdkind is the restaurant's server with a third kind, Drink. It shows
// what docs/adding-a-kind.md explains, and a test serves it.
package main

import (
	"maps"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/kube-openapi/pkg/common"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	"restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/thirdkind/apis/bar"
	barv1 "restaurant.programming-kubernetes.info/apiserver/test/thirdkind/apis/bar/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/thirdkind/openapi"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	os.Exit(cli.Run(server.NewCommand(ctx, "apiserver", group())))
}

// group is the restaurant's group with the third kind. Inside the repository the
// types would be in the packages of the others, and one line in the list of kinds
// would do.
func group() registry.Group {
	pizzas := restaurant.Group()
	all := pizzas
	all.Install = func(scheme *runtime.Scheme) {
		pizzas.Install(scheme)
		utilruntime.Must(bar.AddToScheme(scheme))
		utilruntime.Must(barv1.AddToScheme(scheme))
	}
	all.OpenAPI = func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		definitions := pizzas.OpenAPI(ref)
		maps.Copy(definitions, openapi.GetOpenAPIDefinitions(ref))
		return definitions
	}
	all.Kinds = append(all.Kinds, drinks())
	return all
}
