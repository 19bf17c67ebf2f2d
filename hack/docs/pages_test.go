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
// match the measurements, and each runbook begins with commands.
package docs

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
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

// TestFigures compares the figures with the results in their sources.
func TestFigures(t *testing.T) {
	root := os.DirFS("../..")
	content, err := fs.ReadFile(root, "docs/benchmarks/2026-11-23.json")
	if err != nil {
		t.Fatal(err)
	}
	var results struct {
		Growth []struct {
			Objects    int
			Ready, CPU float64
			Resident   int64
		}
		Relief  []struct{ Objects, KubeAPIServer, CRDAPIServer, Database int64 }
		Samples []sample
	}
	if err := json.Unmarshal(content, &results); err != nil {
		t.Fatal(err)
	}
	pages, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	megabytes := func(bytes int64) string { return fmt.Sprintf("%d MB", bytes/1e6) }
	want := map[string]string{}
	for _, growth := range results.Growth {
		count := strconv.Itoa(growth.Objects)
		for i := len(count) - 3; i > 0; i -= 3 {
			count = count[:i] + "," + count[i:]
		}
		with := "with " + count + " pizzas"
		if growth.Objects == 0 {
			with = "without pizzas"
		}
		want["ready "+with] = fmt.Sprintf("%.2f s", growth.Ready)
		want["memory "+with] = megabytes(growth.Resident)
		if row := fmt.Sprintf("\n| %s | %.2f s | %.2f s |", count, growth.Ready, growth.CPU); !strings.Contains(pages["docs/lab/performance.md"].text, row) {
			t.Errorf("docs/lab/performance.md has no row %q", row)
		}
	}
	most := results.Growth[len(results.Growth)-1]
	want["memory of each pizza after a start"] = fmt.Sprintf("%.0f kB", float64(most.Resident-results.Growth[0].Resident)/float64(most.Objects)/1e3)
	for i, with := range []string{"without custom resources", "with 50,000 custom resources"} {
		want["kube-apiserver "+with] = megabytes(results.Relief[i].KubeAPIServer)
		want["crd-apiserver "+with] = megabytes(results.Relief[i].CRDAPIServer)
	}
	want["database of 50,000 custom resources"] = fmt.Sprintf("%.0f MB", float64(results.Relief[1].Database-results.Relief[0].Database)/1e6)
	part := func(contender, verb string, clients int) float64 {
		return kubeAPIServer(results.Samples, contender, verb, clients) / kubeAPIServer(results.Samples, "crd", verb, clients)
	}
	for contender, server := range map[string]string{"crd-apiserver": "crd-apiserver", "pizzas": "types in Go"} {
		writes := []float64{part(contender, "create", 16), part(contender, "update", 16), part(contender, "delete", 16)}
		want["kube-apiserver's part of a write, "+server] = fmt.Sprintf("%.2f to %.2f", slices.Min(writes), slices.Max(writes))
	}
	want["kube-apiserver's part of a list in JSON, crd-apiserver"] = fmt.Sprintf("%.2f", part("crd-apiserver", "list", 4))
	got := measured(pages)
	for figure := range got {
		if _, known := want[figure]; !known {
			delete(got, figure)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s differs from the results (-want +got):\n%s", figures, diff)
	}
}

// sample is a measurement of one verb in one round.
type sample struct {
	Contender, Verb, Identity string
	Clients                   int
	KubeAPIServer             float64
}

// kubeAPIServer returns the median of kube-apiserver's processor time for requests of an ordinary user, whose
// rounds are odd in number.
func kubeAPIServer(samples []sample, contender, verb string, clients int) float64 {
	var times []float64
	for _, s := range samples {
		if s.Contender == contender && s.Verb == verb && s.Identity == "user" && s.Clients == clients {
			times = append(times, s.KubeAPIServer)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
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

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		readme, runbooks, first string
		want                    []string
	}{
		"an anchor":           {readme: "# A `b`, c\n[here](#a-b-c), [there](docs/a.md#two-words)"},
		"a missing heading":   {readme: "[there](docs/a.md#three)", want: []string{`README.md: docs/a.md has no heading "three"`}},
		"a missing file":      {readme: "[a](docs/a.md) [b](docs/b.md)", want: []string{"README.md: docs/b.md does not exist"}},
		"other sites":         {readme: "[a](docs/a.md) [b](https://example.com/docs/b.md)"},
		"code is not read":    {readme: "[a](docs/a.md)\n```\n[b](docs/b.md)\n```\n"},
		"a page without link": {readme: "", want: []string{"docs/a.md: no other page links to it"}},
		"a figure":            {readme: `[a](docs/a.md) [3 kB](docs/benchmarks/README.md "memory of a pizza")`},
		"another figure": {
			readme: `[a](docs/a.md) [4 kB](docs/benchmarks/README.md "memory of a pizza")`,
			want:   []string{`README.md: "4 kB" is said of "memory of a pizza", and "3 kB" in docs/benchmarks/README.md`},
		},
		"too many words": {
			readme: "[a](docs/a.md)" + strings.Repeat(" word", maxWords),
			want:   []string{"README.md: 2501 words, at most 2500 are read: split the page, or move notes to docs/lab"},
		},
		"a runbook": {readme: "[a](docs/a.md) [b](docs/operations/runbooks.md)", runbooks: "### AFails\n\n    kubectl get a\n\nWords.\n"},
		"a runbook without commands": {
			readme: "[a](docs/a.md) [b](docs/operations/runbooks.md)", runbooks: "### AFails\n\nWords.\n\n    kubectl get a\n\n### BFails\n\n    kubectl get b\n",
			want: []string{"docs/operations/runbooks.md: the runbook AFails does not begin with commands"},
		},
		"readers":            {readme: "[a](docs/a.md)", first: "For every reader", want: []string{"docs/a.md: its first words do not name its readers"}},
		"many words of code": {readme: "[a](docs/a.md)\n```\n" + strings.Repeat(" word", maxWords) + "\n```\n"},
	} {
		t.Run(name, func(t *testing.T) {
			first := test.first
			if first == "" {
				first = "For authors."
			}
			files := fstest.MapFS{
				"README.md":              {Data: []byte(test.readme)},
				"docs/a.md":              {Data: []byte("# Two words\n" + first + "\n[figures](benchmarks/README.md)")},
				figures:                  {Data: []byte("| figure | value |\n| --- | --- |\n| memory of a pizza | 3 kB |\n[a](../reference/long.md)")},
				"docs/reference/long.md": {Data: []byte("# Flags\n\nFor operators. " + strings.Repeat("word ", 2*maxWords))},
				"pkg/ignored.md":         {Data: []byte("[b](b.md)")},
			}
			if test.runbooks != "" {
				files["docs/operations/runbooks.md"] = &fstest.MapFile{Data: []byte("# Runbooks\n\nFor operators.\n\n" + test.runbooks)}
			}
			got, err := check(files)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
