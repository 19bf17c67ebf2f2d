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

package conformance

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Example is an object that the API accepts.
type Example struct {
	object *unstructured.Unstructured
	// Changes are valid values of fields of the spec other than those of the object.
	Changes []Change
}

// Change is a field and a valid value.
type Change struct {
	Path  []string
	Value any
}

// New returns a copy of the object, without what is particular to one: no name, labels only if given.
func (e *Example) New() *unstructured.Unstructured { return e.object.DeepCopy() }

// Change gives the object the values of the first change.
func (e *Example) Change(object *unstructured.Unstructured) error {
	if len(e.Changes) == 0 {
		return errors.New("no field of the spec is known to have another valid value: a second example of the kind shows one")
	}
	return unstructured.SetNestedField(object.Object, e.Changes[0].Value, e.Changes[0].Path...)
}

// example returns the example of a resource: the one that is given, or one made from the schema.
func (r *run) example(_ context.Context, resource *Resource, _ string) (*Example, error) {
	for _, given := range r.Examples {
		if given.GroupVersionKind() == resource.GroupVersionKind() {
			object := given.DeepCopy()
			unstructured.RemoveNestedField(object.Object, "metadata")
			unstructured.RemoveNestedField(object.Object, "status")
			return &Example{object: object}, nil
		}
	}
	return nil, fmt.Errorf("no example of %s is given", resource.Kind)
}
