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
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// checkYAML refuses YAML that has too many elements, or too much text, when its aliases are
// replaced. Its cost is that of its nodes, which are counted before any is made.
// Upstream fault 4.
func checkYAML(text []byte, limit int, maxBytes int64) error {
	// YAML in UTF-16 would be read differently from how it is checked.
	if !utf8.Valid(text) {
		return errors.New("YAML must be in UTF-8")
	}
	if yamlElements(text, limit) > limit {
		return fmt.Errorf("YAML must not have more than %d lines, commas, brackets and dashes: send JSON", limit)
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

// expandedSize is the size of a node of YAML when its aliases are replaced.
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
	// The decoder refuses an alias inside of its own anchor.
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

// yamlElements returns an upper bound of the elements of a text, or something above the
// limit, without parsing it. It counts lines, commas, brackets, and dashes but for the
// first of a line. Those in strings count, too, as only a parser can tell them apart.
func yamlElements(text []byte, limit int) (count int) {
	for line := range bytes.Lines(text) {
		if count += yamlLineElements(bytes.TrimRight(line, "\r\n")); count > limit {
			break
		}
	}
	return count
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
