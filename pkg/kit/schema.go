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
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

// goStruct is a struct that is made of a schema of type object.
type goStruct struct {
	name, doc string
	fields    []*goField
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
	name, json, doc string
	goType          *goType
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
	enum []string
}

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

// propertyName is what a name in JSON may be, so that tags can hold it.
var propertyName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$./-]*$`)

// unwritableNames are the names in a schema that are no identifiers, list types that are not known, and
// keys of lists that are no properties.
func unwritableNames(path string, schema *apiextensionsv1.JSONSchemaProps) (problems []string) {
	for name, property := range schema.Properties {
		if !propertyName.MatchString(name) {
			problems = append(problems, fmt.Sprintf("%s: the name of the property %q: use letters, digits and _$./-, beginning with a letter", path, name))
			continue
		}
		problems = append(problems, unwritableNames(path+"."+name, &property)...)
	}
	if kind := schema.XListType; kind != nil && !slices.Contains([]string{"atomic", "set", "map"}, *kind) {
		problems = append(problems, fmt.Sprintf("%s: the list type %q: use atomic, set or map", path, *kind))
	}
	var element apiextensionsv1.JSONSchemaProps
	if schema.Items != nil && schema.Items.Schema != nil {
		element = *schema.Items.Schema
		problems = append(problems, unwritableNames(path+"[]", &element)...)
	}
	for _, key := range schema.XListMapKeys {
		if _, found := element.Properties[key]; !found {
			problems = append(problems, fmt.Sprintf("%s: the key %q of the list: name a property of its elements", path, key))
		}
	}
	if values := schema.AdditionalProperties; values != nil && values.Schema != nil {
		problems = append(problems, unwritableNames(path+"{}", values.Schema)...)
	}
	return problems
}

// schemaReader makes Go types of the schema of one version of a kind.
type schemaReader struct {
	kind    string
	structs []*goStruct
	enums   []*goType
	names   map[string]bool
	// findings are what the types can't express, by the path of the field.
	findings []string
}

// readSchema returns the type of the kind, and collects all that it consists of.
func (r *schemaReader) readSchema(schema *apiextensionsv1.JSONSchemaProps) *goStruct {
	r.names = map[string]bool{r.kind: true, r.kind + "List": true, r.kind + "Spec": true, r.kind + "Status": true}
	root := &goStruct{name: r.kind, doc: schema.Description}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if name == "apiVersion" || name == "kind" || name == "metadata" {
			continue
		}
		property := schema.Properties[name]
		root.fields = append(root.fields, r.field(root, r.kind, name, &property, slices.Contains(schema.Required, name)))
	}
	r.report(r.kind, inexpressible(schema))
	return root
}

func (r *schemaReader) report(path string, what []string) {
	for _, finding := range what {
		r.findings = append(r.findings, path+": "+finding)
	}
}

// structOf makes a struct of a schema with properties.
func (r *schemaReader) structOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goStruct {
	made := &goStruct{name: r.unique(name)}
	made.doc = typeDoc(made.name, path, schema.Description)
	r.structs = append(r.structs, made)
	for _, property := range slices.Sorted(maps.Keys(schema.Properties)) {
		of := schema.Properties[property]
		made.fields = append(made.fields, r.field(made, path, property, &of, slices.Contains(schema.Required, property)))
	}
	return made
}

// unique is a name that no other type of the kind has.
func (r *schemaReader) unique(name string) string {
	if name == r.kind+"Spec" || name == r.kind+"Status" {
		return name
	}
	for i := 2; r.names[name]; i++ {
		name = fmt.Sprintf("%s%d", strings.TrimRight(name, "0123456789"), i)
	}
	r.names[name] = true
	return name
}

func (r *schemaReader) field(of *goStruct, path, name string, schema *apiextensionsv1.JSONSchemaProps, required bool) *goField {
	path += "." + name
	field := &goField{name: goName(name), json: name, doc: schema.Description, required: required}
	field.goType = r.typeOf(strings.TrimSuffix(of.name, "Spec")+goName(name), path, schema)
	field.todo = inexpressible(schema)
	if field.goType.text == "[]byte" && (schema.MinLength != nil || schema.MaxLength != nil) {
		field.todo = append(field.todo, "how long it may be")
	}
	several := field.goType.list || field.goType.dictionary
	isRoot := of.name == r.kind && field.goType.fields != nil
	field.pointer = !several && !isRoot && field.goType.text != "[]byte" && (!required || !r.refusesEmpty(schema))
	r.setDefault(field, schema)
	field.tags = append(field.tags, r.tagsOf(field, schema)...)
	r.report(path, field.todo)
	return field
}

// refusesEmpty is true if an empty value is invalid, so that a field without a pointer can be
// required.
func (*schemaReader) refusesEmpty(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.Type == "string" && (schema.MinLength != nil && *schema.MinLength > 0 || len(schema.Enum) > 0)
}

func (r *schemaReader) setDefault(field *goField, schema *apiextensionsv1.JSONSchemaProps) {
	if schema.Default == nil {
		return
	}
	var value any
	invalid := json.Unmarshal(schema.Default.Raw, &value) != nil
	compact, _ := json.Marshal(value)
	// Generators write a default into a raw string of Go.
	if invalid || value == nil || field.goType.opaque || bytes.ContainsRune(compact, '`') {
		field.todo = append(field.todo, oneLine(fmt.Sprintf("the default %s", schema.Default.Raw)))
		return
	}
	if !field.pointer && field.goType.fields != nil && string(compact) == "{}" {
		return
	}
	field.tags = append(field.tags, "+default="+string(compact))
	field.defaulted, field.required = true, false
	simple := []string{"string", "int32", "int64", "bool", "float64"}
	if slices.Contains(simple, field.goType.text) {
		field.pointer, field.value = true, true
	}
}

