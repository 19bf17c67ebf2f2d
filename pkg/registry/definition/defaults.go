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

package definition

import (
	"fmt"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

const (
	// maxDefaults is how many values defaults may add to an object, and maxDefaultBytes their total size.
	// Both exceed what etcd stores. Defaults of items can turn a list of {} into megabytes.
	maxDefaults, maxDefaultBytes = 20_000, 3 << 20
)

// defaults counts the values and bytes that defaults add.
type defaults struct{ values, bytes int }

// checkDefaults returns an error if defaults would add too much to an object.
func checkDefaults(object map[string]any, s *structuralschema.Structural) error {
	added := &defaults{}
	added.to(object, s)
	if added.exceed() {
		return fmt.Errorf("the defaults of fields that are missing must not be more than %d values or %d bytes together", maxDefaults, maxDefaultBytes)
	}
	return nil
}

func (d *defaults) exceed() bool { return d.values > maxDefaults || d.bytes > maxDefaultBytes }

// to counts the defaults that a value lacks. It stops at the limit.
func (d *defaults) to(value any, s *structuralschema.Structural) {
	if s == nil || d.exceed() {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, property := range s.Properties {
			if of, found := value[name]; !found || of == nil {
				d.missing(name, found, &property)
			} else {
				d.to(of, &property)
			}
		}
		if s.AdditionalProperties == nil {
			return
		}
		for name, of := range value {
			if _, known := s.Properties[name]; !known {
				d.item(of, s.AdditionalProperties.Structural)
			}
		}
	case []any:
		for _, item := range value {
			d.item(item, s.Items)
		}
	}
}

func (d *defaults) item(value any, s *structuralschema.Structural) {
	if value == nil && s != nil {
		d.missing("", true, s)
		return
	}
	d.to(value, s)
}

// missing counts the default of a missing or null field, and defaults inside that.
func (d *defaults) missing(name string, null bool, s *structuralschema.Structural) {
	if s.Default.Object == nil || null && s.Nullable {
		return
	}
	d.bytes += len(name)
	d.whole(s.Default.Object)
	d.to(s.Default.Object, s)
}

// whole counts a value with everything inside it.
func (d *defaults) whole(value any) {
	d.values++
	switch value := value.(type) {
	case map[string]any:
		for name, of := range value {
			d.bytes += len(name)
			d.whole(of)
		}
	case []any:
		for _, item := range value {
			d.whole(item)
		}
	case string:
		d.bytes += len(value)
	}
}
