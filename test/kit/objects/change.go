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

package objects

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Change is one thing that is different in an object.
type Change struct {
	// Path is that of the field in the schema: .spec.list[].field, .spec.map{}.
	Path string
	// Name says what is different.
	Name string

	// at leads to the value in the object: names and indices.
	at    []any
	value any
	// missing is true if there is no value any more.
	missing bool
}

// Apply returns a changed copy of the object.
func (c Change) Apply(object map[string]any) map[string]any {
	changed, _ := c.apply(object, c.at).(map[string]any)
	return changed
}

// apply copies what is on the way to the change.
func (c Change) apply(value any, at []any) any {
	if len(at) == 0 {
		return c.value
	}
	last := len(at) == 1 && c.missing
	switch key := at[0].(type) {
	case string:
		object, _ := value.(map[string]any)
		copied := maps.Clone(object)
		if copied == nil {
			copied = map[string]any{}
		}
		if last {
			delete(copied, key)
		} else {
			copied[key] = c.apply(copied[key], at[1:])
		}
		return copied
	case int:
		list, _ := value.([]any)
		copied := slices.Clone(list)
		copied[key] = c.apply(copied[key], at[1:])
		return copied
	}
	return value
}

// Changes returns all changes of an object of the schema, always in the same order. Most make it invalid;
// some are at the edge of what is valid, or are another way to write the same value.
func Changes(schema *Schema, object map[string]any) []Change {
	c := &changes{}
	root := *schema
	root.Properties = maps.Clone(root.Properties)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root.Properties, name)
	}
	c.object(&root, object, "", nil)
	return c.made
}

type changes struct {
	made []Change
}

// longest is how long strings and lists become at most to be too long.
const longest = 100_000

func (c *changes) add(path, name string, at []any, value any) {
	c.made = append(c.made, Change{Path: path, Name: name, at: at, value: value})
}

func below(at []any, key any) []any { return append(slices.Clone(at), key) }

// value changes a value, and what is within it.
func (c *changes) value(schema *Schema, value any, path string, at []any) {
	if value == nil {
		return
	}
	c.add(path, "null", at, nil)
	if len(schema.Enum) > 0 && schema.Type == "string" {
		c.add(path, "unknown value", at, "unknown-value")
		c.add(path, "empty string", at, "")
	}
	switch {
	case schema.XIntOrString:
		c.intOrString(schema, path, at)
	case schema.Type == "object":
		c.add(path, "string for an object", at, "text")
		c.add(path, "list for an object", at, []any{})
		c.add(path, "empty object", at, map[string]any{})
		if object, ok := value.(map[string]any); ok {
			c.object(schema, object, path, at)
		}
	case schema.Type == "array":
		c.add(path, "object for a list", at, map[string]any{})
		c.add(path, "string for a list", at, "text")
		if list, ok := value.([]any); ok {
			c.list(schema, list, path, at)
		}
	case schema.Type == "string":
		c.text(schema, value, path, at)
	case schema.Type == "integer":
		c.integer(schema, value, path, at)
	case schema.Type == "number":
		c.number(schema, path, at)
	case schema.Type == "boolean":
		c.add(path, "string for a boolean", at, "true")
		c.add(path, "number for a boolean", at, json.Number("1"))
	default:
		c.add(path, "any string", at, "text")
		c.add(path, "any number", at, json.Number("1.5"))
		c.add(path, "any boolean", at, true)
		c.add(path, "any list", at, []any{"a"})
		c.add(path, "any object", at, map[string]any{"a": "b"})
	}
}

func (c *changes) object(schema *Schema, object map[string]any, path string, at []any) {
	unknown := "unknown field"
	if preserves(schema) {
		unknown = "field of any name"
	}
	values := schema.AdditionalProperties
	isMap := values != nil && values.Schema != nil
	if !isMap {
		c.add(path, unknown, below(at, "unknownField"), "text")
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		property, known := schema.Properties[name]
		if !known {
			if isMap {
				c.value(values.Schema, object[name], path+"{}", below(at, name))
			}
			continue
		}
		missing := "missing"
		if slices.Contains(schema.Required, name) {
			missing = "required, but missing"
		}
		c.made = append(c.made, Change{Path: path + "." + name, Name: missing, at: below(at, name), missing: true})
		c.value(&property, object[name], path+"."+name, below(at, name))
	}
	if schema.XEmbeddedResource {
		for _, name := range []string{"apiVersion", "kind"} {
			c.made = append(c.made, Change{Path: path, Name: name + " of an embedded object is missing", at: below(at, name), missing: true})
		}
	}
	if !isMap || len(object) == 0 {
		return
	}
	first := object[slices.Min(slices.Collect(maps.Keys(object)))]
	sized := func(size int64) map[string]any {
		made := map[string]any{}
		for i := range size {
			made[fmt.Sprintf("key-%d", i)] = first
		}
		return made
	}
	c.sizes(schema.MinProperties, schema.MaxProperties, path, at, func(size int64) any { return sized(size) })
	c.add(path, "key of any kind", below(at, "ä/b c"), first)
}