var quantityRule = regexp.MustCompile(`\bis[qQ]uantity\(|\bquantity\(`)

func isQuantity(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.Pattern == codegen.QuantityPattern || slices.ContainsFunc(schema.XValidations, func(rule apiextensionsv1.ValidationRule) bool {
		return quantityRule.MatchString(rule.Rule)
	})
}

// typeOf makes the type of a field. Structs and enumerations get the name.
func (r *schemaReader) typeOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	switch {
	case isQuantity(schema):
		return &goType{text: "resource.Quantity", wire: "bytes"}
	case schema.XIntOrString:
		return &goType{text: "intstr.IntOrString", wire: "bytes", opaque: true}
	case schema.XEmbeddedResource, schema.Type == "",
		schema.Type == "object" && len(schema.Properties) == 0 && (schema.AdditionalProperties == nil || schema.AdditionalProperties.Schema == nil):
		if schema.Type == "" {
			r.report(path, []string{"any JSON has become an object"})
		}
		return &goType{text: "runtime.RawExtension", wire: "bytes", opaque: true}
	}
	switch schema.Type {
	case "string":
		return r.stringOf(name, schema)
	case "integer":
		if schema.Format == "int32" {
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
	if len(schema.Properties) == 0 {
		return &goType{dictionary: true, wire: "bytes", element: r.elementOf(singular(name), path+"{}", schema.AdditionalProperties.Schema)}
	}
	fields := r.structOf(name, path, schema)
	return &goType{text: fields.name, wire: "bytes", fields: fields}
}

// elementOf is the type of an element of a list or a map. A list in a list needs a name of its
// own in protobuf messages.
func (r *schemaReader) elementOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	element := r.typeOf(name, path, schema)
	r.report(path, inexpressible(schema))
	if element.list || element.dictionary {
		for _, rule := range rules(element, schema) {
			r.report(path, []string{strings.TrimPrefix(rule, "+k8s:")})
		}
		keepPointers(element)
		named := &goType{text: r.unique(name), wire: "bytes", element: element}
		r.enums = append(r.enums, named)
		return named
	}
	return element
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

func (r *schemaReader) stringOf(name string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	switch {
	case schema.Format == "date-time":
		return &goType{text: "metav1.Time", wire: "bytes", opaque: true}
	case schema.Format == "byte":
		return &goType{text: "[]byte", wire: "bytes"}
	case len(schema.Enum) == 0:
		return &goType{text: "string", wire: "bytes"}
	}
	made := &goType{text: r.unique(name), wire: "bytes"}
	for _, value := range schema.Enum {
		var text string
		if json.Unmarshal(value.Raw, &text) == nil {
			made.enum = append(made.enum, text)
		}
	}
	r.enums = append(r.enums, made)
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
