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

package crd

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// prober finds the field of a version that a function of the declaration returns. It fills in one
// field after the other, and compares the results.
type prober struct {
	*exporter
	gvk       schema.GroupVersionKind
	features  *registry.Features
	schema    *props
	constants []string
}

// probe is an object with a value in one field.
type probe struct {
	// path is the field's path in a definition, and value its value.
	path, value string
	// column is the type of a column for the field.
	column string
	object runtime.Object
}

const moment = "2001-02-03T04:05:06Z"

// adder adds a probe with a value in a field.
type adder func(path, column string, value any, fields ...string)

// probes returns an object for each field.
func (p *prober) probes() (probes []probe) {
	add := func(path, column string, value any, fields ...string) {
		object := map[string]any{}
		// Nothing is in the way of the field.
		_ = unstructured.SetNestedField(object, value, fields...)
		// Not everything that the schema allows can be converted. A field that can't be tried out is not found.
		if internal, err := p.internal(object); err == nil {
			probes = append(probes, probe{path: path, value: fmt.Sprint(value), column: column, object: internal})
		}
	}
	add(".metadata.name", "string", "probe", "metadata", "name")
	add(".metadata.creationTimestamp", "date", moment, "metadata", "creationTimestamp")
	p.walk(p.schema, nil, add)
	return probes
}

// walk adds a probe for each field with a single value, and for the fields of conditions of all known types.
func (p *prober) walk(s *props, fields []string, add adder) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if len(fields) == 0 && (name == "metadata" || name == "apiVersion" || name == "kind") {
			continue
		}
		property := s.Properties[name]
		at := append(slices.Clone(fields), name)
		path := "." + strings.Join(at, ".")
		switch {
		case property.XIntOrString:
			add(path, "string", "7", at...)
		case property.Type == "string" && property.Format == "date-time":
			add(path, "date", moment, at...)
		case property.Type == "string" && len(property.Enum) > 0:
			var value *string
			// Null may be among the values.
			if json.Unmarshal(property.Enum[len(property.Enum)-1].Raw, &value) == nil && value != nil {
				add(path, "string", *value, at...)
			}
		case property.Type == "string" && property.Format == "":
			add(path, "string", "probe", at...)
		case property.Type == "integer":
			add(path, "integer", int64(7), at...)
		case property.Type == "boolean":
			add(path, "boolean", true, at...)
		case property.Type == "object":
			p.walk(&property, at, add)
		case name == "conditions" && property.Type == "array":
			p.conditions(at, add)
		}
	}
}

func (p *prober) conditions(fields []string, add adder) {
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(p.constants))) {
		for _, field := range []string{"status", "reason", "message"} {
			path := fmt.Sprintf(".%s[?(@.type==%q)].%s", strings.Join(fields, "."), kind, field)
			add(path, "string", []any{map[string]any{"type": kind, field: "probe"}}, fields...)
		}
	}
}

// internal converts an object of the version, without defaults.
func (p *prober) internal(fields map[string]any) (runtime.Object, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	versioned, err := p.scheme.New(p.gvk)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, versioned); err != nil {
		return nil, err
	}
	return p.scheme.ConvertToVersion(versioned, schema.GroupVersion{Group: p.group, Version: runtime.APIVersionInternal})
}

// show calls a function of the author. The function may panic, as the object is nearly empty.
func show(of func(runtime.Object) string, object runtime.Object) (shown string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return of(object), true
}

// find returns the only field that a function depends on. It returns false if there is no such
// field.
func (p *prober) find(probes []probe, of func(runtime.Object) string) (found probe, ok bool) {
	empty, err := p.internal(map[string]any{})
	if err != nil {
		return probe{}, false
	}
	without, _ := show(of, empty)
	n := 0
	for _, candidate := range probes {
		shown, ok := show(of, candidate.object)
		if !ok || shown == without {
			continue
		}
		found = candidate
		found.value = shown
		n++
		// The function does not show the value unchanged.
		if shown != candidate.value && candidate.column != "date" && (!strings.Contains(candidate.path, "[?(") || shown != "probe") {
			n = len(probes) + 1
		}
	}
	return found, n == 1
}

// columns returns the columns that show one field unchanged.
func (p *prober) columns() (columns []apiextensionsv1.CustomResourceColumnDefinition) {
	probes := p.probes()
	for i, column := range p.features.Columns {
		found, ok := p.find(probes, func(o runtime.Object) string { return fmt.Sprint(p.features.Cells(o)[i]) })
		switch {
		case !ok:
			p.finding(fmt.Sprintf("%s %s: the column %s is more than one field as it is: write a column with a JSON path", p.gvk.Version, p.gvk.Kind, column.Name))
		case found.path != ".metadata.name":
			columns = append(columns, apiextensionsv1.CustomResourceColumnDefinition{
				Name: column.Name, Type: found.column, Description: description(column), Priority: column.Priority, JSONPath: found.path,
			})
		}
	}
	return columns
}

func description(column metav1.TableColumnDefinition) string {
	if column.Description == (metav1.ObjectMeta{}).SwaggerDoc()["creationTimestamp"] {
		return "When the object was created."
	}
	return column.Description
}

// selectable returns the fields that custom resources can select, too.
func (p *prober) selectable() (fields []apiextensionsv1.SelectableField) {
	for _, name := range slices.Sorted(maps.Keys(p.features.Fields)) {
		field := p.schema
		for part := range strings.SplitSeq(name, ".") {
			next, found := field.Properties[part]
			if !found {
				next = props{}
			}
			field = &next
		}
		if slices.Contains([]string{"string", "integer", "boolean"}, field.Type) {
			fields = append(fields, apiextensionsv1.SelectableField{JSONPath: "." + name})
		} else {
			p.finding(fmt.Sprintf("%s %s: the field %s can't be selected, as it is no string, integer or boolean", p.gvk.Version, p.gvk.Kind, name))
		}
	}
	return fields
}

// scale returns the paths of the fields that /scale shows, or nil.
func (p *prober) scale() *apiextensionsv1.CustomResourceSubresourceScale {
	probes := p.probes()
	replicas, ok := p.find(probes, func(o runtime.Object) string { return fmt.Sprint(p.features.StatusReplicas(o)) })
	if !ok {
		p.finding(fmt.Sprintf("%s %s: no field is the observed number of replicas, so that there is no /scale", p.gvk.Version, p.gvk.Kind))
		return nil
	}
	scale := &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: replicas.path}
	if selector, ok := p.find(probes, p.features.Selector); ok {
		scale.LabelSelectorPath = &selector.path
	}
	return scale
}
