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

// Package docs checks the documentation. Links resolve, each page is linked and not too long, figures
// are those of the table of measurements, and each runbook begins with commands.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// maxWords is the maximum number of words of a page outside of fenced code.
	maxWords = 2500
	// figures is the table of measurements. A link to it has the name of the figure as its title.
	figures = "docs/benchmarks/README.md"
)

var (
	fences   = regexp.MustCompile("(?ms)^ *```.*?^ *```$") //nolint:gocritic // badRegexp: with (?m), a ^ may be anywhere.
	headings = regexp.MustCompile(`(?m)^#+ (.+)$`)
	links    = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)(?: "([^"]*)")?\)`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	// wordsFirst finds sections that do not begin with indented code.
	wordsFirst = regexp.MustCompile(`(?m)^### (.+)\n+\S`)
	// reader finds for whom a page is.
	reader     = regexp.MustCompile(`\A# .+\n+For (all readers|authors|contributors|maintainers|operators|owners|teams|users)\b`)
	figureRows = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|`)
)

// page is a Markdown file without its fenced code.
type page struct {
	text    string
	anchors map[string]bool
}

// read returns all pages by their paths.
func read(root fs.FS) (map[string]page, error) {
	pages := map[string]page{}
	return pages, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && name != "docs" && !strings.HasPrefix(name, "docs/"):
			return fs.SkipDir
		case path.Ext(name) != ".md":
			return nil
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		p := page{fences.ReplaceAllString(string(content), ""), map[string]bool{}}
		for _, heading := range headings.FindAllStringSubmatch(p.text, -1) {
			title := links.ReplaceAllString(strings.ToLower(heading[1]), "$1")
			p.anchors[strings.ReplaceAll(noAnchor.ReplaceAllString(title, ""), " ", "-")] = true
		}
		pages[name] = p
		return nil
	})
}

// check returns the problems of the documentation.
func check(root fs.FS) (findings []string, err error) {
	pages, err := read(root)
	if err != nil {
		return nil, err
	}
	values := measured(pages)
	linked := map[string]bool{"README.md": true, "CONTRIBUTING.md": true, "CHANGELOG.md": true, "SECURITY.md": true, "MAINTAINERS.md": true}
	for name, p := range pages {
		complain := func(format string, args ...any) {
			findings = append(findings, name+": "+fmt.Sprintf(format, args...))
		}
		generated := strings.HasPrefix(name, "docs/reference/")
		if words := len(strings.Fields(p.text)); words > maxWords && !generated {
			complain("%d words, at most %d are read: split the page, or move notes to docs/lab", words, maxWords)
		}
		if slices.Contains([]string{"docs", "docs/crd-apiserver", "docs/operations", "docs/reference"}, path.Dir(name)) && name != "docs/README.md" && !reader.MatchString(p.text) {
			complain("its first words do not name its readers")
		}
		if strings.HasPrefix(name, "docs/operations/runbooks") {
			for _, runbook := range wordsFirst.FindAllStringSubmatch(p.text, -1) {
				complain("the runbook %s does not begin with commands", runbook[1])
			}
		}
		for _, link := range links.FindAllStringSubmatch(p.text, -1) {
			text, destination, title := link[1], link[2], link[3]
			file, anchor, _ := strings.Cut(destination, "#")
			if strings.Contains(file, ":") {
				continue
			}
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if target != name {
				linked[target] = true
			}
			if _, err := fs.Stat(root, target); err != nil {
				complain("%s does not exist", destination)
			} else if anchor != "" && !pages[target].anchors[anchor] {
				complain("%s has no heading %q", target, anchor)
			}
			if target == figures && title != "" && values[title] != text {
				complain("%q is said of %q, and %q in %s", text, title, values[title], figures)
			}
		}
	}
	for name := range pages {
		if !linked[name] {
			findings = append(findings, name+": no other page links to it")
		}
	}
	slices.Sort(findings)
	return findings, nil
}

// TestFirstScreen looks for the way to each product at the beginning of README.md.
func TestFirstScreen(t *testing.T) {
	content, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	screen := strings.Join(strings.SplitN(string(content), "\n", 25)[:24], "\n")
	for _, page := range []string{
		"docs/tutorial.md", "docs/crd-apiserver/quickstart.md", "test/controlplane/doc.go", "docs/apiservices.md", "docs/conformance.md", "docs/quickstart.md",
	} {
		if !strings.Contains(screen, "]("+page+")") {
			t.Errorf("the first lines of README.md do not lead to %s", page)
		}
	}
}

// measured returns the values of all figures.
func measured(pages map[string]page) map[string]string {
	values := map[string]string{}
	for _, row := range figureRows.FindAllStringSubmatch(pages[figures].text, -1) {
		values[row[1]] = row[2]
	}
	return values
}

// TestPages checks the documentation of this repository.
func TestPages(t *testing.T) {
	findings, err := check(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range findings {
		t.Error(finding)
	}
}
