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
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPermission(t *testing.T) {
	t.Parallel()
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for name, test := range map[string]struct {
		permission Permission
		text       string
		attributes authorizationv1.ResourceAttributes
	}{
		"all objects": {
			Permission{Verb: "list", Resource: schema.GroupResource{Resource: "namespaces"}},
			"list namespaces",
			authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces"},
		},
		"of a group": {
			Permission{Verb: "list", Resource: deployments},
			"list deployments.apps",
			authorizationv1.ResourceAttributes{Verb: "list", Group: "apps", Resource: "deployments"},
		},
		"a subresource of one object": {
			Permission{Verb: "update", Resource: deployments, Subresource: "scale", Namespace: "bakery", Name: "oven", Fix: "ask", Command: "allow", Optional: true},
			`update deployments/scale.apps "oven" in bakery`,
			authorizationv1.ResourceAttributes{Verb: "update", Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: "bakery", Name: "oven"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.text, test.permission.String())
			require.Equal(t, &test.attributes, test.permission.Attributes())
		})
	}
}
