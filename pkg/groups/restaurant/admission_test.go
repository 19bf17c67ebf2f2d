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

package restaurant

import (
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
)

// The order is a promise: webhooks and policies see pizzas with their toppings
// filled in.
func TestAdmissionPlugins(t *testing.T) {
	options := admission.Options(admission.Plugins(Group().Admission...))
	require.Equal(t, []string{
		"NamespaceLifecycle",
		"PizzaToppings", "ToppingInUse",
		"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
		"ResourceQuota",
	}, options.RecommendedPluginOrder)
	require.Empty(t, options.DefaultOffPlugins)
	require.Empty(t, options.Validate())
}
