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

// Subresource declares a subresource of a kind with internal type O. An Action, a Stream
// and a Connect are subresources, and so is any other type with these methods.
type Subresource[O Object] interface {
	// Storage serves the subresource of the kind's objects.
	Storage(Parent[O]) (rest.Storage, error)
	// LongRunning returns which requests are exempt from the request timeout, and from
	// priority and fairness.
	LongRunning() LongRunning
}

// LongRunning says which requests for a subresource continue for as long as their clients
// want.
type LongRunning int

const (
	// NeverLongRunning is for subresources that answer at once.
	NeverLongRunning LongRunning = iota
	// IfFollowed is for subresources like pods/log: a GET continues if its query parameter
	// "follow" is true.
	IfFollowed
	// AlwaysLongRunning is for subresources that take over the connection.
	AlwaysLongRunning
)

// Parent is the kind that a subresource belongs to, in a server.
type Parent[O Object] struct {
	Installation
	// Path is the path of the subresource, such as "machines/run".
	Path string
	// Store reads and updates the kind's objects; it creates none.
	Store *genericregistry.Store
	// StatusStore is the same, but writes only the status of a kind with a /status.
	StatusStore *genericregistry.Store

	kind *Kind[O]
}

// addSubresources adds the storage of the kind's own subresources.
func addSubresources[O Object](paths map[string]rest.Storage, of Parent[O]) error {
	for _, name := range slices.Sorted(maps.Keys(of.kind.Subresources)) {
		of.Path = of.kind.Resource + "/" + name
		if paths[of.Path] != nil {
			return fmt.Errorf("%s is declared as a subresource, but exists already", of.Path)
		}
		storage, err := of.kind.Subresources[name].Storage(of)
		if err != nil {
			return fmt.Errorf("serving %s: %w", of.Path, err)
		}
		paths[of.Path] = storage
	}
	return nil
}
