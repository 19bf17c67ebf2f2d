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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Custom declares a resource with a storage of its own. It is for resources that a Kind
// or a Review can't express: objects that are computed, or read from elsewhere than
// etcd, as in metrics-server.
type Custom struct {
	// New returns an empty internal object.
	New func() runtime.Object
	// Resource is the plural name in paths.
	Resource string
	// FieldLabels are the field selectors that requests may use.
	FieldLabels []string
	// LongRunning has the paths of subresources, such as "machines/log", whose requests
	// are exempt from the request timeout. Watches always are.
	LongRunning map[string]LongRunning
	// Serve returns the REST storage. The resource has a verb for each interface of
	// k8s.io/apiserver/pkg/registry/rest that the storage implements. The default is
	// Runtime.Serve of the resource.
	Serve ServeFunc
}

// ServeFunc returns the REST storage of a resource by path: the resource itself, and
// "resource/subresource".
type ServeFunc func(Installation) (map[string]rest.Storage, error)

var _ Declaration = Custom{}

// Describe implements Declaration.
func (c Custom) Describe() Description {
	return Description{Resource: c.Resource, New: c.New, FieldLabels: c.FieldLabels, LongRunning: c.LongRunning}
}

// Storage implements Declaration.
func (c Custom) Storage(in Installation) (map[string]rest.Storage, error) {
	ofRuntime, found := in.Runtime.Serve[c.Resource]
	serve, err := choose("Serve", c.Serve, c.Serve != nil, ofRuntime, found)
	if err != nil {
		return nil, err
	}
	paths, err := serve(in)
	if err == nil && paths[c.Resource] == nil {
		err = fmt.Errorf("its Serve returns no storage for the path %q", c.Resource)
	}
	return paths, err
}
