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

// Package upstream shows the faults of the libraries below this server that it works
// around. Each test passes while a library still has its fault, and fails as soon as it has
// been fixed. The message then names what can be deleted. Nothing here runs code of this
// module.
//
// The tables in docs/upstream have all faults. Their numbers are stable, and stand
// in the code at each workaround: "Upstream fault 7."
package upstream

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "../.."
	tables = "docs/upstream"
)

// fault is a row of a table.
type fault struct {
	number string
	// files are our files that work around the fault.
	files []string
	test  string
}

var (
	rowPattern    = regexp.MustCompile(`^\| (\d+) \|`)
	codePattern   = regexp.MustCompile("`([^`]+)`")
	markerPattern = regexp.MustCompile(`Upstream faults? ((?:\d+(?:, | and )?)+)`)
	numberPattern = regexp.MustCompile(`\d+`)
	testPattern   = regexp.MustCompile(`(?m)^func (Test\w+)`)
)

// faults reads the tables.
func faults(t *testing.T) []fault {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(module, tables, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	var rows []fault
	for line := range strings.Lines(all.String()) {
		match := rowPattern.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		row := fault{number: match[1]}
		for _, file := range codePattern.FindAllStringSubmatch(cells[len(cells)-2], -1) {
			row.files = append(row.files, file[1])
		}
		if test := codePattern.FindStringSubmatch(cells[len(cells)-1]); test != nil {
			row.test = test[1]
		}
		rows = append(rows, row)
	}
	return rows
}

// fixed fails a test, since its fault is gone, and says what to do.
func fixed(t *testing.T, format string, args ...any) {
	t.Helper()
	for _, row := range faults(t) {
		if row.test == t.Name() || row.test+"/"+row.number == t.Name() {
			t.Errorf("upstream has changed: "+format+". If that fixes fault %s of %s, delete what works around it in %s (search for \"Upstream fault %s\"), the row of the table, and this test or its case",
				append(args, row.number, tables, strings.Join(row.files, ", "), row.number)...)
			return
		}
	}
	t.Errorf("upstream has changed: "+format+". %s has no row for this test", append(args, tables)...)
}

// each runs a test of several faults, which are the rows with its name, by their numbers.
func each[T any](t *testing.T, cases map[int]T, run func(*testing.T, T)) {
	t.Helper()
	var rows []int
	for _, row := range faults(t) {
		if row.test == t.Name() {
			number, err := strconv.Atoi(row.number)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, number)
		}
	}
	slices.Sort(rows)
	if numbers := slices.Sorted(maps.Keys(cases)); !slices.Equal(rows, numbers) {
		t.Errorf("%s tests the faults %v, and has the rows %v in %s", t.Name(), numbers, rows, tables)
	}
	for number, c := range cases {
		t.Run(strconv.Itoa(number), func(t *testing.T) { run(t, c) })
	}
}

// TestTable compares the tables with the tests, and with the marks in the code.
func TestTable(t *testing.T) {
	rows := faults(t)
	if len(rows) == 0 {
		t.Fatalf("no rows were found in %s", tables)
	}
	marks, tests := marks(t), testNames(t)
	numbers := map[string][]string{}
	var tested []string
	for _, row := range rows {
		if _, twice := numbers[row.number]; twice {
			t.Errorf("%s has two rows %s", tables, row.number)
		}
		numbers[row.number] = row.files
		if len(row.files) == 0 {
			t.Errorf("row %s names no file", row.number)
		}
		for _, file := range row.files {
			if !slices.Contains(marks[file], row.number) {
				t.Errorf("row %s names %s, which does not exist or has no comment with \"Upstream fault %s\"", row.number, file, row.number)
			}
		}
		if !slices.Contains(tests, row.test) {
			t.Errorf("row %s names the test %s, which does not exist", row.number, row.test)
		}
		tested = append(tested, row.test)
	}
	for _, test := range tests {
		if !slices.Contains(tested, test) {
			t.Errorf("%s has no row in %s", test, tables)
		}
	}
	for file, marked := range marks {
		for _, number := range marked {
			if !slices.Contains(numbers[number], file) {
				t.Errorf("%s speaks of the upstream fault %s, but row %s of %s does not name this file", file, number, number, tables)
			}
		}
	}
}

// marks are the numbers of faults that the files of the module mention.
func marks(t *testing.T) map[string][]string {
	t.Helper()
	marks := map[string][]string{}
	for _, dir := range []string{"cmd", "pkg"} {
		err := filepath.WalkDir(filepath.Join(module, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			file, err := filepath.Rel(module, path)
			if err != nil {
				return err
			}
			for _, match := range markerPattern.FindAllSubmatch(content, -1) {
				marks[file] = append(marks[file], numberPattern.FindAllString(string(match[1]), -1)...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return marks
}

// testNames are the tests of this package that show a fault.
func testNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests []string
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range testPattern.FindAllStringSubmatch(string(content), -1) {
			if match[1] != "TestTable" {
				tests = append(tests, match[1])
			}
		}
	}
	return tests
}
