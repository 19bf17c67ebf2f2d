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

package admission

import (
	"context"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
)

// mutatingPolicies lets policies mutate objects of all versions of a kind. The
// library's own plugin requires the object to be in the version of the policy.
type mutatingPolicies struct {
	*mutatingpolicy.Plugin
}

var _ admission.MutationInterface = mutatingPolicies{}

func registerMutatingPolicies(plugins *admission.Plugins) {
	plugins.Register(mutatingpolicy.PluginName, func(config io.Reader) (admission.Interface, error) {
		plugin, err := mutatingpolicy.NewPlugin(config)
		if err != nil {
			return nil, err
		}
		return mutatingPolicies{plugin}, nil
	})
}

// Admit applies the policies.
func (p mutatingPolicies) Admit(ctx context.Context, attributes admission.Attributes, interfaces admission.ObjectInterfaces) error {
	return p.Plugin.Admit(ctx, attributes, policyInterfaces{interfaces})
}

type policyInterfaces struct {
	admission.ObjectInterfaces
}

func (i policyInterfaces) GetObjectConvertor() runtime.ObjectConvertor {
	return policyConvertor{i.ObjectInterfaces.GetObjectConvertor()}
}

// policyConvertor turns the result of a mutation into a typed object in the version
// of the policy. k8s.io/apiserver asks for the version of the request, but treats the
// object as one in the version of the policy. Conversion between versions needs the
// internal one.
// Upstream fault 65.
type policyConvertor struct {
	runtime.ObjectConvertor
}

// ConvertToVersion returns the object in its own version.
func (c policyConvertor) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return c.ObjectConvertor.ConvertToVersion(in, in.GetObjectKind().GroupVersionKind().GroupVersion())
}
