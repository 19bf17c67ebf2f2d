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
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

func TestRuntimeWithoutInformers(t *testing.T) {
	generic := genericapiserver.NewRecommendedConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	generic.LoopbackClientConfig = &rest.Config{}
	config := &Config{Generic: generic, Runtimes: map[string]registry.Runtime{}, Groups: []registry.Group{{
		Name:    "bakery.example.com",
		Runtime: func(registry.Clients) (registry.Runtime, error) { return registry.Runtime{}, nil },
	}}}
	_, err := config.newRuntimes()
	const want = "set Informers in the Runtime of bakery.example.com: the server starts them, and is ready when they have synced"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
