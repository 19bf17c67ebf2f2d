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
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

type (
	models = map[string]common.OpenAPIDefinition
	props  = apiextensionsv1.JSONSchemaProps
)

// converter makes a structural schema from OpenAPI definitions and tags.
type converter struct {
	*exporter
	tags *tagsOfVersion
	// prefix begins the names of the version's own definitions.
	prefix string
	// where names the kind in findings.
	where string
	// within are the definitions that are being converted, to detect cycles.
	within []string
	// present has the fields of a struct that clients may omit, but that need values. They become
	// rules of the struct, or of one around it.
	present map[*props][]presence
}

// presence is a field that must have a value, and not be empty if it has a size.
type presence struct {
	// path is the path of the field, and names are its elements in CEL.
	path  string
	names []string
	sized bool
}

// root returns the schema of a kind.
func (c *converter) root(model string) (*props, error) {
	c.present = map[*props][]presence{}
	root, err := c.model(model, "")
	if err != nil {
		return nil, err
	}
	c.requirePresence(root)
	if root.Properties == nil {
		root.Properties, root.XPreserveUnknownFields = map[string]props{}, nil
	}
	root.Properties["apiVersion"], root.Properties["kind"] = props{Type: "string"}, props{Type: "string"}
	root.Properties["metadata"] = props{Type: "object"}
	return root, nil
}

