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

package bodycost

import (
	"fmt"
	"strings"
	"testing"

	yamlv2 "go.yaml.in/yaml/v2"
	"go.yaml.in/yaml/v3"
)

// Aliases of a long text once made gigabytes of a body of 27 kB. Lines of strings count like
// all others.
func TestYAMLBounds(t *testing.T) {
	const (
		limit, maxBytes = 100, 10_000

		tooLong     = "YAML must not have more than 100 lines, commas, brackets and dashes: send JSON"
		tooExpanded = "YAML must not have more than 100 elements when its aliases are replaced"
		tooLarge    = "YAML must not have more than 10000 bytes when its aliases are replaced"
	)
	lines := func(n int, line string) string { return strings.Repeat(line+"\n", n) }
	long := strings.Repeat("x", 1000)
	laughs := "a0: &a0 [a,b,c]\n"
	for i := 1; i < 20; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [*a%d,*a%d]\n", i, i, i-1, i-1)
	}
	for name, test := range map[string]struct{ text, want string }{
		"few lines of a literal":          {"data:\n  a: |\n" + lines(90, "    a") + "  b: c\n", ""},
		"ordinary":                        {"apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\nspec: {a: [1, 2], b: \"c\"}\n", ""},
		"lines of a literal":              {"data:\n  a: |\n" + lines(1000, "    - a, [b]") + "  b: c\n", tooLong},
		"lines of a folded text":          {"- - >-\n" + lines(1000, "    a: b") + "- c\n", tooLong},
		"lines of a literal in a list":    {"- a: |+\n" + lines(1000, "   a"), tooLong},
		"empty lines of a literal":        {"a: |\n  b\n" + lines(1000, ""), tooLong},
		"lines in quotes":                 {"a: \"\n" + lines(1000, "  b, c") + "  \"\nb: 'c'\n", tooLong},
		"lines in single quotes":          {"a: '\n" + lines(1000, "  it''s") + "  '\nb: 'c'\n", tooLong},
		"carriage returns in a literal":   {"a: |\r\n" + strings.Repeat("  b\r\n", 1000), tooLong},
		"lines after a literal":           {"a: |\n  b\n" + lines(100, "- c"), tooLong},
		"lines after quotes":              {"a: \"b\n  c\"\n" + lines(100, "d:"), tooLong},
		"lines in quotes at the margin":   {"a: \"b\n" + lines(100, "c"), tooLong},
		"lines after quotes that go on":   {"a: \"b\n  c\", [\n" + lines(100, "  d"), tooLong},
		"lines after a quote in text":     {"a: b\n  \"\n" + lines(100, "c: d"), tooLong},
		"lines after a quote in flow":     {"{a: b,\nc: \"\n" + lines(100, "  d"), tooLong},
		"lines after a literal in flow":   {"[a,\nb: |\n" + lines(100, "  - d"), tooLong},
		"lines after a key with spaces":   {"a b: [\nc: |\n" + lines(100, "  d,"), tooLong},
		"lines less than those before":    {"a: |\n    b\n" + lines(100, "  c"), tooLong},
		"lines after an indented key":     {"a:\n  b: |\n" + lines(100, " c: d"), tooLong},
		"lines of a plain text":           {"a:\n" + lines(100, "  b"), tooLong},
		"other breaks in a literal":       {"a: |\n" + strings.Repeat("  b\u2028", 100), tooLong},
		"dashes side by side":             {strings.Repeat("- ", 102) + "a", tooLong},
		"question marks":                  {strings.Repeat("? ", 102) + "a", tooLong},
		"objects without commas":          {strings.Repeat("{a: ", 102), tooLong},
		"a few aliases":                   {"a: &a [b, c]\nd: [*a, *a]\n", ""},
		"aliases of many":                 {laughs, tooExpanded},
		"aliases of a long text":          {"a: &a " + long + "\nb: [" + strings.Repeat("*a, ", 10) + "*a]\n", tooLarge},
		"merged aliases of a long text":   {"a: &a {b: " + long + "}\nc: [" + strings.Repeat("{<<: *a}, ", 10) + "{}]\n", tooLarge},
		"an alias of itself":              {"a: &a [*a]\n", ""},
		"an anchor that can't be read":    {"a: &a [*b]\n", "YAML with anchors can't be read: yaml: unknown anchor 'b' referenced"},
		"an ampersand and a star in text": {"a: b&c * d\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			requireError(t, checkYAML([]byte(test.text), limit, maxBytes), test.want)
		})
	}
}

// FuzzYAMLElements looks for YAML with more nodes than are counted before any is made.
func FuzzYAMLElements(f *testing.F) {
	for _, seed := range []string{
		"a: |\n  b\n  c\nd: \"e\n  f\"\n- g\n", "- - - a\n- b: 'c\n    d'\n", "a b: [\nc: |\n  d,\n  e]\n", "? a\n: - b\n", "a: b\n  - \"c\nd: e\n", "{a: {b: [c, \"d\n  e\"]}}",
		"a:\n  b: >-\n     c\n   d: e\n", "--- |\na\n...\n- b", "key: &a [*a, *a]\n", "- |\n a: b\n- c\n", "a: |\n      \n  b: c\n  d: e\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 {
			return
		}
		counted := yamlElements(text, len(text)+1)
		var document yaml.Node
		if err := yaml.Unmarshal(text, &document); err == nil {
			if nodes := countNodes(&document); nodes > maxNodes(counted) {
				t.Errorf("%q has %d nodes, and %d elements were counted", text, nodes, counted)
			}
		}
		// The library's decoder is of the other version.
		var object any
		if err := yamlv2.Unmarshal(text, &object); err == nil && !strings.ContainsAny(string(text), "&*") {
			if values := countValues(object); values > maxNodes(counted) {
				t.Errorf("%q has %d values, and %d elements were counted", text, values, counted)
			}
		}
	})
}

// maxNodes is how many nodes so many elements make at most. Each makes a list, an object, a
// key and a value, and the document as many.
func maxNodes(elements int) int { return 4*elements + 4 }

func countNodes(node *yaml.Node) int {
	nodes := 1
	for _, child := range node.Content {
		nodes += countNodes(child)
	}
	return nodes
}

func countValues(value any) int {
	values := 1
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			values += countValues(element)
		}
	case map[any]any:
		for key, element := range value {
			values += countValues(key) + countValues(element)
		}
	}
	return values
}
