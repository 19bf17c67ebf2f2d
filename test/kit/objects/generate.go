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

// Package objects makes objects of structural schemas. Some are accepted by a schema, as far as
// it can be told without its rules in CEL. Others differ from them by one change. The same
// schema and seed lead to the same objects.
package objects

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"pgregory.net/rapid"
)

// Schema is a structural one.
type Schema = apiextensionsv1.JSONSchemaProps

// Generator makes objects of one schema.
type Generator struct {
	schema *Schema
	rand   *rand.Rand
	// optional is how many fields an object still gets that it need not have.
	optional int
}

// New returns a generator whose objects depend on the schema and the seed only.
func New(schema *Schema, seed uint64) *Generator {
	return &Generator{schema: schema, rand: rand.New(rand.NewPCG(seed, 0))}
}

// maxOptional bounds the objects: small ones break fewer rules that this package can't see.
const maxOptional = 16

// Valid returns the fields of a valid object, without its type and metadata. Numbers are of the
// type json.Number.
func (g *Generator) Valid() map[string]any {
	g.optional = g.rand.IntN(maxOptional)
	root := *g.schema
	root.Properties = maps.Clone(root.Properties)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root.Properties, name)
		root.Required = slices.DeleteFunc(slices.Clone(root.Required), func(required string) bool { return required == name })
	}
	if _, found := root.Properties["spec"]; found {
		root.Required = append(root.Required, "spec")
	}
	return g.object(&root)
}

func (g *Generator) value(schema *Schema) any {
	schema = g.chosen(schema)
	if schema.Nullable && g.rand.IntN(8) == 0 {
		return nil
	}
	if len(schema.Enum) > 0 {
		return decode(pick(g.rand, schema.Enum).Raw)
	}
	switch {
	case schema.XIntOrString:
		return g.intOrString(schema)
	case schema.Type == "object":
		return g.object(schema)
	case schema.Type == "array":
		return g.list(schema)
	case schema.Type == "string":
		return g.text(schema)
	case schema.Type == "integer":
		return g.integer(schema)
	case schema.Type == "number":
		return g.number(schema)
	case schema.Type == "boolean":
		return g.rand.IntN(2) == 0
	}
	return pick(g.rand, []any{"text", json.Number("1.5"), true, []any{json.Number("1")}, map[string]any{"any": "thing"}})
}

// chosen is a schema with what one alternative of each kind demands besides.
func (g *Generator) chosen(schema *Schema) *Schema {
	if schema.XIntOrString || len(schema.AllOf)+len(schema.AnyOf)+len(schema.OneOf) == 0 {
		return schema
	}
	made := schema.DeepCopy()
	made.AllOf, made.AnyOf, made.OneOf = nil, nil, nil
	demand := func(of *Schema) { merge(made, g.chosen(of)) }
	for i := range schema.AllOf {
		demand(&schema.AllOf[i])
	}
	if len(schema.AnyOf) > 0 {
		demand(&schema.AnyOf[g.rand.IntN(len(schema.AnyOf))])
	}
	if len(schema.OneOf) > 0 {
		one := &schema.OneOf[g.rand.IntN(len(schema.OneOf))]
		demand(one)
		// Properties that only other alternatives require make them true, too.
		for _, other := range schema.OneOf {
			for _, name := range other.Required {
				if !slices.Contains(made.Required, name) {
					delete(made.Properties, name)
				}
			}
		}
	}
	return made
}

// merge adds to a schema what another one demands.
func merge(into, of *Schema) {
	for _, name := range of.Required {
		if _, found := into.Properties[name]; found && !slices.Contains(into.Required, name) {
			into.Required = append(into.Required, name)
		}
	}
	for name, property := range of.Properties {
		if known, found := into.Properties[name]; found {
			merge(&known, &property)
			into.Properties[name] = known
		}
	}
	if len(of.Enum) > 0 {
		into.Enum = of.Enum
	}
	if of.Pattern != "" {
		into.Pattern = of.Pattern
	}
	if of.Format != "" {
		into.Format = of.Format
	}
	for _, bound := range []struct{ into, of **int64 }{
		{&into.MinLength, &of.MinLength}, {&into.MaxLength, &of.MaxLength}, {&into.MinItems, &of.MinItems}, {&into.MaxItems, &of.MaxItems},
	} {
		if *bound.of != nil {
			*bound.into = *bound.of
		}
	}
	if of.Minimum != nil {
		into.Minimum, into.ExclusiveMinimum = of.Minimum, of.ExclusiveMinimum
	}
	if of.Maximum != nil {
		into.Maximum, into.ExclusiveMaximum = of.Maximum, of.ExclusiveMaximum
	}
}

