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
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// boundTerminations keeps clients without credentials from adding series to metrics, which are never removed.
// k8s.io/apiserver counts requests that time out or are aborted before anybody is authenticated, with labels from their
// paths. What the server does not declare becomes "unexpected".
func boundTerminations(groups []registry.Group, scheme *runtime.Scheme) {
	allowed := map[string]sets.Set[string]{
		"group": sets.New(""), "version": sets.New(""), "resource": sets.New(""), "subresource": sets.New("", "status", "scale"),
	}
	for _, group := range groups {
		allowed["group"].Insert(group.Name)
		for _, version := range scheme.PrioritizedVersionsForGroup(group.Name) {
			allowed["version"].Insert(version.Version)
		}
		for _, resource := range group.Resources() {
			allowed["resource"].Insert(resource.Resource)
		}
	}
	lists := map[string]string{}
	for _, metric := range []string{"apiserver_request_terminations_total", "apiserver_request_aborts_total"} {
		for label, values := range allowed {
			lists[metric+","+label] = strings.Join(sets.List(values), ",")
		}
	}
	metrics.SetLabelAllowList(lists)
}
