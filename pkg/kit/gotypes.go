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

package kit

import (
	"fmt"
	"regexp"
	"strings"
)

// comment writes a description above a declaration, without lines that could be tags.
func comment(b *strings.Builder, indent, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(strings.TrimSpace(line), "+") {
			line = "\\" + strings.TrimSpace(line)
		}
		b.WriteString(strings.TrimRight(indent+"// "+line, " ") + "\n")
	}
}

// fieldsOf returns the fields of a struct as users see them, or those of the internal
// type.
func fieldsOf(fields []*goField, versioned bool) string {
	var b strings.Builder
	for _, field := range fields {
		if versioned {
			b.WriteString("\n")
		}
		comment(&b, "\t", field.doc)
		pointer, tag := "", ""
		if field.pointer {
			pointer = "*"
		}
		if versioned {
			tag = fmt.Sprintf(" `json:\"%s%s\"`", field.json, field.omit)
			for _, tag := range field.tags {
				b.WriteString("\t// " + tag + "\n")
			}
		}
		fmt.Fprintf(&b, "\t%s %s%s%s\n", field.name, pointer, field.goType, tag)
	}
	return b.String()
}

// types returns the declarations of all structs but the kind itself.
func (r *schemaReader) types(versioned bool) string {
	var b strings.Builder
	for _, made := range r.structs {
		b.WriteString("\n")
		comment(&b, "", made.doc)
		if versioned && len(made.tags) > 0 {
			b.WriteString("//\n// " + strings.Join(made.tags, "\n// ") + "\n")
		}
		fmt.Fprintf(&b, "type %s struct {\n%s}\n", made.name, strings.TrimPrefix(fieldsOf(made.fields, versioned), "\n"))
	}
	return b.String()
}

// imports returns the imports that types need, besides metav1.
func imports(text string) string {
	var b strings.Builder
	for _, imported := range []struct{ name, path string }{
		{"metav1", "k8s.io/apimachinery/pkg/apis/meta/v1"},
		{"runtime", "k8s.io/apimachinery/pkg/runtime"},
		{"intstr", "k8s.io/apimachinery/pkg/util/intstr"},
	} {
		if imported.name == "metav1" {
			fmt.Fprintf(&b, "\tmetav1 %q\n", imported.path)
		} else if regexp.MustCompile(`(?m)^[^/]*\b` + imported.name + `\.[A-Z]`).MatchString(text) {
			fmt.Fprintf(&b, "\t%q\n", imported.path)
		}
	}
	return b.String()
}