// sizes makes a list or a map as small and as large as may be, and one beyond that.
func (c *changes) sizes(least, most *int64, path string, at []any, sized func(size int64) any) {
	if least != nil && *least > 0 {
		c.add(path, "too few", at, sized(*least-1))
	}
	if most != nil && *most < longest/100 {
		c.add(path, "as many as may be", at, sized(*most))
		c.add(path, "too many", at, sized(*most+1))
	}
}

func (c *changes) list(schema *Schema, list []any, path string, at []any) {
	c.add(path, "empty list", at, []any{})
	if schema.Items == nil || schema.Items.Schema == nil {
		return
	}
	for i, element := range list {
		c.value(schema.Items.Schema, element, path+"[]", below(at, i))
	}
	if len(list) == 0 {
		return
	}
	if schema.XListType != nil && *schema.XListType != "atomic" {
		c.add(path, "duplicate element", at, append(slices.Clone(list), list[0]))
	}
	c.sizes(schema.MinItems, schema.MaxItems, path, at, func(size int64) any {
		made := []any{}
		for i := range size {
			made = append(made, distinct(schema, list, int(i)))
		}
		return made
	})
}

// distinct is an element that differs from the others, where it has to and strings tell them apart.
func distinct(schema *Schema, list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	element := list[0]
	if schema.XListType == nil || *schema.XListType == "atomic" {
		return element
	}
	other := func(value any) any {
		if text, ok := value.(string); ok {
			return fmt.Sprintf("%s%d", text, i)
		}
		return json.Number(fmt.Sprint(1000 + i))
	}
	object, ok := element.(map[string]any)
	if !ok {
		return other(element)
	}
	made := maps.Clone(object)
	for _, key := range schema.XListMapKeys {
		made[key] = other(made[key])
	}
	return made
}

func (c *changes) text(schema *Schema, value any, path string, at []any) {
	c.add(path, "number for a string", at, json.Number("1"))
	c.add(path, "boolean for a string", at, true)
	c.add(path, "object for a string", at, map[string]any{})
	if len(schema.Enum) > 0 {
		return
	}
	c.add(path, "empty string", at, "")
	text, _ := value.(string)
	if schema.MinLength != nil && *schema.MinLength > 1 && *schema.MinLength < longest {
		c.add(path, "too short", at, resized(text, int(*schema.MinLength-1), "a"))
	}
	if schema.MaxLength != nil && *schema.MaxLength < longest {
		c.add(path, "as long as may be", at, resized(text, int(*schema.MaxLength), "a"))
		c.add(path, "as long as may be, in umlauts", at, resized("", int(*schema.MaxLength), "ä"))
		c.add(path, "too long", at, resized(text, int(*schema.MaxLength+1), "a"))
	}
	if schema.Pattern != "" {
		for _, other := range []string{"!", "no match: \n", "A", "-", "1"} {
			if !matches(schema.Pattern, other) {
				c.add(path, "not of the pattern", at, other)
				break
			}
		}
	}
	for _, other := range otherFormats(schema.Format) {
		c.add(path, other.name, at, other.text)
	}
}

// resized is a text of a length.
func resized(text string, length int, filler string) string {
	runes := []rune(text)
	if len(runes) >= length {
		return string(runes[:length])
	}
	return text + strings.Repeat(filler, length-len(runes))
}

// named is a string, or a number, and what is special about it.
type named struct{ name, text string }

