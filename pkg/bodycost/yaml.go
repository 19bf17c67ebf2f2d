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
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// checkYAML refuses YAML that has more elements, or more text, than it may when its
// aliases are replaced by what they stand for. Its cost is that of its nodes, which are
// counted before any is made.
// Upstream fault 4.
func checkYAML(text []byte, limit int, maxBytes int64) error {
	// YAML in UTF-16 would be read differently from how it is checked.
	if !utf8.Valid(text) {
		return errors.New("YAML must be in UTF-8")
	}
	if yamlElements(text, limit) > limit {
		return fmt.Errorf("YAML must not have more than %d lines, commas, brackets and dashes outside of strings: send JSON", limit)
	}
	// Without an anchor and an alias, nothing is larger than it looks.
	if !bytes.ContainsRune(text, '&') || !bytes.ContainsRune(text, '*') {
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		// The library's decoder is of another version, and may read it.
		return fmt.Errorf("YAML with anchors can't be read: %w", err)
	}
	size := expansion{sizes: map[*yaml.Node]expandedSize{}, maxBytes: maxBytes}.of(&document)
	switch {
	case size.elements > int64(limit):
		return fmt.Errorf("YAML must not have more than %d elements when its aliases are replaced", limit)
	case size.bytes > maxBytes:
		return fmt.Errorf("YAML must not have more than %d bytes when its aliases are replaced", maxBytes)
	}
	return nil
}

// expandedSize is what a node of YAML becomes when its aliases are replaced.
type expandedSize struct {
	elements, bytes int64
}

// expansion adds up the sizes of nodes. It looks at each node once, however many aliases
// lead to it, and counts no further than is too much.
type expansion struct {
	sizes    map[*yaml.Node]expandedSize
	maxBytes int64
}

func (e expansion) of(node *yaml.Node) expandedSize {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if size, ok := e.sizes[node]; ok {
		return size
	}
	// An alias inside of what it stands for is an error to the decoder.
	e.sizes[node] = expandedSize{}
	size := expandedSize{elements: 1, bytes: int64(len(node.Value)) + 1}
	for _, child := range node.Content {
		part := e.of(child)
		size.elements = min(size.elements+part.elements, e.maxBytes+1)
		size.bytes = min(size.bytes+part.bytes, e.maxBytes+1)
	}
	e.sizes[node] = size
	return size
}

// yamlElements returns how many elements the text has at most, or something above the
// limit, without parsing it: its lines, commas, brackets, and dashes but for the first of
// a line. Lines that are certainly part of a string do not count. What is certain is read
// as block style of simple keys; after the first line that is anything else, all count.
func yamlElements(text []byte, limit int) (count int) {
	certain := !hasOtherBreaks(text)
	var open *yamlString
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if certain && open != nil {
			var inside bool
			if inside, certain = open.accepts(line); inside {
				if open.ended {
					open = nil
				}
				continue
			}
			open = nil
		}
		if count += yamlLineElements(line); count > limit {
			return count
		}
		if certain {
			open, certain = readYAMLLine(line)
		}
	}
	return count
}

// hasOtherBreaks tells whether YAML may have more lines than it has line feeds.
func hasOtherBreaks(text []byte) bool {
	return bytes.Count(text, []byte("\r")) != bytes.Count(text, []byte("\r\n")) || bytes.ContainsAny(text, otherYAMLBreaks)
}

const otherYAMLBreaks = "\u0085\u2028\u2029"

func yamlLineElements(line []byte) int {
	count := 1
	for i, c := range bytes.TrimLeft(line, " ") {
		switch c {
		case ',', '[', '{', '\r', '?':
			count++
		case '-':
			count += min(i, 1)
		}
	}
	for _, other := range otherYAMLBreaks {
		count += bytes.Count(line, []byte(string(other)))
	}
	return count
}

// yamlString is a string of several lines in YAML.
type yamlString struct {
	// parent is the column of what the string belongs to. All its lines are indented more.
	parent int
	// indentation is that of the first line that is not empty, in block style.
	indentation int
	// quote is what ends it, or 0 in block style.
	quote byte
	// ended is set by its last line in quotes.
	ended bool
}

// accepts tells whether the line is part of the string, and whether that is certain.
func (s *yamlString) accepts(line []byte) (inside, certain bool) {
	indentation := len(line) - len(bytes.TrimLeft(line, " "))
	empty := indentation == len(line)
	switch {
	case empty:
		return true, true
	case s.quote != 0:
		rest, ended := cutQuoted(line, s.quote)
		s.ended = ended
		certain = indentation > s.parent && (!ended || isYAMLSpace(rest))
		return certain, certain
	case s.indentation == 0:
		s.indentation = max(indentation, s.parent+1)
	}
	return indentation >= s.indentation, true
}

// readYAMLLine reads a line of block style that is not part of a string. It returns the
// string that the line begins and that goes on, and whether the line is certainly of
// that kind.
func readYAMLLine(line []byte) (open *yamlString, certain bool) {
	rest := bytes.TrimLeft(line, " ")
	parent := -1
	column := func() int { return len(line) - len(rest) }
	for bytes.HasPrefix(rest, []byte("- ")) {
		parent = column()
		rest = bytes.TrimLeft(rest[1:], " ")
	}
	if key := simpleKey(rest); key > 0 {
		parent = column()
		rest = bytes.TrimLeft(rest[key:], " ")
	}
	switch text := string(bytes.TrimRight(rest, " ")); {
	case text == "", text[0] == '#', text == "-", text == "{}", text == "[]":
		return nil, true
	case parent >= 0 && (text[0] == '"' || text[0] == '\''):
		after, ended := cutQuoted(rest[1:], text[0])
		if !ended {
			return &yamlString{parent: parent, quote: text[0]}, true
		}
		return nil, isYAMLSpace(after)
	case parent >= 0 && (text == "|" || text == "|-" || text == "|+" || text == ">" || text == ">-" || text == ">+"):
		return &yamlString{parent: parent}, true
	default:
		return nil, isPlain(text)
	}
}

// simpleKey is how long a key at the beginning of the text is, with its colon; 0 if
// there is none of simple characters.
func simpleKey(text []byte) int {
	for i, c := range text {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '/', c == '-':
		case c == ':' && i > 0 && (i+1 == len(text) || text[i+1] == ' '):
			return i + 1
		default:
			return 0
		}
	}
	return 0
}

// isPlain tells whether the text is certainly a string without quotes, on one line.
func isPlain(text string) bool {
	return !strings.ContainsRune("&*!|>'\"%@`{}[],?-:#\t.", rune(text[0])) &&
		!strings.Contains(text, ": ") && !strings.Contains(text, ":\t") && !strings.HasSuffix(text, ":")
}

// cutQuoted returns what follows the quote that ends a string.
func cutQuoted(text []byte, quote byte) (rest []byte, ended bool) {
	for i := 0; i < len(text); i++ {
		switch {
		case quote == '"' && text[i] == '\\':
			i++
		case text[i] != quote:
		case quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++
		default:
			return text[i+1:], true
		}
	}
	return nil, false
}

// isYAMLSpace tells whether the text, which follows a value, has nothing but a comment.
func isYAMLSpace(text []byte) bool {
	trimmed := bytes.TrimLeft(text, " ")
	return len(trimmed) == 0 || len(trimmed) < len(text) && trimmed[0] == '#'
}
