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

package conformance

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func discoveryChecks() []Check {
	return []Check{{
		ID:     "discovery/group",
		Rule:   "The list of groups has each group version that is served.",
		Source: concepts + "#discovery-api",
		Unless: builtin,
		Run: func(p *Probe) {
			var groups metav1.APIGroupList
			answer := p.Do(http.MethodGet, "/apis", nil)
			p.Decode(answer, http.StatusOK, &groups)
			if !slices.ContainsFunc(groups.Groups, func(group metav1.APIGroup) bool {
				return group.Name == p.Group && slices.ContainsFunc(group.Versions, func(version metav1.GroupVersionForDiscovery) bool {
					return version.Version == p.Version
				})
			}) {
				p.Fail(answer, "the group version %s is expected", p.GroupVersion())
			}
		},
	}}
}

// builtin excludes the core group, which has its own root.
func builtin(resource *Resource) string {
	if resource.Group == "" {
		return "the core group is not below /apis"
	}
	return ""
}