// otherFormats are strings of nearly a format, and unusual ones of a format.
func otherFormats(format string) []named {
	switch format {
	case "":
		return nil
	case "date-time":
		return []named{
			{"time with a fraction", "2026-01-02T03:04:05.123456Z"},
			{"time with nanoseconds", "2026-01-02T03:04:05.123456789Z"},
			{"time with an offset", "2026-01-02T03:04:05+02:00"},
			{"time with a lower-case t", "2026-01-02t03:04:05Z"},
			{"time with a lower-case z", "2026-01-02T03:04:05z"},
			{"time with a space", "2026-01-02 03:04:05Z"},
			{"time without a zone", "2026-01-02T03:04:05"},
			{"time without seconds", "2026-01-02T03:04Z"},
			{"time of a leap second", "2026-06-30T23:59:60Z"},
			{"time of a day without hours", "2026-01-02"},
			{"time in no month", "2026-13-02T03:04:05Z"},
		}
	case "byte":
		return []named{{"bytes without padding", "dGV4dA"}, {"bytes for URLs", "_-8="}, {"bytes with a line break", "dGV4\ndA=="}, {"no bytes", "!"}}
	case "duration":
		return []named{{"duration in days", "3d"}, {"duration of a fraction", "1.5h"}, {"no duration", "soon"}, {"negative duration", "-1h"}}
	}
	return []named{{"not of the format", "not of this format"}}
}

func (c *changes) integer(schema *Schema, value any, path string, at []any) {
	number, _ := value.(json.Number)
	for _, other := range []named{
		{"integer as 1.0", string(number) + ".0"},
		{"integer as 1e0", string(number) + "e0"},
		{"integer as 1e3", "1e3"},
		{"fraction for an integer", "1.5"},
		{"zero", "0"},
		{"minus one", "-1"},
		{"beyond 32 bits", "2147483648"},
		{"beyond 32 bits, negative", "-2147483649"},
		{"largest of 64 bits", "9223372036854775807"},
		{"beyond 64 bits", "9223372036854775808"},
	} {
		c.add(path, other.name, at, json.Number(other.text))
	}
	c.add(path, "string for an integer", at, string(number))
	c.add(path, "boolean for an integer", at, true)
	least, most := bounds(schema)
	const exact = 1 << 53
	if math.Abs(least) < exact {
		c.add(path, "at the minimum", at, whole(math.Ceil(least)))
		c.add(path, "below the minimum", at, whole(math.Ceil(least)-1))
	}
	if math.Abs(most) < exact {
		c.add(path, "at the maximum", at, whole(math.Floor(most)))
		c.add(path, "above the maximum", at, whole(math.Floor(most)+1))
	}
}

func whole(number float64) json.Number { return json.Number(fmt.Sprintf("%.0f", number)) }

func (c *changes) number(schema *Schema, path string, at []any) {
	c.add(path, "string for a number", at, "1.5")
	for _, other := range []named{
		{"integer for a number", "1"}, {"number as 1e3", "1e3"}, {"number as 1.0", "1.0"}, {"number of many digits", "0.1234567890123456789"},
		{"large integer for a number", "12345678901234567890"}, {"beyond 53 bits of a number", "9007199254740993"}, {"beyond 64 bits of a number", "1e400"},
	} {
		c.add(path, other.name, at, json.Number(other.text))
	}
	least, most := bounds(schema)
	if !math.IsInf(least, 0) {
		c.add(path, "at the minimum", at, json.Number(fmt.Sprint(least)))
		c.add(path, "below the minimum", at, json.Number(fmt.Sprint(least-0.25)))
	}
	if !math.IsInf(most, 0) {
		c.add(path, "at the maximum", at, json.Number(fmt.Sprint(most)))
		c.add(path, "above the maximum", at, json.Number(fmt.Sprint(most+0.25)))
	}
}

func (c *changes) intOrString(schema *Schema, path string, at []any) {
	c.add(path, "fraction for an integer or string", at, json.Number("1.5"))
	c.add(path, "boolean for an integer or string", at, true)
	c.add(path, "object for an integer or string", at, map[string]any{})
	c.add(path, "list for an integer or string", at, []any{})
	c.add(path, "integer or string beyond 32 bits", at, json.Number("3000000000"))
	c.add(path, "any string", at, "any string")
	c.add(path, "empty string", at, "")
	c.add(path, "negative", at, json.Number("-1"))
	if schema.Pattern != "" {
		c.add(path, "another way to write a quantity", at, "0.50")
		c.add(path, "a quantity with a sign", at, "+1")
		c.add(path, "a quantity with an exponent", at, "1e3")
	}
}
