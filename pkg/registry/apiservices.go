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

package registry

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// APIServices returns the names of the objects that register the group's versions
// with kube-apiserver, the preferred version first.
func (g Group) APIServices() ([]string, error) {
	scheme := runtime.NewScheme()
	if err := g.InstallTypes(scheme); err != nil {
		return nil, err
	}
	var names []string
	for _, version := range scheme.PrioritizedVersionsForGroup(g.Name) {
		names = append(names, version.Version+"."+version.Group)
	}
	return names, nil
}
