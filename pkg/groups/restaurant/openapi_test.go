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

package restaurant

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
)

// The server publishes these definitions; kubectl explain shows the
// descriptions.
func TestOpenAPIDefinitions(t *testing.T) {
	definitions := Group().Definitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) })
	scheme := runtime.NewScheme()
	install.Install(scheme)
	kinds := map[string]bool{}

	for gvk, goType := range scheme.AllKnownTypes() {
		if !strings.HasPrefix(goType.PkgPath(), "restaurant.") || gvk.Version == runtime.APIVersionInternal {
			continue // Every group has the types of meta/v1.
		}
		name, err := scheme.ToOpenAPIDefinitionName(gvk)
		require.NoError(t, err)
		assert.Equal(t, "info.programming-kubernetes.restaurant."+gvk.Version+"."+gvk.Kind, name)
		assert.Contains(t, definitions, name)
		kinds[name] = true
	}
	assert.Contains(t, definitions, "io.k8s.api.autoscaling.v1.Scale")

	for name, definition := range definitions {
		for _, dependency := range definition.Dependencies {
			assert.Contains(t, definitions, dependency, "needed by %s", name)
		}
		if !strings.HasPrefix(name, "info.programming-kubernetes.") {
			continue
		}
		assert.NotEmpty(t, definition.Schema.Description, name)
		_, isKind := definition.Schema.Properties["apiVersion"]
		assert.Equal(t, isKind, kinds[name], "%s has a kind, so it must be registered in its version's scheme", name)
		for field, property := range definition.Schema.Properties {
			assert.NotEmpty(t, property.Description, "%s.%s", name, field)
		}
	}
}

// A pizza is patched by the topping's name, not by its place in the list.
func TestOpenAPIListTypes(t *testing.T) {
	definitions := Group().Definitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) })
	for version, want := range map[string]string{
		"v1":       `{"x-kubernetes-list-map-keys":["name"],"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"name","x-kubernetes-patch-strategy":"merge"}`,
		"v1beta1":  `{"x-kubernetes-list-map-keys":["name"],"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"name","x-kubernetes-patch-strategy":"merge"}`,
		"v1alpha1": `{"x-kubernetes-list-type":"atomic"}`,
	} {
		properties := definitions["info.programming-kubernetes.restaurant."+version+".PizzaSpec"].Schema.Properties
		got, err := json.Marshal(properties["toppings"].Extensions)
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got), version)
	}
}
