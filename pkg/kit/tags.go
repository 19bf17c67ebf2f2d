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
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/validate"

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

// quantityRule is true if a rule in CEL accepts no value that is not a quantity.
func quantityRule(rule string) bool {
	parsed, err := parser.NewParser(parser.Macros(parser.AllMacros...))
	if err != nil {
		return false
	}
	tree, errs := parsed.Parse(common.NewTextSource(rule))
	if len(errs.GetErrors()) > 0 {
		return false
	}
	always := true
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		// What compares with an old value says nothing about a first one.
		always = always && (e.Kind() != ast.IdentKind || e.AsIdent() != "oldSelf")
	}))
	return always && demandsQuantity(tree.Expr(), true)
}

// demandsQuantity is true if an expression reads the value as a quantity, whatever the value is. An
// expression that has to be true may also ask whether it is one.
func demandsQuantity(e ast.Expr, isTrue bool) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.LogicalAnd:
		return isTrue && slices.ContainsFunc(call.Args(), func(of ast.Expr) bool { return demandsQuantity(of, true) })
	case operators.LogicalOr, operators.Conditional:
		return false
	case "isQuantity":
		return isTrue && len(call.Args()) == 1 && isSelf(call.Args()[0])
	case "quantity":
		return len(call.Args()) == 1 && isSelf(call.Args()[0])
	}
	return call.IsMemberFunction() && demandsQuantity(call.Target(), false) ||
		slices.ContainsFunc(call.Args(), func(of ast.Expr) bool { return demandsQuantity(of, false) })
}

// isSelf is true for self and string(self).
func isSelf(e ast.Expr) bool {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "string" && len(e.AsCall().Args()) == 1 {
		e = e.AsCall().Args()[0]
	}
	return e.Kind() == ast.IdentKind && e.AsIdent() == "self"
}

// isQuantity is true if all that a schema accepts are quantities.
func isQuantity(schema *apiextensionsv1.JSONSchemaProps) bool {
	if schema.Type != "string" && !schema.XIntOrString {
		return false
	}
	return schema.Pattern == codegen.QuantityPattern || slices.ContainsFunc(schema.XValidations, func(rule apiextensionsv1.ValidationRule) bool {
		return quantityRule(rule.Rule)
	})
}

// inexpressible is what a schema demands and its type and tags don't say, each in one line.
func inexpressible(t *goType, schema *apiextensionsv1.JSONSchemaProps) (todo []string) {
	add := func(format string, args ...any) { todo = append(todo, oneLine(fmt.Sprintf(format, args...))) }
	for _, rule := range schema.XValidations {
		if ruleTag(rule.Rule) == "" {
			add("the rule %s", strings.Join(strings.Fields(rule.Rule), " "))
		}
	}
	if pattern := schema.Pattern; pattern != "" && (t.text != "string" || patternFormat(pattern) == "") && (t.text != "resource.Quantity" || pattern != codegen.QuantityPattern) {
		add("the pattern %s", pattern)
	}
	if schema.Format != "uuid" && schema.Format != "byte" && isFormat(schema) {
		add("the format %s", schema.Format)
	}
	todo = append(todo, boundsBeyond(t, schema)...)
	if schema.MultipleOf != nil {
		add("a multiple of %v", *schema.MultipleOf)
	}
	if len(schema.Enum) > 0 && t.enum == nil {
		add("the values %s", asJSON(schema.Enum))
	}
	for _, limit := range []struct {
		name  string
		value *int64
		said  bool
	}{
		{"minLength", schema.MinLength, t.text == "string"}, {"maxLength", schema.MaxLength, t.text == "string"},
		{"minItems", schema.MinItems, t.list}, {"maxItems", schema.MaxItems, t.list},
		{"minProperties", schema.MinProperties, t.dictionary}, {"maxProperties", schema.MaxProperties, t.dictionary},
	} {
		if limit.value != nil && !limit.said {
			add("the %s %d", limit.name, *limit.value)
		}
	}
	// Both are how integers or strings are written, too.
	if !schema.XIntOrString {
		for _, of := range []struct {
			name    string
			schemas []apiextensionsv1.JSONSchemaProps
		}{{"allOf", schema.AllOf}, {"anyOf", schema.AnyOf}, {"oneOf", schema.OneOf}} {
			if len(of.schemas) > 0 {
				add("%s %s", of.name, asJSON(of.schemas))
			}
		}
	}
	if schema.Not != nil {
		add("not %s", asJSON(schema.Not))
	}
	switch {
	case schema.Nullable && schema.Default != nil:
		add("null, which becomes the default")
	case schema.Nullable:
		add("null, which becomes what is left out")
	}
	return append(todo, lost(t, schema)...)
}