func (g *Generator) object(schema *Schema) map[string]any {
	schema = g.chosen(schema)
	made := map[string]any{}
	if schema.XEmbeddedResource {
		made["apiVersion"], made["kind"], made["metadata"] = "v1", "ConfigMap", map[string]any{"name": "embedded"}
	}
	names := slices.Sorted(maps.Keys(schema.Properties))
	g.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if made[name] != nil {
			continue
		}
		required := slices.Contains(schema.Required, name)
		if !required && (g.optional <= 0 || g.rand.IntN(2) == 0) {
			continue
		}
		if !required {
			g.optional--
		}
		property := schema.Properties[name]
		made[name] = g.value(&property)
	}
	if values := schema.AdditionalProperties; values != nil && values.Schema != nil {
		for i := range g.size(schema.MinProperties, schema.MaxProperties) {
			made[fmt.Sprintf("key-%d", i)] = g.value(values.Schema)
		}
	}
	if len(schema.Properties) == 0 && schema.AdditionalProperties == nil && preserves(schema) && !schema.XEmbeddedResource {
		made["any"] = map[string]any{"thing": json.Number("1")}
	}
	return made
}

func preserves(schema *Schema) bool {
	return schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields
}

// size is how many elements a list or map gets.
func (g *Generator) size(least, most *int64) int {
	size := int64(1 + g.rand.IntN(2))
	if least != nil {
		size = max(size, *least)
	}
	if most != nil {
		size = min(size, *most)
	}
	return int(size)
}

func (g *Generator) list(schema *Schema) []any {
	made := []any{}
	if schema.Items == nil || schema.Items.Schema == nil {
		return made
	}
	element := schema.Items.Schema
	if len(schema.XListMapKeys) > 0 {
		// Keys are there even if they have defaults.
		element = element.DeepCopy()
		for _, key := range schema.XListMapKeys {
			if !slices.Contains(element.Required, key) {
				element.Required = append(element.Required, key)
			}
		}
	}
	identities := map[string]bool{}
	for range g.size(schema.MinItems, schema.MaxItems) {
		value := g.value(element)
		if identity := identityOf(schema, value); identity != "" {
			if identities[identity] {
				continue
			}
			identities[identity] = true
		}
		made = append(made, value)
	}
	return made
}

// identityOf is what only one element of a list may have, if there is something.
func identityOf(schema *Schema, element any) string {
	switch {
	case schema.XListType == nil:
		return ""
	case *schema.XListType == "set":
		return encode(element)
	case *schema.XListType == "map":
		object, _ := element.(map[string]any)
		var identity strings.Builder
		for _, key := range schema.XListMapKeys {
			identity.WriteString(encode(object[key]))
		}
		return identity.String()
	}
	return ""
}

func (g *Generator) intOrString(schema *Schema) any {
	if schema.Pattern == "" {
		if len(schema.XValidations) > 0 {
			return pick(g.rand, quantities())
		}
		return pick(g.rand, []any{json.Number("8080"), "http", "50%"})
	}
	if g.rand.IntN(2) == 0 {
		if number := json.Number(fmt.Sprint(g.rand.IntN(100))); matches(schema.Pattern, string(number)) {
			return number
		}
	}
	if matches(schema.Pattern, "100m") && g.rand.IntN(4) > 0 {
		return pick(g.rand, quantities())
	}
	return g.text(schema)
}

func quantities() []any { return []any{json.Number("2"), "100m", "1Gi", "2", "1500M"} }

