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
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit/codegen"
)

// patternFormat returns the tag for a pattern that is written often, or "".
func patternFormat(pattern string) string {
	return map[string]string{
		`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`:                                     "k8s-short-name",
		`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`:   "k8s-long-name",
		`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`:  "k8s-long-name",
		`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`: "k8s-long-name",
		`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`:      "k8s-uuid",
		`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`:                       "k8s-label-value",
	}[pattern]
}

// ruleTag returns the tag for a rule in CEL that says the same, or "".
func ruleTag(rule string) string {
	return map[string]string{
		"!format.dns1123Subdomain().validate(self).hasValue()": "+k8s:format=k8s-long-name",
		"!format.dns1123Label().validate(self).hasValue()":     "+k8s:format=k8s-short-name",
		"!format.uuid().validate(self).hasValue()":             "+k8s:format=k8s-uuid",
		"self==oldSelf": "+k8s:immutable",
	}[strings.Join(strings.Fields(rule), "")]
}

// inexpressible is what a schema demands and no tag says, each in one line.
func inexpressible(schema *apiextensionsv1.JSONSchemaProps) (todo []string) {
	defer func() {
		for i := range todo {
			todo[i] = oneLine(todo[i])
		}
	}()
	for _, rule := range schema.XValidations {
		if ruleTag(rule.Rule) == "" {
			todo = append(todo, "the rule "+strings.Join(strings.Fields(rule.Rule), " "))
		}
	}
	if schema.Pattern != "" && patternFormat(schema.Pattern) == "" && schema.Pattern != codegen.QuantityPattern {
		todo = append(todo, "the pattern "+schema.Pattern)
	}
	if schema.Format != "" && !slices.Contains([]string{"int32", "int64", "date-time", "byte", "double", "float", "uuid"}, schema.Format) {
		todo = append(todo, "the format "+schema.Format)
	}
	for _, bound := range []struct {
		name  string
		value *float64
	}{{"maximum", schema.Maximum}, {"minimum", schema.Minimum}} {
		if bound.value != nil && (schema.Type == "number" || schema.Type == "integer" && !isWhole(*bound.value)) {
			todo = append(todo, fmt.Sprintf("the %s %v", bound.name, *bound.value))
		}
	}
	if schema.MultipleOf != nil {
		todo = append(todo, fmt.Sprintf("a multiple of %v", *schema.MultipleOf))
	}
	if len(schema.Enum) > 0 && schema.Type != "string" {
		todo = append(todo, "the values "+asJSON(schema.Enum))
	}
	// Both are how integers or strings are written, too.
	if !schema.XIntOrString {
		for name, schemas := range map[string][]apiextensionsv1.JSONSchemaProps{"allOf": schema.AllOf, "anyOf": schema.AnyOf, "oneOf": schema.OneOf} {
			if len(schemas) > 0 {
				todo = append(todo, name+" "+asJSON(schemas))
			}
		}
		slices.Sort(todo)
	}
	if schema.Not != nil {
		todo = append(todo, "not "+asJSON(schema.Not))
	}
	if schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields && len(schema.Properties) > 0 {
		todo = append(todo, "unknown fields, which are dropped")
	}
	return todo
}

// oneLine makes a text fit for a comment.
func oneLine(text string) string { return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(text) }

func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// tagsOf are the tags of a field, in the order in which people write them.
func (*schemaReader) tagsOf(field *goField, schema *apiextensionsv1.JSONSchemaProps) (tags []string) {
	t := field.goType
	isRoot := t.fields != nil && !field.pointer
	emptyAllowed := t.list && (schema.MinItems == nil || *schema.MinItems < 1) || t.dictionary && (schema.MinProperties == nil || *schema.MinProperties < 1) || t.text == "[]byte"
	switch {
	case isRoot && !field.required:
		tags = append(tags, "+optional")
	case isRoot:
		// No tag requires a struct. What it requires itself is missed all the same.
		if !slices.ContainsFunc(t.fields.fields, func(of *goField) bool { return of.required }) {
			field.todo = append(field.todo, "that it must be there")
		}
		tags = append(tags, "+required")
	case field.required && emptyAllowed:
		field.todo = append(field.todo, "that it must be there, though it may be empty")
		tags = append(tags, "+required", "+k8s:optional")
	case field.required:
		tags = append(tags, "+required", "+k8s:required")
	default:
		tags = append(tags, "+optional", "+k8s:optional")
	}
	if t.opaque {
		tags = append(tags, "+k8s:opaqueType")
	}
	tags = append(tags, rules(t, schema)...)
	if t.list {
		tags = append(tags, listTags(t, schema)...)
	}
	if (t.list || t.dictionary) && t.element.opaque {
		return append(tags, "+k8s:eachVal=+k8s:opaqueType")
	}
	var each []string
	switch {
	case t.list && schema.Items != nil && schema.Items.Schema != nil:
		each = rules(t.element, schema.Items.Schema)
	case t.dictionary:
		each = rules(t.element, schema.AdditionalProperties.Schema)
	}
	for _, rule := range each {
		tags = append(tags, "+k8s:eachVal="+rule)
	}
	return tags
}

func listTags(t *goType, schema *apiextensionsv1.JSONSchemaProps) (tags []string) {
	kind := "atomic"
	if schema.XListType != nil {
		kind = *schema.XListType
	}
	if kind == "map" && t.element.fields == nil && !t.element.opaque {
		kind = "atomic"
	}
	tags = append(tags, "+listType="+kind)
	if kind != "atomic" && !t.element.opaque {
		tags = append(tags, "+k8s:listType="+kind)
	}
	if kind != "map" {
		return tags
	}
	for _, key := range schema.XListMapKeys {
		tags = append(tags, "+listMapKey="+key)
		if t.element.fields != nil {
			tags = append(tags, "+k8s:listMapKey="+key)
			// A key is always there.
			if field := t.element.fields.field(key); field != nil && !field.defaulted {
				field.pointer = false
			}
		}
	}
	return tags
}

// rules are the tags for what a schema demands of a value.
func rules(t *goType, schema *apiextensionsv1.JSONSchemaProps) (tags []string) {
	number := func(tag string, value *int64) {
		if value != nil {
			tags = append(tags, fmt.Sprintf("+k8s:%s=%d", tag, *value))
		}
	}
	switch {
	case t.text == "string":
		number("minLength", schema.MinLength)
		number("maxLength", schema.MaxLength)
		if format := patternFormat(schema.Pattern); format != "" {
			tags = append(tags, "+k8s:format="+format)
		} else if schema.Format == "uuid" {
			tags = append(tags, "+k8s:format=k8s-uuid")
		}
	case t.text == "int32", t.text == "int64":
		number("minimum", bound(schema.Minimum, schema.ExclusiveMinimum, 1))
		number("maximum", bound(schema.Maximum, schema.ExclusiveMaximum, -1))
	case t.list:
		number("minItems", schema.MinItems)
		number("maxItems", schema.MaxItems)
	case t.dictionary:
		number("minProperties", schema.MinProperties)
		number("maxProperties", schema.MaxProperties)
	}
	for _, rule := range schema.XValidations {
		if tag := ruleTag(rule.Rule); tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// isWhole tells whether a tag can say a bound.
func isWhole(bound float64) bool {
	return bound == math.Trunc(bound) && math.Abs(bound) < math.MaxInt64
}

func bound(value *float64, exclusive bool, next int64) *int64 {
	if value == nil || !isWhole(*value) {
		return nil
	}
	whole := int64(*value)
	if exclusive {
		whole += next
	}
	return &whole
}
