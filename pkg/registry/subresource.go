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
	"fmt"
	"maps"
	"slices"

	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Subresource is an Action or a Stream of a kind with internal type O.
type Subresource[O Object] interface {
	// storage serves the subresource of the kind's objects under a path such as
	// "pizzas/bake".
	storage(of parent[O], path string) rest.Storage
	// longRunning says whether a request goes on for as long as its client wants.
	longRunning() bool
}

// parent is the kind that a subresource belongs to.
type parent[O Object] struct {
	kind  *Kind[O]
	group *installedGroup
	store *genericregistry.Store
	// status is the same store, but writes nothing except the status of a kind
	// that has a /status.
	status *genericregistry.Store
}

// addSubresources adds the storage of the kind's own subresources.
func (p parent[O]) addSubresources(paths map[string]rest.Storage) error {
	for _, name := range slices.Sorted(maps.Keys(p.kind.Subresources)) {
		path := p.kind.Resource + "/" + name
		if paths[path] != nil {
			return fmt.Errorf("%s is declared as a subresource, but exists already", path)
		}
		paths[path] = p.kind.Subresources[name].storage(p, path)
	}
	return nil
}
