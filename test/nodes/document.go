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

package nodes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Document is some pages of the documentation. Tests execute its commands, and so notice if one no
// longer works.
type Document struct {
	path string
	// sections are its texts by their headings.
	sections map[string]string
}

var (
	headings = regexp.MustCompile(`(?m)^#{2,3} (.+)$`)
	fences   = regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$") //nolint:gocritic // badRegexp: with (?m), a ^ may be anywhere.
	indent   = regexp.MustCompile(`(?m)^ +`)
)

// Read returns the pages that a pattern matches. Their sections must have different headings.
func Read(t testing.TB, pattern string) *Document {
	t.Helper()
	pages, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, pages, pattern)
	d := &Document{path: pattern, sections: map[string]string{}}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		found := headings.FindAllSubmatchIndex(content, -1)
		for i, heading := range found {
			end := len(content)
			if i+1 < len(found) {
				end = found[i+1][0]
			}
			title := string(content[heading[2]:heading[3]])
			require.NotContains(t, d.sections, title, page)
			d.sections[title] = string(content[heading[1]:end])
		}
	}
	return d
}

func (d *Document) section(t testing.TB, heading string) string {
	t.Helper()
	text, found := d.sections[heading]
	require.True(t, found, "%s has no section %q any more", d.path, heading)
	return text
}

// Commands returns the block of indented commands that begins with a text.
func (d *Document) Commands(t testing.TB, heading, first string) string {
	t.Helper()
	var block []string
	for line := range strings.SplitSeq(d.section(t, heading), "\n") {
		command, indented := strings.CutPrefix(line, "    ")
		switch {
		case len(block) == 0 && indented && strings.HasPrefix(strings.TrimSpace(command), first):
			block = append(block, command)
		case len(block) > 0 && (indented || line == ""):
			block = append(block, command)
		case len(block) > 0:
			return strings.Join(block, "\n")
		}
	}
	require.NotEmpty(t, block, "the section %q of %s has no block of commands any more that begins with %q", heading, d.path, first)
	return strings.Join(block, "\n")
}

// Script returns all indented commands of a section in order.
func (d *Document) Script(t testing.TB, heading string) string {
	t.Helper()
	var script strings.Builder
	for line := range strings.Lines(fences.ReplaceAllString(d.section(t, heading), "")) {
		if command, indented := strings.CutPrefix(line, "    "); indented {
			script.WriteString(command)
		}
	}
	require.NotEmpty(t, script.String(), "the section %q of %s has no commands any more", heading, d.path)
	return script.String()
}

// YAML returns the fenced block of YAML that contains a text.
func (d *Document) YAML(t testing.TB, heading, text string) string {
	t.Helper()
	for _, found := range fences.FindAllStringSubmatch(d.section(t, heading), -1) {
		if strings.Contains(found[1], text) {
			margin := indent.FindString(strings.SplitN(found[1], "\n", 2)[0])
			return regexp.MustCompile("(?m)^"+margin).ReplaceAllString(found[1], "")
		}
	}
	require.Fail(t, "nothing to follow", "the section %q of %s has no YAML any more with %q", heading, d.path, text)
	return ""
}

// With replaces parts of a text. The text has to contain each part.
func With(t testing.TB, text string, replacements ...string) string {
	t.Helper()
	for i := 0; i < len(replacements); i += 2 {
		require.Contains(t, text, replacements[i])
		text = strings.ReplaceAll(text, replacements[i], replacements[i+1])
	}
	return text
}
