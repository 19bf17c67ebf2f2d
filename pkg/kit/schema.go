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

package kit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// goStruct is a struct that is made of a schema of type object.
type goStruct struct {
	name, doc string
	// tags are those of the type.
	tags   []string
	fields []*goField
}

func (s *goStruct) field(json string) *goField {
	for _, field := range s.fields {
		if field.json == json {
			return field
		}
	}
	return nil
}

// goField is a field of a goStruct.
type goField struct {
	// name is that in Go, json that of users, and proto that in messages.
	name, json, proto, doc string
	goType                 *goType
	// pointer is true if the versioned type has a pointer, so that what is omitted differs
	// from what is empty. value is true if the internal type has none nevertheless, because
	// there is always a value.
	pointer, value, required bool
	// defaulted is true if an omitted field gets a default.
	defaulted bool
	tags      []string
	// todo is what no tag can say.
	todo []string
}

// goType is a type in Go.
type goType struct {
	// text is the type of a single value, wire how protobuf writes it.
	text, wire string
	// list or dictionary is true if there are several values of the type element.
	list, dictionary bool
	element          *goType
	fields           *goStruct
	// opaque is a type of a library that has its own rules.
	opaque bool
	// enum are the values that a string may have.
	enum []constant
}

// constant is a value of an enumeration.
type constant struct{ name, value string }

func (t *goType) String() string {
	switch {
	case t.text != "":
		return t.text
	case t.list:
		return "[]" + t.element.String()
	default:
		return "map[string]" + t.element.String()
	}
}

// unwritable is what a schema has that can't be in Go at all: names that can't be named, list and map types that
// are not known, and keys of lists that are no properties.
func unwritable(path string, schema *apiextensionsv1.JSONSchemaProps) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		if !propertyName.MatchString(name) {
			problems = append(problems, fmt.Sprintf("%s: the name of the property %q: use letters, digits and _$./-, and at least one letter or digit", path, name))
			continue
		}
		problems = append(problems, unwritable(path+"."+name, &property)...)
	}
	if kind := schema.XListType; kind != nil && !slices.Contains([]string{"atomic", "set", "map"}, *kind) {
		problems = append(problems, fmt.Sprintf("%s: the list type %q: use atomic, set or map", path, *kind))
	}
	if kind := schema.XMapType; kind != nil && !slices.Contains([]string{"atomic", "granular"}, *kind) {
		problems = append(problems, fmt.Sprintf("%s: the map type %q: use atomic or granular", path, *kind))
	}
	var element apiextensionsv1.JSONSchemaProps
	if schema.Items != nil && schema.Items.Schema != nil {
		element = *schema.Items.Schema
		problems = append(problems, unwritable(path+"[]", &element)...)
	}
	for _, key := range schema.XListMapKeys {
		if _, found := element.Properties[key]; !found {
			problems = append(problems, fmt.Sprintf("%s: the key %q of the list: name a property of its elements", path, key))
		}
	}
	if values := schema.AdditionalProperties; values != nil && values.Schema != nil {
		problems = append(problems, unwritable(path+"{}", values.Schema)...)
	}
	return problems
}

// schemaReader makes Go types of the schema of one version of a kind.
type schemaReader struct {
	kind    string
	names   *identifiers
	structs []*goStruct
	// named are the enumerations, and the lists and maps that need a name.
	named []*goType
	// findings are what the types can't express, by the path of the field.
	findings []string
	// integers is true if there are any, and short if some have 32 bits.
	integers, short bool
}

// readSchema returns the type of the kind, and collects all that it consists of.
func (r *schemaReader) readSchema(schema *apiextensionsv1.JSONSchemaProps, status bool) *goStruct {
	properties := rootProperties(schema, status)
	root := &goStruct{name: r.kind, doc: schema.Description}
	r.addFields(root, r.kind, properties, schema.Required)
	r.report(r.kind, inexpressible(&goType{}, schema))
	if keepsUnknown(schema) {
		r.report(r.kind, []string{"fields beside " + strings.Join(slices.Sorted(maps.Keys(properties)), " and ") + ", which are dropped"})
	}
	if r.integers {
		r.report(r.kind, []string{"integers that are written with a point or an exponent, such as 1.0 or 1e6, which are refused"})
	}
	if r.short {
		r.report(r.kind, []string{"integers beyond int32: server-side apply takes their last 32 bits rather than refuse them"})
	}
	return root
}

