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
	"slices"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

// Field is a field of the spec of a new kind.
type Field struct {
	// Name is the name in JSON, such as stationName.
	Name string
	// Type is one of FieldTypes.
	Type string
	// Required fields have to be set, and Immutable ones keep their value.
	Required, Immutable bool
	// Number is the field's number in protobuf messages, which CreateKind sets.
	Number int
}

// fieldType is how a type stands in code.
type fieldType struct {
	// goType is the type of a field that may be omitted, and pointer of one that can't, if that is another: nothing else
	// tells a zero from a missing value.
	goType, pointer string
	// wire begins the protobuf tag, and cardinality ends it.
	wire, cardinality string
	// tags are the type's own.
	tags []string
	// example is a value in YAML.
	example string
}

// opaque is the tag of types whose own tags are for Kubernetes' generators.
func opaque() []string { return []string{"+k8s:opaqueType"} }

func fieldTypes() map[string]fieldType {
	return map[string]fieldType{
		"string":        {goType: "string", wire: "bytes", cardinality: "opt", tags: []string{"+k8s:maxLength=256"}, example: "an example"},
		"bool":          {goType: "bool", pointer: "*bool", wire: "varint", cardinality: "opt", example: "true"},
		"int32":         {goType: "int32", pointer: "*int32", wire: "varint", cardinality: "opt", example: "1"},
		"int64":         {goType: "int64", pointer: "*int64", wire: "varint", cardinality: "opt", example: "1"},
		"time":          {goType: "*metav1.Time", wire: "bytes", cardinality: "opt", tags: opaque(), example: `"2026-01-02T03:04:05Z"`},
		"duration":      {goType: "*metav1.Duration", wire: "bytes", cardinality: "opt", tags: opaque(), example: "1m0s"},
		"quantity":      {goType: "*resource.Quantity", wire: "bytes", cardinality: "opt", example: `"1"`},
		"int-or-string": {goType: "*intstr.IntOrString", wire: "bytes", cardinality: "opt", tags: opaque(), example: "50%"},
		"strings":       {goType: "[]string", wire: "bytes", cardinality: "rep", tags: []string{"+listType=set", "+k8s:listType=set", "+k8s:maxItems=100"}, example: "[an example]"},
	}
}

// FieldTypes returns the types that a Field can have.
func FieldTypes() string { return strings.Join(slices.Sorted(maps.Keys(fieldTypes())), ", ") }

// ParseField reads a field such as "stationName=string,required,immutable".
func ParseField(text string) (Field, error) {
	name, rest, _ := strings.Cut(text, "=")
	words := strings.Split(rest, ",")
	f := Field{Name: name, Type: words[0]}
	if _, known := fieldTypes()[f.Type]; !known {
		return f, fmt.Errorf("the field %q has no type: write NAME=TYPE with one of %s", text, FieldTypes())
	}
	for _, word := range words[1:] {
		switch word {
		case "required":
			f.Required = true
		case "immutable":
			f.Immutable = true
		default:
			return f, fmt.Errorf("the field %q has an unknown property %q: use required and immutable", text, word)
		}
	}
	if !fieldName.MatchString(name) {
		return f, fmt.Errorf("%q can't be the name of a field: use letters and digits, beginning with a small letter", name)
	}
	if slices.Contains(append(codegen.MessageMethods(), "DeepCopy", "DeepCopyInto", "OpenAPIModelName", "SwaggerDoc"), f.GoName()) {
		return f, fmt.Errorf("%q can't be the name of a field, since types have a method %s: choose another, such as %sValue", name, f.GoName(), name)
	}
	return f, nil
}

// GoName returns the name in Go.
func (f Field) GoName() string { return goName(f.Name) }

// GoType returns the type in Go, which is the same in all versions and internally.
func (f Field) GoType() string {
	t := fieldTypes()[f.Type]
	if f.Required && t.pointer != "" {
		return t.pointer
	}
	return t.goType
}

// Tags returns the comments that declare the validation of a version's field.
func (f Field) Tags() []string {
	tags := []string{"+optional", "+k8s:optional"}
	if f.Required {
		tags = []string{"+required", "+k8s:required"}
	}
	if f.Immutable {
		tags = append(tags, "+k8s:immutable")
	}
	return append(tags, fieldTypes()[f.Type].tags...)
}

// StructTag returns the tag of a version's field.
func (f Field) StructTag() string {
	t, omitted := fieldTypes()[f.Type], ",omitempty"
	if f.Required && !strings.HasPrefix(f.GoType(), "*") {
		omitted = ""
	}
	return fmt.Sprintf("`json:\"%s%s\" protobuf:\"%s,%d,%s,name=%s\"`", f.Name, omitted, t.wire, f.Number, t.cardinality, f.Name)
}

// Words returns the name in words, such as station name.
func (f Field) Words() string { return Name(f.GoName()).Words() }

// Example returns a value in YAML.
func (f Field) Example() string { return fieldTypes()[f.Type].example }

// Uses reports whether a field has a type of a package.
func (k *KindOptions) Uses(pkg string) bool {
	return slices.ContainsFunc(k.Fields, func(f Field) bool { return strings.HasPrefix(f.GoType(), "*"+pkg+".") })
}

func (k *KindOptions) checkFields() error {
	seen := map[string]bool{}
	for i, f := range k.Fields {
		k.Fields[i].Number = i + 1
		if seen[f.GoName()] || k.Scale && f.Name == "replicas" {
			return fmt.Errorf("the field %s exists already", f.Name)
		}
		seen[f.GoName()] = true
	}
	return nil
}
