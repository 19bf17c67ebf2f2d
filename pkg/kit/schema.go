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
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// goStruct is a struct made from a schema of type object.
type goStruct struct {
	Name string
	// Doc has the lines of the doc comment, and Tags the tags of the type.
	Doc, Tags []string
	Fields    []*goField
}

func (s *goStruct) field(json string) *goField {
	for _, field := range s.Fields {
		if field.JSON == json {
			return field
		}
	}
	return nil
}

// goField is a field of a goStruct.
type goField struct {
	// Name is the field's name in Go, JSON the one for users.
	Name, JSON string
	// Doc has the lines of the doc comment.
	Doc, Tags []string
	Type      *goType
	// Pointer is true if a missing value differs from an empty one.
	Pointer bool
	// Omit is the option of the field in JSON, with a comma, or empty if it is always written.
	Omit string
}

// goType is a type in Go.
type goType struct {
	text string
	// list or dictionary is true if there are several values of the type element.
	list, dictionary bool
	element          *goType
	fields           *goStruct
}

func (t *goType) String() string { return t.text }

func listOf(element *goType) *goType {
	return &goType{text: "[]" + element.text, list: true, element: element}
}

func dictionaryOf(element *goType) *goType {
	return &goType{text: "map[string]" + element.text, dictionary: true, element: element}
}

// unwritable returns the parts of a schema that Go types can't have. These are names that are no identifiers,
// unknown list and map types, and keys of lists that are no properties.
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

// schemaReader makes Go types from the schema of one version of a kind. They can hold everything that the
// definition of the kind validates.
type schemaReader struct {
	kind    string
	names   *identifiers
	structs []*goStruct
	// findings say how the values of types differ from the values of the schema, by the path of the field.
	findings []string
}

// readSchema returns the type of the kind, and collects its structs.
func (r *schemaReader) readSchema(schema *apiextensionsv1.JSONSchemaProps, status bool) *goStruct {
	properties := rootProperties(schema, status)
	root := &goStruct{Name: r.kind, Doc: commentLines(schema.Description)}
	r.addFields(root, r.kind, properties, schema.Required)
	var empty []string
	for _, field := range root.Fields {
		if field.Type.fields != nil && field.Omit == ",omitzero" {
			empty = append(empty, field.JSON)
		}
	}
	if len(empty) > 0 {
		r.report(r.kind, "an empty "+strings.Join(empty, " or ")+" is dropped")
	}
	if keepsUnknown(schema) {
		r.report(r.kind, "fields beside "+strings.Join(slices.Sorted(maps.Keys(properties)), " and ")+" are dropped")
	}
	return root
}

// rootProperties returns the properties that become fields of the kind's type. For a schema without properties
// that keeps unknown fields, these are the spec and, with its subresource, the status.
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

// commentLines returns a description as the lines of a comment. None is a tag.
func commentLines(description string) (lines []string) {
	for line := range strings.Lines(strings.TrimSpace(description)) {
		line = strings.TrimRight(line, " \t\r\n")
		if tag := strings.TrimSpace(line); strings.HasPrefix(tag, "+") {
			line = "\\" + tag
		}
		lines = append(lines, line)
	}
	return lines
}

func (r *schemaReader) report(path, finding string) {
	r.findings = append(r.findings, path+": "+finding)
}

// structOf makes a struct of a schema of an object.
func (r *schemaReader) structOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goStruct {
	made := &goStruct{Name: r.names.typeName(path, name)}
	made.Doc = commentLines(typeDoc(made.Name, path, schema.Description))
	r.structs = append(r.structs, made)
	r.addFields(made, path, schema.Properties, schema.Required)
	return made
}

func (r *schemaReader) addFields(to *goStruct, path string, properties map[string]apiextensionsv1.JSONSchemaProps, required []string) {
	names := slices.Sorted(maps.Keys(properties))
	inGo := r.names.fieldNames(path, names)
	for _, name := range names {
		property := properties[name]
		field := &goField{Name: inGo[name], JSON: name, Doc: commentLines(property.Description)}
		r.complete(field, to, path+"."+segment(name), &property, slices.Contains(required, name))
		to.Fields = append(to.Fields, field)
	}
}