// rootProperties are the properties that the type of a kind has fields for. Where a schema names none but
// keeps what is unknown, these are the spec and, with its subresource, the status.
func rootProperties(schema *apiextensionsv1.JSONSchemaProps, status bool) map[string]apiextensionsv1.JSONSchemaProps {
	properties := maps.Clone(schema.Properties)
	if properties == nil {
		properties = map[string]apiextensionsv1.JSONSchemaProps{}
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(properties, name)
	}
	unknown := apiextensionsv1.JSONSchemaProps{Type: "object"}
	if keepsUnknown(schema) {
		unknown = apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: schema.XPreserveUnknownFields}
	}
	if len(properties) == 0 && keepsUnknown(schema) {
		properties["spec"] = unknown
	}
	if _, has := properties["status"]; status && !has {
		properties["status"] = unknown
	}
	return properties
}

func keepsUnknown(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

func (r *schemaReader) report(path string, what []string) {
	for _, finding := range what {
		r.findings = append(r.findings, path+": "+finding)
	}
}

// structOf makes a struct of a schema of an object.
func (r *schemaReader) structOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goStruct {
	made := &goStruct{name: r.names.typeName(path, name)}
	made.doc = typeDoc(made.name, path, schema.Description)
	r.structs = append(r.structs, made)
	r.addFields(made, path, schema.Properties, schema.Required)
	return made
}

func (r *schemaReader) addFields(to *goStruct, path string, properties map[string]apiextensionsv1.JSONSchemaProps, required []string) {
	names := slices.Sorted(maps.Keys(properties))
	inGo, inProtobuf := r.names.fieldNames(path, names)
	for _, name := range names {
		property := properties[name]
		field := &goField{name: inGo[name], json: name, proto: inProtobuf[name], doc: property.Description, required: slices.Contains(required, name)}
		r.complete(field, to, path+"."+name, &property)
		to.fields = append(to.fields, field)
	}
}

// complete gives a field its type, its default and its tags.
func (r *schemaReader) complete(field *goField, of *goStruct, path string, schema *apiextensionsv1.JSONSchemaProps) {
	field.goType = r.typeOf(strings.TrimSuffix(of.name, "Spec")+goName(field.json), path, schema)
	field.todo = inexpressible(field.goType, schema)
	several := field.goType.list || field.goType.dictionary
	isRoot := of.name == r.kind && field.goType.fields != nil
	field.pointer = !several && !isRoot && field.goType.text != "[]byte" && (!field.required || !r.refusesEmpty(schema))
	r.setDefault(field, schema)
	field.tags = append(field.tags, r.tagsOf(field, schema)...)
	r.report(path, field.todo)
}

// refusesEmpty is true if an empty value is invalid, so that a field without a pointer can be
// required.
func (*schemaReader) refusesEmpty(schema *apiextensionsv1.JSONSchemaProps) bool {
	isEmpty := func(value apiextensionsv1.JSON) bool { return string(value.Raw) == `""` }
	return schema.Type == "string" && (schema.MinLength != nil && *schema.MinLength > 0 || len(schema.Enum) > 0 && !slices.ContainsFunc(schema.Enum, isEmpty))
}

func (r *schemaReader) setDefault(field *goField, schema *apiextensionsv1.JSONSchemaProps) {
	if schema.Default == nil {
		return
	}
	var value any
	invalid := json.Unmarshal(schema.Default.Raw, &value) != nil
	compact, _ := json.Marshal(value)
	// Generators write a default into a raw string of Go.
	isStruct := !field.pointer && field.goType.fields != nil
	if isStruct && string(compact) == "{}" {
		return
	}
	// No generator gives a struct another default than an empty one.
	if invalid || value == nil || isStruct || field.goType.opaque || bytes.ContainsRune(compact, '`') {
		field.todo = append(field.todo, oneLine(fmt.Sprintf("the default %s", schema.Default.Raw)))
		return
	}
	field.tags = append(field.tags, "+default="+string(compact))
	field.defaulted, field.required = true, false
	simple := []string{"string", "int32", "int64", "bool", "float64"}
	if slices.Contains(simple, field.goType.text) {
		field.pointer, field.value = true, true
	}
}

// typeOf makes the type of a field. Structs and enumerations get the name.
func (r *schemaReader) typeOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	switch values := schema.AdditionalProperties; {
	case isQuantity(schema):
		return &goType{text: "resource.Quantity", wire: "bytes"}
	case schema.XIntOrString:
		r.integers = true
		return &goType{text: "intstr.IntOrString", wire: "bytes", opaque: true}
	case schema.XEmbeddedResource, keepsUnknown(schema), schema.Type == "", schema.Type == "object" && values != nil && values.Schema == nil && values.Allows:
		return &goType{text: "runtime.RawExtension", wire: "bytes", opaque: true}
	}
	switch schema.Type {
	case "string":
		return r.stringOf(name, path, schema)
	case "integer":
		r.integers = true
		if schema.Format == "int32" {
			r.short = true
			return &goType{text: "int32", wire: "varint"}
		}
		return &goType{text: "int64", wire: "varint"}
	case "number":
		return &goType{text: "float64", wire: "fixed64"}
	case "boolean":
		return &goType{text: "bool", wire: "varint"}
	case "array":
		if schema.Items == nil || schema.Items.Schema == nil {
			return &goType{list: true, wire: "bytes", element: &goType{text: "runtime.RawExtension", wire: "bytes", opaque: true}}
		}
		if isConditions(schema) {
			return &goType{list: true, wire: "bytes", element: &goType{text: "metav1.Condition", wire: "bytes", opaque: true}}
		}
		element := r.elementOf(singular(name), path+"[]", schema.Items.Schema)
		return &goType{list: true, wire: element.wire, element: element}
	}
	if values := schema.AdditionalProperties; values != nil && values.Schema != nil {
		return &goType{dictionary: true, wire: "bytes", element: r.elementOf(singular(name), path+"{}", values.Schema)}
	}
	fields := r.structOf(name, path, schema)
	if schema.XMapType != nil && *schema.XMapType == "atomic" {
		fields.tags = []string{"+structType=atomic"}
	}
	return &goType{text: fields.name, wire: "bytes", fields: fields}
}

