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
// The reference command writes the pages of docs/reference. They list the flags in the code,
// the chart's values with their comments and their schema, and the tags for the validation of types.
//
//	go run ./hack/reference DIRECTORY
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "Name the directory for the pages.")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes the pages. It reads the repository in the working directory.
func run(dir string) error {
	for name, write := range map[string]func(*page) error{
		"flags.md":        writeFlags,
		"chart-values.md": writeValues,
		"tags.md":         writeTags,
	} {
		p := &page{}
		if err := write(p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), p.Bytes(), 0o644); err != nil { //nolint:gosec // G306: it is documentation.
			return err
		}
	}
	return nil
}

// page is Markdown.
type page struct{ bytes.Buffer }

// paragraph writes text, which may be a heading, after an empty line.
func (p *page) paragraph(format string, args ...any) {
	if p.Len() > 0 {
		p.WriteByte('\n')
	}
	fmt.Fprintf(p, format+"\n", args...)
}

// table writes the head of a table.
func (p *page) table(columns ...string) {
	p.WriteByte('\n')
	p.row(columns...)
	p.row(strings.Split(strings.Repeat("---|", len(columns)-1)+"---", "|")...)
}

// row writes a row of a table.
func (p *page) row(cells ...string) {
	fmt.Fprintf(p, "| %s |\n", strings.Join(cells, " | "))
}

// cell makes text fit into a cell. Angle brackets would be HTML.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(strings.Join(strings.Fields(text), " "))
}

// code makes text fit into a cell as code.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}