// segment returns a property in a path. A property with a dot differs from two properties.
func segment(name string) string {
	if strings.Contains(name, ".") {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// complete gives a field its type and its tags.
func (r *schemaReader) complete(field *goField, of *goStruct, path string, schema *apiextensionsv1.JSONSchemaProps, required bool) {
	field.Type = r.typeOf(strings.TrimSuffix(of.Name, "Spec")+goName(field.JSON), path, schema)
	t := field.Type
	isRoot := of.Name == r.kind && t.fields != nil
	// A new object loses its status before defaulting.
	isThere := required || schema.Default != nil && field.JSON != "status"
	switch {
	case isRoot && isThere, t.text == "string" && required && refusesEmpty(schema):
	case isRoot, t.list, t.dictionary:
		field.Omit = ",omitzero"
	default:
		field.Pointer, field.Omit = true, ",omitempty"
	}
	switch {
	case !schema.Nullable:
	case schema.Default != nil:
		r.report(path, "null becomes the default")
	case isRoot && required:
		r.report(path, "null becomes an empty object")
	case required:
		field.Omit = ""
		r.report(path, "becomes null if a server-side apply lacks it")
	default:
		r.report(path, "null is dropped")
	}
	if isRoot && required && schema.Default == nil && len(schema.Required) == 0 {
		r.report(path, "becomes empty if a server-side apply lacks it")
	}
	field.Tags = []string{"+optional"}
	if required {
		field.Tags = []string{"+required"}
	}
	field.Tags = append(field.Tags, tagsOf(t, schema)...)
}

// refusesEmpty reports whether an empty value is invalid, so that a field without a pointer can be required.
func refusesEmpty(schema *apiextensionsv1.JSONSchemaProps) bool {
	isEmpty := func(value apiextensionsv1.JSON) bool { return string(value.Raw) == `""` }
	return !schema.Nullable && (schema.MinLength != nil && *schema.MinLength > 0 || len(schema.Enum) > 0 && !slices.ContainsFunc(schema.Enum, isEmpty))
}

// tagsOf returns the tags for server-side apply of a field.
func tagsOf(t *goType, schema *apiextensionsv1.JSONSchemaProps) (tags []string) {
	if t.list {
		kind := "atomic"
		if schema.XListType != nil && (*schema.XListType != "map" || t.element.fields != nil || t.element.text == "metav1.Condition") {
			kind = *schema.XListType
		}
		tags = append(tags, "+listType="+kind)
		if kind == "map" {
			for _, key := range schema.XListMapKeys {
				tags = append(tags, "+listMapKey="+key)
			}
		}
	}
	if t.dictionary && schema.XMapType != nil && *schema.XMapType == "atomic" {
		tags = append(tags, "+mapType=atomic")
	}
	return tags
}

// typeOf makes the type of a field. The name is for structs.
func (r *schemaReader) typeOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	anything := &goType{text: "runtime.RawExtension"}
	switch values := schema.AdditionalProperties; {
	case schema.XIntOrString:
		r.report(path, "integers beyond 32 bits are refused")
		return &goType{text: "intstr.IntOrString"}
	case schema.XEmbeddedResource, keepsUnknown(schema), schema.Type == "", schema.Type == "object" && values != nil && values.Schema == nil && values.Allows:
		return anything
	}
	switch schema.Type {
	case "string":
		return &goType{text: "string"}
	case "integer":
		if schema.Format == "int32" {
			return &goType{text: "int32"}
		}
		return &goType{text: "int64"}
	case "number":
		if !isExact(schema) {
			r.report(path, "integers beyond 53 bits are rounded")
		}
		return &goType{text: "float64"}
	case "boolean":
		return &goType{text: "bool"}
	case "array":
		switch {
		case schema.Items == nil || schema.Items.Schema == nil:
			return listOf(anything)
		case isConditions(schema):
			r.report(path, "times become UTC in seconds, and are refused with a small t or z; an observedGeneration of 0 is dropped; a message that is missing or null is empty")
			return listOf(&goType{text: "metav1.Condition"})
		}
		return listOf(r.elementOf(singular(name), path+"[]", schema.Items.Schema))
	}
	if values := schema.AdditionalProperties; values != nil && values.Schema != nil {
		return dictionaryOf(r.elementOf(singular(name), path+"{}", values.Schema))
	}
	fields := r.structOf(name, path, schema)
	if schema.XMapType != nil && *schema.XMapType == "atomic" {
		fields.Tags = []string{"+structType=atomic"}
	}
	return &goType{text: fields.Name, fields: fields}
}

// elementOf returns the type of an element of a list or a map.
func (r *schemaReader) elementOf(name, path string, schema *apiextensionsv1.JSONSchemaProps) *goType {
	if schema.Nullable {
		return &goType{text: "runtime.RawExtension"}
	}
	return r.typeOf(name, path, schema)
}

// isExact reports whether a float64 can hold all integers of a number.
func isExact(schema *apiextensionsv1.JSONSchemaProps) bool {
	const limit = 1 << 53
	return schema.Minimum != nil && *schema.Minimum >= -limit && schema.Maximum != nil && *schema.Maximum <= limit
}

// isConditions reports whether metav1.Condition can hold the elements of a list.
func isConditions(schema *apiextensionsv1.JSONSchemaProps) bool {
	element := schema.Items.Schema
	if element.Type != "object" || element.Nullable || keepsUnknown(element) || element.XEmbeddedResource {
		return false
	}
	for _, name := range []string{"message", "reason", "status", "type"} {
		property := element.Properties[name]
		// In Go, a missing property is empty.
		pattern, err := regexp.Compile(property.Pattern)
		isFound := name == "message" || err == nil && !pattern.MatchString("") || refusesEmpty(&property)
		if property.Type != "string" || property.Nullable || !slices.Contains(element.Required, name) || !isFound {
			return false
		}
	}
	time, generation := element.Properties["lastTransitionTime"], element.Properties["observedGeneration"]
	// The time is written in another way, which further rules may refuse.
	isPlain := reflect.DeepEqual(time, apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time", Description: time.Description})
	// A generation of 0 is missing, and must not become a default.
	return isPlain && generation.Type == "integer" && !generation.Nullable && generation.Default == nil &&
		len(element.Properties) == 6 && len(element.Required) == 5 && slices.Contains(element.Required, "lastTransitionTime") &&
		slices.Equal(schema.XListMapKeys, []string{"type"})
}

// selector is a field selector of an object o.
type selector struct {
	Name string
	// Pointers are the pointers on the path to the field. If one of them is nil, the value is empty.
	Pointers []string
	// Value is an expression of the value as a string.
	Value string
}

// selectable returns the field selectors of a kind.
func selectable(root *goStruct, fields []apiextensionsv1.SelectableField) (made []selector, findings []string) {
	for _, field := range fields {
		if s, found := follow(root, strings.TrimPrefix(field.JSONPath, ".")); found {
			made = append(made, s)
		} else {
			findings = append(findings, "the field selector "+field.JSONPath+": write it by hand")
		}
	}
	return made, findings
}

// follow returns the selector of the field at a JSON path. It returns false if no selector can have it.
func follow(root *goStruct, jsonPath string) (s selector, found bool) {
	s.Name = jsonPath
	within, value := root, "o"
	var last *goField
	for segment := range strings.SplitSeq(jsonPath, ".") {
		if within == nil {
			return s, false
		}
		if last = within.field(segment); last == nil {
			return s, false
		}
		value += "." + last.Name
		if last.Pointer {
			s.Pointers = append(s.Pointers, value)
		}
		within = last.Type.fields
	}
	if last.Pointer {
		value = "*" + value
	}
	switch last.Type.text {
	case "intstr.IntOrString":
		s.Value = strings.TrimPrefix(value, "*") + ".String()"
	case "string":
		s.Value = value
	case "int32", "int64", "bool", "float64":
		s.Value = "fmt.Sprint(" + value + ")"
	}
	return s, s.Value != ""
}
