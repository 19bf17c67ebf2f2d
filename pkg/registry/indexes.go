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
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

// separator surrounds each value of an index in an object's attributes, which have
// one string for each field.
const separator = "\x00"

func joinValues(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return separator + strings.Join(values, separator) + separator
}

func hasValue(joined, value string) bool {
	return !strings.Contains(value, separator) && strings.Contains(joined, separator+value+separator)
}

// indexers are the indexes of the watch cache.
func (k *Kind[O]) indexers() *cache.Indexers {
	indexers := cache.Indexers{}
	for name, values := range k.Indexes {
		indexers[storage.FieldIndex(name)] = func(obj any) ([]string, error) {
			o, ok := obj.(O)
			if !ok {
				return nil, fmt.Errorf("the watch cache of %s has a %T", k.Resource, obj)
			}
			return values(o), nil
		}
	}
	return &indexers
}

// predicate selects by labels and fields. A list by an index reads only the objects
// with the value. The selector always checks the result, since watches and lists
// without the cache don't use the index.
func (k *Kind[O]) predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	predicate := storage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.attributes}
	requirements := field.Requirements()
	if slices.ContainsFunc(requirements, func(r fields.Requirement) bool { return k.Indexes[r.Field] != nil }) {
		predicate.Field = indexSelector[O]{field, requirements, k}
		predicate.IndexFields = slices.Sorted(maps.Keys(k.Indexes))
	}
	return predicate
}

// indexSelector is a selector with requirements of fields that have several values.
type indexSelector[O Object] struct {
	fields.Selector
	requirements []fields.Requirement
	kind         *Kind[O]
}

// Matches reports whether the attributes meet all requirements. An index equals a value
// if any of its values does, and differs from it if none does.
func (s indexSelector[O]) Matches(attributes fields.Fields) bool {
	for _, requirement := range s.requirements {
		value := attributes.Get(requirement.Field)
		has := value == requirement.Value
		if s.kind.Indexes[requirement.Field] != nil {
			has = hasValue(value, requirement.Value)
		}
		if has == (requirement.Operator == selection.NotEquals) {
			return false
		}
	}
	return true
}