// lost is what a type of a library doesn't have of a schema.
func lost(t *goType, schema *apiextensionsv1.JSONSchemaProps) (todo []string) {
	switch {
	case t.text == "[]byte":
		todo = append(todo, "that it is not empty")
	case t.text == "resource.Quantity":
		todo = append(todo, "how the quantity is written, such as 1000m, which becomes 1")
	case t.text == "intstr.IntOrString":
		todo = append(todo, "integers beyond 32 bits, which are refused")
	case t.list && t.element.text == "metav1.Condition":
		todo = append(todo, "what its elements must be, which are taken as they are but for the fractions of their times")
	case t.text != "runtime.RawExtension":
		return nil
	case schema.XEmbeddedResource:
		todo = append(todo, "that it is an object with an apiVersion, a kind and valid metadata")
	case schema.Type == "":
	default:
		todo = append(todo, "that it is an object")
	}
	if t.text == "runtime.RawExtension" && len(schema.Properties) > 0 {
		todo = append(todo, "what its properties must be, as it keeps what is unknown")
	}
	if t.text == "runtime.RawExtension" && !keepsUnknown(schema) && schema.AdditionalProperties == nil {
		todo = append(todo, "that it keeps nothing unknown")
	}
	if t.text == "runtime.RawExtension" && schema.XMapType != nil && *schema.XMapType == "atomic" {
		todo = append(todo, "the map type atomic, so that what several apply is merged")
	}
	return todo
}

// isFormat is true if kube-apiserver knows the format of a string. It ignores others.
func isFormat(schema *apiextensionsv1.JSONSchemaProps) bool {
	const current = "1.37"
	known := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{schema.Type}, Format: schema.Format}}
	return schema.Type == "string" && schema.Format != "" && len(validation.GetUnrecognizedFormats(known, version.MustParse(current))) == 0
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
	if t.dictionary && schema.XMapType != nil && *schema.XMapType == "atomic" {
		tags = append(tags, "+mapType=atomic")
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
			tags = append(tags, "+k8s:listMapKey="+tagValue(key))
			// A key is always there.
			if field := t.element.fields.field(key); field != nil && !field.defaulted {
				field.pointer = false
			}
		}
	}
	return tags
}

// tagValue is a text as the value of a tag.
func tagValue(text string) string {
	if regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`).MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}

// rules are the tags for what a schema demands of a value.
func rules(t *goType, schema *apiextensionsv1.JSONSchemaProps) (tags []string) {
	number := func(tag string, value *int64) {
		if value != nil {
			tags = append(tags, fmt.Sprintf("+k8s:%s=%d", tag, *value))
		}
	}
	// Of elements, there is nothing to be generated for a tag that demands nothing.
	atLeast := func(tag string, value *int64) {
		if value != nil && *value > 0 {
			number(tag, value)
		}
	}
	switch {
	case t.text == "string":
		atLeast("minLength", schema.MinLength)
		number("maxLength", schema.MaxLength)
		if format := patternFormat(schema.Pattern); format != "" {
			tags = append(tags, "+k8s:format="+format)
		} else if schema.Format == "uuid" {
			tags = append(tags, "+k8s:format=k8s-uuid")
		}
	case t.text == "int32", t.text == "int64":
		least, greatest := bounds(t, schema)
		number("minimum", least)
		number("maximum", greatest)
	case t.list:
		atLeast("minItems", schema.MinItems)
		number("maxItems", schema.MaxItems)
	case t.dictionary:
		atLeast("minProperties", schema.MinProperties)
		number("maxProperties", schema.MaxProperties)
	}
	for _, rule := range schema.XValidations {
		if tag := ruleTag(rule.Rule); tag != "" && !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// bounds are the least and the greatest value of an integer, each nil unless a tag can say it.
func bounds(t *goType, schema *apiextensionsv1.JSONSchemaProps) (least, greatest *int64) {
	limits := map[string][2]int64{"int32": {math.MinInt32, math.MaxInt32}, "int64": {math.MinInt64, math.MaxInt64}}
	bound := func(value *float64, exclusive bool, next int64) *int64 {
		limit, isInteger := limits[t.text]
		// kube-apiserver refuses every value because of a bound that it can't compare.
		if value == nil || !isInteger || validate.IsValueValidAgainstRange(*value, "integer", t.text, "", "") != nil {
			return nil
		}
		whole := int64(*value)
		if exclusive {
			whole += next
		}
		if whole < limit[0] || whole > limit[1] {
			return nil
		}
		return &whole
	}
	return bound(schema.Minimum, schema.ExclusiveMinimum, 1), bound(schema.Maximum, schema.ExclusiveMaximum, -1)
}

// boundsBeyond are the bounds that no tag can say.
func boundsBeyond(t *goType, schema *apiextensionsv1.JSONSchemaProps) (todo []string) {
	least, greatest := bounds(t, schema)
	for _, bound := range []struct {
		name      string
		value     *float64
		exclusive bool
		said      *int64
	}{{"minimum", schema.Minimum, schema.ExclusiveMinimum, least}, {"maximum", schema.Maximum, schema.ExclusiveMaximum, greatest}} {
		if bound.value == nil || bound.said != nil {
			continue
		}
		text := "the "
		if bound.exclusive {
			text += "exclusive "
		}
		text += fmt.Sprintf("%s %v", bound.name, *bound.value)
		if t.text == "int32" || t.text == "int64" {
			text += ", so that kube-apiserver refuses every value"
		}
		todo = append(todo, text)
	}
	return todo
}