// quantityPattern is controller-gen's pattern for a resource.Quantity.
const quantityPattern = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// durationPattern matches the durations that metav1.Duration reads.
const durationPattern = `^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// anything returns the schema of an object that may have any fields.
func anything() *props {
	yes := true
	return &props{Type: "object", XPreserveUnknownFields: &yes}
}

// model converts a definition by its name.
func (c *converter) model(name, path string) (*props, error) {
	switch name {
	case runtime.RawExtension{}.OpenAPIModelName(), metav1.FieldsV1{}.OpenAPIModelName():
		return anything(), nil
	case metav1.Duration{}.OpenAPIModelName():
		return &props{Type: "string", Pattern: durationPattern}, nil
	case resource.Quantity{}.OpenAPIModelName():
		return &props{XIntOrString: true, Pattern: quantityPattern}, nil
	}
	definition, found := c.models[name]
	if !found {
		return nil, fmt.Errorf("there is no OpenAPI definition of %s: generate the code", name)
	}
	if slices.Contains(c.within, name) {
		c.finding(fmt.Sprintf("%s%s: %s contains itself, so that any object is accepted from there on", c.where, path, name))
		return anything(), nil
	}
	c.within = append(c.within, name)
	defer func() { c.within = c.within[:len(c.within)-1] }()
	own, isOwn := strings.CutPrefix(name, c.prefix)
	made := &props{}
	// Both types are schemas in JSON.
	raw, err := json.Marshal(definition.Schema)
	if err == nil {
		err = json.Unmarshal(raw, made)
	}
	if err != nil {
		return nil, err
	}
	if err := c.resolve(made, path, func(field string) []string {
		if isOwn {
			return c.tags.fields[own][field]
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if _, isStruct := c.tags.fields[own]; made.Type == "object" && made.Properties == nil && made.AdditionalProperties == nil && (!isOwn || !isStruct) {
		// Such a type decodes JSON itself.
		made.XPreserveUnknownFields = anything().XPreserveUnknownFields
	}
	switch {
	case isOwn:
		c.apply(made, c.tags.types[own], path)
		for _, embedded := range c.tags.foreign[own] {
			if embedded != "ObjectMeta" && embedded != "ListMeta" {
				c.finding(fmt.Sprintf("%s%s: what tags of the embedded type %s demand is not exported", c.where, path, embedded))
			}
		}
	case name == metav1.Condition{}.OpenAPIModelName():
		boundCondition(made)
	}
	return made, nil
}

// resolve replaces a schema that refers to a definition, and the schemas within it. The tags are its properties'.
func (c *converter) resolve(s *props, path string, tags func(field string) []string) error {
	if ref := reference(s); ref != "" {
		made, err := c.model(ref, path)
		if err != nil {
			return err
		}
		made.Description = cmp.Or(s.Description, made.Description)
		*s = *made
		c.present[s] = c.present[made]
		return nil
	}
	if len(s.OneOf) > 0 || s.Format == "int-or-string" {
		// This is a number or a string, such as an IntOrString.
		*s = props{Description: s.Description, XIntOrString: true}
		return nil
	}
	if s.Type == "" {
		s.XPreserveUnknownFields = anything().XPreserveUnknownFields
	}
	if s.Items != nil && s.Items.Schema != nil {
		if err := c.resolveElement(s.Items.Schema, path+"[]"); err != nil {
			return err
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		if err := c.resolveElement(s.AdditionalProperties.Schema, path+"{}"); err != nil {
			return err
		}
	}
	return c.resolveProperties(s, path, tags)
}

// resolveElement resolves the schema of the elements of a list or a map.
func (c *converter) resolveElement(s *props, path string) error {
	s.Default = nil
	err := c.resolve(s, path, nil)
	c.requirePresence(s)
	return err
}

// resolveProperties resolves the fields of a struct.
func (c *converter) resolveProperties(s *props, path string, tags func(field string) []string) error {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field, at := s.Properties[name], path+"."+name
		value, isDuration := field.Default, reference(&field) == metav1.Duration{}.OpenAPIModelName()
		field.Default = nil
		if err := c.resolve(&field, at, nil); err != nil {
			return err
		}
		var own []string
		if tags != nil {
			own = tags(name)
		}
		c.apply(&field, own, at)
		switch isRequired := slices.Contains(s.Required, name); {
		case isDefaulted(own):
		case slices.Contains(own, "+k8s:required") && slices.Contains(own, "+optional"):
			// Clients may leave it out, as admission fills it in.
			c.addPresence(s, name, at, presence{sized: hasSize(&field)})
		case slices.Contains(own, "+k8s:required") && !isRequired:
			s.Required = append(s.Required, name)
			fallthrough
		case slices.Contains(own, "+k8s:required"):
			notEmpty(&field)
		}
		// A struct is never missing in Go. If a client omits it, its required fields are missing.
		if value != nil && string(value.Raw) == "{}" {
			if len(field.Required) > 0 && !slices.Contains(s.Required, name) {
				s.Required = append(s.Required, name)
			}
			// The default has to be valid by itself, so the struct around it requires the values.
			for _, within := range c.present[&field] {
				c.addPresence(s, name, at, within)
			}
			delete(c.present, &field)
		}
		c.requirePresence(&field)
		// Required fields have the default "" or 0 only because Go fields always have a value.
		if value != nil && (isDefaulted(own) || !slices.Contains(s.Required, name)) {
			field.Default = value
			if isDuration && string(value.Raw) != `""` {
				// Generators write the zero value of Go.
				field.Default = &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "%q", metav1.Duration{}.ToUnstructured())}
			}
		}
		s.Properties[name] = field
	}
	return nil
}

func isDefaulted(tags []string) bool {
	return slices.ContainsFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "+default=") })
}

// hasSize reports whether an empty value of a field counts as missing.
func hasSize(field *props) bool {
	return field.Type == "array" || field.Type == "object" && field.AdditionalProperties != nil || field.Type == "string" && field.Format == ""
}

// addPresence requires a value of a field, or of a field within it.
func (c *converter) addPresence(of *props, name, at string, within presence) {
	escaped, ok := cel.Escape(name)
	if !ok {
		c.finding(fmt.Sprintf("%s%s: no rule can say that it must be set", c.where, at))
		return
	}
	within.path = "." + name + within.path
	within.names = append([]string{escaped}, within.names...)
	c.present[of] = append(c.present[of], within)
}

// requirePresence adds rules that the required fields of a struct have values.
func (c *converter) requirePresence(of *props) {
	var rules []apiextensionsv1.ValidationRule
	for _, present := range c.present[of] {
		value, terms := "self", []string(nil)
		for _, name := range present.names {
			value += "." + name
			terms = append(terms, "has("+value+")")
		}
		if present.sized {
			terms = append(terms, value+".size() > 0")
		}
		reason := apiextensionsv1.FieldValueRequired
		rules = append(rules, apiextensionsv1.ValidationRule{Rule: strings.Join(terms, " && "), Message: "must be set", Reason: &reason, FieldPath: present.path})
	}
	of.XValidations = append(rules, of.XValidations...)
}

// notEmpty requires a field to have at least one element, as the tag k8s:required does.
func notEmpty(field *props) {
	one := int64(1)
	switch {
	case field.Type == "string" && field.Format == "" && len(field.Enum) == 0 && field.MinLength == nil:
		field.MinLength = &one
	case field.Type == "array" && field.MinItems == nil:
		field.MinItems = &one
	case field.Type == "object" && field.AdditionalProperties != nil && field.MinProperties == nil:
		field.MinProperties = &one
	}
}

// reference returns the name of the definition that a schema refers to, or "".
func reference(s *props) string {
	if len(s.AllOf) == 1 {
		s = &s.AllOf[0]
	}
	if s.Ref == nil {
		return ""
	}
	name, _ := strings.CutPrefix(*s.Ref, "#/definitions/")
	return name
}

// formats returns the CEL rules for formats of strings. The maximum length of each format bounds the
// cost of its rule.
func formats() map[string]struct {
	function string
	length   int64
} {
	return map[string]struct {
		function string
		length   int64
	}{
		"k8s-long-name":   {"dns1123Subdomain", 253},
		"k8s-short-name":  {"dns1123Label", 63},
		"k8s-label-key":   {"qualifiedName", 317},
		"k8s-label-value": {"labelValue", 63},
		"k8s-uuid":        {"uuid", 36},
	}
}

// apply adds the rules of a field's or a type's tags.
func (c *converter) apply(field *props, tags []string, path string) {
	for _, tag := range tags {
		tag, found := strings.CutPrefix(tag, "+k8s:")
		if !found {
			continue
		}
		if !c.applyOne(field, tag, path) {
			c.finding(fmt.Sprintf("%s%s: the tag +k8s:%s is not exported", c.where, path, tag))
		}
	}
}

// applyOne returns false if a schema can't express a tag.
func (c *converter) applyOne(field *props, tag, path string) bool {
	name, value, _ := strings.Cut(tag, "=")
	number, err := strconv.ParseInt(value, 10, 64)
	limits := map[string]**int64{
		"minLength": &field.MinLength, "maxLength": &field.MaxLength, "minItems": &field.MinItems, "maxItems": &field.MaxItems,
		"minProperties": &field.MinProperties, "maxProperties": &field.MaxProperties,
	}
	switch limit, isLimit := limits[name]; {
	case isLimit && err == nil:
		*limit = stricter(name, *limit, number)
	case name == "minimum" && err == nil && isBound(field, number):
		field.Minimum = stricter(name, field.Minimum, float64(number))
	case name == "maximum" && err == nil && isBound(field, number):
		field.Maximum = stricter(name, field.Maximum, float64(number))
	case name == "format":
		return applyFormat(field, value)
	case name == "immutable":
		field.XValidations = append(field.XValidations, apiextensionsv1.ValidationRule{Rule: "self == oldSelf", Message: "field is immutable"})
	case name == "eachVal" && field.Items != nil:
		c.apply(field.Items.Schema, []string{value}, path+"[]")
	case name == "eachVal" && field.AdditionalProperties != nil:
		c.apply(field.AdditionalProperties.Schema, []string{value}, path+"{}")
	default:
		return slices.Contains(inOpenAPI(), name)
	}
	return true
}

// inOpenAPI are tags that have no effect here, or one that OpenAPI definitions already have.
func inOpenAPI() []string {
	return []string{"optional", "required", "opaqueType", "listType", "listMapKey", "supportsSubresource", "enum", "deepcopy-gen:interfaces"}
}

// Exports reports whether definitions can have the effect of a tag, such as "maxLength".
func Exports(tag string) bool {
	return slices.Contains(append(inOpenAPI(), "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minimum", "maximum", "format", "immutable", "eachVal"), tag)
}

// isBound reports whether kube-apiserver can compare integers with a bound. Otherwise it refuses every
// integer.
func isBound(field *props, bound int64) bool {
	number := float64(bound)
	return field.Type == "integer" && int64(number) == bound && validate.IsValueValidAgainstRange(number, field.Type, field.Format, "", "") == nil
}

// stricter returns the stricter limit of a field and of its type.
func stricter[T cmp.Ordered](name string, of *T, limit T) *T {
	switch {
	case of == nil:
	case strings.HasPrefix(name, "min"):
		limit = max(*of, limit)
	default:
		limit = min(*of, limit)
	}
	return &limit
}

func applyFormat(field *props, format string) bool {
	rule, known := formats()[format]
	if !known || field.Type != "string" {
		return false
	}
	if field.MaxLength == nil {
		field.MaxLength = &rule.length
	}
	call := fmt.Sprintf("format.%s().validate(self)", rule.function)
	field.XValidations = append(field.XValidations, apiextensionsv1.ValidationRule{Rule: "!" + call + ".hasValue()", MessageExpression: call + ".value()[0]"})
	return true
}

// boundCondition adds the limits of conditions that hold everywhere in Kubernetes.
func boundCondition(condition *props) {
	bound := func(name string, change func(*props)) {
		property := condition.Properties[name]
		property.Default = nil
		change(&property)
		condition.Properties[name] = property
	}
	length := func(n int64) *int64 { return &n }
	bound("type", func(p *props) {
		p.MaxLength = length(316)
		p.Pattern = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	})
	bound("status", func(p *props) {
		p.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"True"`)}, {Raw: []byte(`"False"`)}, {Raw: []byte(`"Unknown"`)}}
	})
	bound("observedGeneration", func(p *props) { p.Minimum = new(float64) })
	bound("reason", func(p *props) {
		p.MinLength, p.MaxLength = length(1), length(1024)
		p.Pattern = `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`
	})
	bound("message", func(p *props) { p.MaxLength = length(32768) })
}
