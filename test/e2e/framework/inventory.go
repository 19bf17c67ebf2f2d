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

package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Inventory returns all objects of the cluster. Cluster roles have their rules as values, since
// others may add to them.
func Inventory(ctx context.Context, cp *controlplane.ControlPlane) (map[string]string, error) {
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	dynamicClient := dynamic.NewForConfigOrDie(config)
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			// Events expire, and component statuses are computed.
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" || resource.Name == "componentstatuses" {
				continue
			}
			objects, err := dynamicClient.Resource(gv.WithResource(resource.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for _, object := range objects.Items {
				rules := ""
				if resource.Name == "clusterroles" {
					rules = fmt.Sprint(object.Object["rules"])
				}
				found[strings.Join([]string{resource.Name, gv.Group, object.GetNamespace(), object.GetName()}, " ")] = rules
			}
		}
	}
	return found, nil
}

// Difference returns the keys of one map that are missing in another, or have another value there.
func Difference(one, other map[string]string) []string {
	var keys []string
	for key, value := range one {
		if got, found := other[key]; !found || got != value {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