// elementOf is the type of an element of a list or a map. What validates lists and maps within others can't be
// generated. Lists within maps need a name in protobuf messages.
func (r *schemaReader) elementOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	isMap := schema.Type == "object" && len(schema.Properties) == 0 && schema.AdditionalProperties != nil
	if isList := schema.Type == "array"; isMap || isList && strings.HasSuffix(path, "[]") {
		element := &goType{text: "runtime.RawExtension", wire: "bytes", opaque: true}
		r.report(path, []string{"what a list or a map within another has, which may be any JSON"})
		return element
	}
	element := r.typeOf(name, path, schema)
	r.report(path, inexpressible(element, schema))
	if !element.list {
		return element
	}
	for _, rule := range rules(element, schema) {
		r.report(path, []string{strings.TrimPrefix(rule, "+k8s:")})
	}
	if kind := schema.XListType; kind != nil && *kind != "atomic" {
		r.report(path, []string{"the list type " + *kind})
	}
	if of := element.element; of.fields != nil || schema.Items != nil && schema.Items.Schema != nil && len(rules(of, schema.Items.Schema)) > 0 {
		r.report(path, []string{"what the elements of the list must be"})
	}
	keepPointers(element)
	named := &goType{text: r.names.typeName(path, name), wire: "bytes", element: element, opaque: true}
	r.named = append(r.named, named)
	return named
}

// keepPointers gives the internal type the memory of the versioned one: conversions of a type
// of a map's values are generated only if nothing differs.
func keepPointers(t *goType) {
	if t.element != nil {
		keepPointers(t.element)
	}
	if t.fields != nil {
		for _, field := range t.fields.fields {
			field.value = false
			keepPointers(field.goType)
		}
	}
}

func (r *schemaReader) stringOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	switch {
	case schema.Format == "byte":
		return &goType{text: "[]byte", wire: "bytes"}
	case len(schema.Enum) == 0:
		return &goType{text: "string", wire: "bytes"}
	}
	made := &goType{text: r.names.typeName(path, name), wire: "bytes"}
	for _, value := range schema.Enum {
		var text *string
		if json.Unmarshal(value.Raw, &text) == nil && text != nil {
			made.enum = append(made.enum, constant{r.names.constantName(made, *text), *text})
		}
	}
	r.named = append(r.named, made)
	return made
}

// isConditions is true for a list of metav1.Condition.
func isConditions(schema *apiextensionsv1.JSONSchemaProps) bool {
	properties := schema.Items.Schema.Properties
	for _, name := range []string{"lastTransitionTime", "message", "observedGeneration", "reason", "status", "type"} {
		if _, has := properties[name]; !has {
			return false
		}
	}
	return len(properties) == 6 && slices.Equal(schema.XListMapKeys, []string{"type"})
}
