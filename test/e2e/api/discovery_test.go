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

package api

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

var (
	allVerbs         = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	subresourceVerbs = []string{"get", "patch", "update"}
)

// Older clients ask for one version at a time.
func TestLegacyDiscovery(t *testing.T) {
	t.Parallel()
	client := discovery.NewDiscoveryClientForConfigOrDie(framework.Config(cp))
	client.UseLegacyDiscovery = true
	groups, err := client.ServerGroups()
	require.NoError(t, err)
	for _, group := range groups.Groups {
		if group.Name != restaurant.GroupName {
			continue
		}
		preferred := metav1.GroupVersionForDiscovery{GroupVersion: restaurant.GroupName + "/v1", Version: "v1"}
		require.Equal(t, metav1.APIGroup{
			Name:             restaurant.GroupName,
			PreferredVersion: preferred,
			Versions: []metav1.GroupVersionForDiscovery{
				preferred,
				{GroupVersion: restaurant.GroupName + "/v1beta1", Version: "v1beta1"},
				{GroupVersion: restaurant.GroupName + "/v1alpha1", Version: "v1alpha1"},
			},
		}, group)
	}
	for _, version := range framework.Versions() {
		list, err := client.ServerResourcesForGroupVersion(restaurant.GroupName + "/" + version)
		require.NoError(t, err)
		for i := range list.APIResources {
			list.APIResources[i].StorageVersionHash = ""
		}
		want := []metav1.APIResource{
			{
				Name: "pizzas", SingularName: "pizza", Namespaced: true, Kind: "Pizza", Verbs: allVerbs,
				ShortNames: []string{"pz"}, Categories: []string{"restaurant"},
			},
			{Name: "pizzas/bake", Namespaced: true, Kind: "Bake", Verbs: []string{"create"}},
			{Name: "pizzas/scale", Namespaced: true, Group: "autoscaling", Version: "v1", Kind: "Scale", Verbs: subresourceVerbs},
			{Name: "pizzas/status", Namespaced: true, Kind: "Pizza", Verbs: subresourceVerbs},
			{Name: "pizzas/track", Namespaced: true, Kind: "PizzaTrackOptions", Verbs: []string{"get"}},
			{
				Name: "toppings", SingularName: "topping", Kind: "Topping", Verbs: allVerbs,
				ShortNames: []string{"tp"}, Categories: []string{"restaurant"},
			},
		}
		if version == "v1" {
			want = slices.Insert(want, len(want)-1, metav1.APIResource{Name: "pricereviews", SingularName: "pricereview", Kind: "PriceReview", Verbs: []string{"create"}})
		}
		require.Equal(t, want, list.APIResources)
	}
}

// toppingsExtensions are how clients learn to merge a pizza's toppings.
func toppingsExtensions(version string) map[string]any {
	if version == "v1alpha1" {
		return map[string]any{"x-kubernetes-list-type": "atomic"}
	}
	return map[string]any{
		"x-kubernetes-list-type":       "map",
		"x-kubernetes-list-map-keys":   []any{"name"},
		"x-kubernetes-patch-strategy":  "merge",
		"x-kubernetes-patch-merge-key": "name",
	}
}

func modelName(version, kind string) string {
	return "info.programming-kubernetes.restaurant." + version + "." + kind
}

// queryParameters are the names of those that a path has besides its own variables.
func queryParameters(path *spec3.Path) []string {
	var names []string
	for _, parameter := range append(slices.Clone(path.Parameters), path.Get.Parameters...) {
		if parameter.In == "query" {
			names = append(names, parameter.Name)
		}
	}
	return names
}

func TestOpenAPIV3(t *testing.T) {
	t.Parallel()
	client := framework.Kube(cp).Discovery().OpenAPIV3()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			document, err := openapi3.NewRoot(client).GVSpec(schema.GroupVersion{Group: restaurant.GroupName, Version: version})
			require.NoError(t, err)
			properties := document.Components.Schemas[modelName(version, "PizzaSpec")].Properties
			require.Equal(t, spec.Extensions(toppingsExtensions(version)), properties["toppings"].Extensions)
			require.EqualValues(t, 1, properties["replicas"].Default)
			if version != "v1alpha1" {
				topping := document.Components.Schemas[modelName(version, "PizzaTopping")]
				require.Equal(t, []string{"name"}, topping.Required)
				require.EqualValues(t, 1, topping.Properties["quantity"].Default)
			}
			require.Equal(t, []string{"cost"}, document.Components.Schemas[modelName(version, "ToppingSpec")].Required)

			scale := document.Paths.Paths["/apis/"+restaurant.GroupName+"/"+version+"/namespaces/{namespace}/pizzas/{name}/scale"]
			require.Equal(t, map[string]any{"group": "autoscaling", "version": "v1", "kind": "Scale"},
				scale.Put.Extensions["x-kubernetes-group-version-kind"])
			bake := document.Paths.Paths["/apis/"+restaurant.GroupName+"/"+version+"/namespaces/{namespace}/pizzas/{name}/bake"]
			require.Equal(t, map[string]any{"group": restaurant.GroupName, "version": version, "kind": "Bake"},
				bake.Post.Extensions["x-kubernetes-group-version-kind"])
			track := document.Paths.Paths["/apis/"+restaurant.GroupName+"/"+version+"/namespaces/{namespace}/pizzas/{name}/track"]
			require.Equal(t, map[string]any{"group": restaurant.GroupName, "version": version, "kind": "PizzaTrackOptions"},
				track.Get.Extensions["x-kubernetes-group-version-kind"])
			require.ElementsMatch(t, []string{"follow", "timeoutSeconds"}, queryParameters(track))
		})
	}
}
