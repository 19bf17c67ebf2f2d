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

package cluster

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Permission is something that a server must be allowed to do.
type Permission struct {
	Verb     string
	Resource schema.GroupResource
	// Subresource, Namespace and Name are empty if they make no difference.
	Subresource, Namespace, Name string
	// Fix says how to grant it to a user. Command does so, if the user is known.
	Fix, Command string
	// Optional is set if the server works without it, in another way. It is the same
	// for all permissions with the same Fix.
	Optional bool
}

// String returns what is allowed.
func (p Permission) String() string {
	text := p.Verb + " " + p.Resource.String()
	if p.Subresource != "" {
		text = p.Verb + " " + schema.GroupResource{Group: p.Resource.Group, Resource: p.Resource.Resource + "/" + p.Subresource}.String()
	}
	if p.Name != "" {
		text += fmt.Sprintf(" %q", p.Name)
	}
	if p.Namespace != "" {
		text += " in " + p.Namespace
	}
	return text
}

// Attributes returns the permission as an access review asks for it.
func (p Permission) Attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb: p.Verb, Group: p.Resource.Group, Resource: p.Resource.Resource,
		Subresource: p.Subresource, Namespace: p.Namespace, Name: p.Name,
	}
}