// formats has valid strings for the formats in definitions.
func formats() map[string][]string {
	return map[string][]string{
		"uri":       {"https://example.com/path"},
		"hostname":  {"host.example.com"},
		"ipv4":      {"192.0.2.1"},
		"ipv6":      {"2001:db8::1"},
		"cidr":      {"192.0.2.0/24", "2001:db8::/32"},
		"uuid":      {"123e4567-e89b-42d3-a456-426614174000"},
		"byte":      {"dGV4dA=="},
		"date":      {"2026-01-02"},
		"duration":  {"1h30m", "24h"},
		"date-time": {"2026-01-02T03:04:05Z"},
	}
}

func (g *Generator) text(schema *Schema) string {
	fits := func(text string) bool {
		length := int64(len([]rune(text)))
		return (schema.MinLength == nil || length >= *schema.MinLength) && (schema.MaxLength == nil || length <= *schema.MaxLength) &&
			(schema.Pattern == "" || matches(schema.Pattern, text))
	}
	var candidates []string
	candidates = append(candidates, formats()[schema.Format]...)
	g.rand.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	if schema.Pattern != "" && len(candidates) == 0 {
		// Names of things are accepted by most patterns, and by rules that can't be seen here.
		candidates = append(candidates, fmt.Sprintf("name-%d", g.rand.IntN(100)))
		for range 20 {
			candidates = append(candidates, matching(schema.Pattern, int(g.rand.Int32())))
		}
		if g.rand.IntN(2) == 0 {
			candidates = candidates[1:]
		}
	}
	for _, candidate := range candidates {
		if fits(candidate) {
			return candidate
		}
	}
	least, most := 1, 12
	if schema.MinLength != nil {
		least = int(*schema.MinLength)
		most = max(most, least)
	}
	if schema.MaxLength != nil {
		most = int(min(int64(most), *schema.MaxLength))
	}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	length := least
	if most > least {
		length += g.rand.IntN(most - least + 1)
	}
	text := make([]byte, length)
	for i := range text {
		text[i] = letters[g.rand.IntN(len(letters))]
	}
	return string(text)
}

// matching is a string that a pattern accepts, or "".
func matching(pattern string, seed int) (text string) {
	// rapid panics if it finds none.
	defer func() {
		if recover() != nil {
			text = ""
		}
	}()
	return rapid.StringMatching(pattern).Example(seed)
}

func matches(pattern, text string) bool {
	compiled, err := regexp.Compile(pattern)
	return err == nil && compiled.MatchString(text)
}

// bounds are the least and the greatest value of a number.
func bounds(schema *Schema) (least, most float64) {
	least, most = math.Inf(-1), math.Inf(1)
	if schema.Minimum != nil {
		least = *schema.Minimum
	}
	if schema.Maximum != nil {
		most = *schema.Maximum
	}
	return least, most
}

func (g *Generator) integer(schema *Schema) json.Number {
	least, most := bounds(schema)
	if math.IsInf(least, 0) {
		least = min(0, most-100)
	}
	if math.IsInf(most, 0) {
		most = least + 100
	}
	least, most = math.Ceil(least), math.Floor(most)
	if schema.ExclusiveMinimum && least == *schema.Minimum {
		least++
	}
	if schema.ExclusiveMaximum && most == *schema.Maximum {
		most--
	}
	number := least
	if most > least {
		number += math.Floor(g.rand.Float64() * (min(most-least, 1000) + 1))
	}
	if of := schema.MultipleOf; of != nil && *of != 0 {
		number = math.Ceil(number / *of) * *of
	}
	return json.Number(fmt.Sprintf("%.0f", number))
}

func (g *Generator) number(schema *Schema) json.Number {
	least, most := bounds(schema)
	if math.IsInf(least, 0) {
		least = min(0, most-100)
	}
	if math.IsInf(most, 0) {
		most = least + 100
	}
	// In quarters, which have an exact representation.
	return json.Number(fmt.Sprint(least + math.Floor(g.rand.Float64()*(most-least)*4)/4))
}

func pick[T any](from *rand.Rand, values []T) T { return values[from.IntN(len(values))] }

// decode reads JSON, with numbers as they are written.
func decode(raw []byte) (value any) {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// encode writes JSON. Values of this package can always be written.
func encode(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
