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

// Package shelves holds the admission plugin BreadShelves: no two breads of a namespace are
// on one shelf.
package shelves

import (
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/admission"

	genericadmission "restaurant.programming-kubernetes.info/apiserver/pkg/admission"

	"example.com/bakery/apis/bakery"
	clients "example.com/bakery/generated/clientset/versioned/typed/bakery/v1"
)

const name = "BreadShelves"

// Plugin returns the plugin.
func Plugin() genericadmission.Plugin {
	return genericadmission.Plugin{Name: name, Register: func(plugins *admission.Plugins) {
		plugins.Register(name, func(io.Reader) (admission.Interface, error) {
			return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}, nil
		})
	}}
}

// Initializer gives the plugin access to breads.
func Initializer(breads clients.BreadsGetter) admission.PluginInitializer {
	return genericadmission.InitializerFor(func(p *plugin) { p.breads = breads })
}

type plugin struct {
	*admission.Handler
	breads clients.BreadsGetter
}

var _ admission.ValidationInterface = &plugin{}

func (p *plugin) ValidateInitialization() error {
	if p.breads == nil {
		return errors.New(name + " has no access to breads")
	}
	return nil
}

// Validate refuses a bread on the shelf of another.
func (p *plugin) Validate(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	bread, ok := attributes.GetObject().(*bakery.Bread)
	if !ok || attributes.GetSubresource() != "" || bread.Spec.Shelf == "" {
		return nil
	}
	others, err := p.breads.Breads(bread.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.shelf", bread.Spec.Shelf).String(),
	})
	if err != nil {
		return err
	}
	for _, other := range others.Items {
		if other.Name != bread.Name {
			return admission.NewForbidden(attributes, fmt.Errorf("the shelf %s has %s on it", bread.Spec.Shelf, other.Name))
		}
	}
	return nil
}
