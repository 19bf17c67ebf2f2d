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

package admission_test

import (
	"context"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericadmission "k8s.io/apiserver/pkg/admission"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
)

// weekend refuses machines in a namespace where nobody works.
type weekend struct {
	*genericadmission.Handler
}

var _ genericadmission.ValidationInterface = weekend{}

// Validate is called after all plugins that change objects.
func (weekend) Validate(_ context.Context, attributes genericadmission.Attributes, _ genericadmission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != (schema.GroupResource{Group: "workshop.example.com", Resource: "machines"}) {
		return nil // Plugins see the requests for all kinds.
	}
	if attributes.GetNamespace() == "weekend" {
		return genericadmission.NewForbidden(attributes, errors.New("nobody works there"))
	}
	return nil
}

// A plugin of a group is one of the list Admission of its registry.Group.
func ExamplePlugin() {
	_ = admission.Plugin{
		Name: "Weekend",
		Register: func(plugins *genericadmission.Plugins) {
			plugins.Register("Weekend", func(io.Reader) (genericadmission.Interface, error) {
				return weekend{genericadmission.NewHandler(genericadmission.Create)}, nil
			})
		},
	}
}
