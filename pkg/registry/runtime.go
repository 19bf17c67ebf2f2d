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
	"context"
	"fmt"
	"reflect" //nolint:depguard // It is in the signature of generated informer factories.

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
)

// Runtime has the parts of the server that use the group's API. They read and write the
// group's objects as clients of the server itself.
type Runtime struct {
	// Informers are shared by all other fields. The server starts them, and is not ready
	// until they have synced.
	Informers Informers
	// Admission gives the group's own admission plugins their informers and clients.
	Admission admission.PluginInitializer
	// Answers answer the Reviews that have no Answer of their own, by resource. They
	// should use the informers and clients of this Runtime, so that two servers of one
	// Group share nothing.
	Answers map[string]Answer
	// Serve serves each Custom that has no Serve of its own, by resource.
	Serve map[string]ServeFunc
	// Handlers answer the requests for each Connect that has no Handler of its own, by
	// path, such as "machines/exec".
	Handlers map[string]Handler
	// Controllers run in one replica at a time.
	Controllers []Controller
	// Authorizer decides about the permissions of a request's user. The server sets it.
	Authorizer authorizer.Authorizer
}

// choose returns what a declaration has in a field, or else what the Runtime has for its path.
func choose[T any](field string, declared T, isDeclared bool, ofRuntime any, found bool) (T, error) {
	switch {
	case isDeclared && found:
		return declared, fmt.Errorf("set %s in the declaration or in the Runtime, not in both", field)
	case isDeclared:
		return declared, nil
	case !found:
		return declared, fmt.Errorf("set %s in the declaration, or for its path in the Runtime of the group", field)
	}
	typed, ok := ofRuntime.(T)
	if !ok {
		return declared, fmt.Errorf("the Runtime has a %T for it instead of a %T", ofRuntime, declared)
	}
	return typed, nil
}

// Controller keeps objects in the state that they describe.
type Controller interface {
	// Run works until the context ends. It is called after the informers have synced.
	Run(context.Context)
}

// Clients are the configurations of clients for a Runtime.
type Clients struct {
	// Loopback is for this server itself, with all permissions. Nothing may be sent
	// before the server runs.
	Loopback *rest.Config
	// Cluster is for kube-apiserver, with the permissions of this server's roles.
	Cluster *rest.Config
}

// Informers is a generated SharedInformerFactory of any group.
type Informers interface {
	Start(stop <-chan struct{})
	Shutdown()
	WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool
}
