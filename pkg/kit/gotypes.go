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
	"go/ast"
	"regexp"
	"strings"
)

// comment writes a description above a declaration. No line of it is a tag.
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

// versionedFields are the fields of a struct as users see them.
func versionedFields(fields []*goField, first int) string {
	var b strings.Builder
	for i, field := range fields {
		b.WriteString("\n")
		comment(&b, "\t", field.doc)
		// Generators of documents leave these lines out.
		for _, todo := range field.todo {
			comment(&b, "\t", "TODO: no tag says "+todo)
		}
		for _, tag := range field.tags {
			b.WriteString("\t// " + tag + "\n")
		}
		pointer, omit, label := "", ",omitempty", "opt"
		if field.pointer {
			pointer = "*"
		} else if field.required {
			omit = ""
		}
		if field.goType.list || field.goType.dictionary {
			label = "rep"
		}
		fmt.Fprintf(&b, "\t%s %s%s `json:\"%s%s\" protobuf:\"%s,%d,%s,name=%s\"`\n", field.name, pointer, field.goType, field.json, omit, field.goType.wire, first+i, label, field.proto)
	}
	return b.String()
}

// internalFields are the same for the internal type.
func internalFields(fields []*goField) string {
	var b strings.Builder
	for _, field := range fields {
		comment(&b, "\t", field.doc)
		pointer := ""
		if field.pointer && !field.value {
			pointer = "*"
		}
		fmt.Fprintf(&b, "\t%s %s%s\n", field.name, pointer, field.goType)
	}
	return b.String()
}

// types are the declarations of all structs and enumerations but the kind itself.
func (r *schemaReader) types(versioned bool) string {
	var b strings.Builder
	for _, made := range r.structs {
		b.WriteString("\n")
		comment(&b, "", made.doc)
		if versioned && len(made.tags) > 0 {
			b.WriteString("//\n// " + strings.Join(made.tags, "\n// ") + "\n")
		}
		fmt.Fprintf(&b, "type %s struct {\n", made.name)
		if versioned {
			b.WriteString(strings.TrimPrefix(versionedFields(made.fields, 1), "\n"))
		} else {
			b.WriteString(internalFields(made.fields))
		}
		b.WriteString("}\n")
	}
	for _, made := range r.named {
		b.WriteString("\n")
		if made.element != nil {
			tags := ""
			if versioned {
				tags = "//\n// +protobuf.nullable=true\n// +protobuf.options.(gogoproto.goproto_stringer)=false\n"
			}
			fmt.Fprintf(&b, "// %s is a part of a list or a map.\n%stype %[1]s %[3]s\n", made.text, tags, made.element)
			continue
		}
		tags := ""
		if versioned {
			// Validation is generated only for tags that are next to the type.
			tags = "//\n// +enum\n// +k8s:enum\n"
		}
		fmt.Fprintf(&b, "// %s is one of a few values.\n%stype %[1]s string\n", made.text, tags)
		if versioned {
			b.WriteString("\nconst (\n")
			for _, constant := range made.enum {
				fmt.Fprintf(&b, "\t%s %s = %q\n", constant.name, made.text, constant.value)
			}
			b.WriteString(")\n")
		}
	}
	return b.String()
}

// imports are those that types need, besides metav1.
func imports(text string) string {
	var b strings.Builder
	for _, imported := range []struct{ name, path string }{
		{"resource", "k8s.io/apimachinery/pkg/api/resource"},
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

// fuzzed are functions that fill in what gets a default if it is left out, so that it is what
// it was after a round trip.
func (r *schemaReader) fuzzed() (functions, names []string) {
	for _, made := range r.structs {
		var b strings.Builder
		for _, field := range made.fields {
			t := field.goType
			switch {
			case !field.defaulted || field.value:
			case t.list:
				fmt.Fprintf(&b, "\tif len(o.%s) == 0 {\n\t\to.%[1]s = make(%s, 1)\n\t\tc.Fill(&o.%[1]s[0])\n\t}\n", field.name, inPackage(t))
			case t.dictionary:
				fmt.Fprintf(&b, "\tif len(o.%s) == 0 {\n\t\tvar value %s\n\t\tc.Fill(&value)\n\t\to.%[1]s = %[3]s{\"key\": value}\n\t}\n", field.name, inPackage(t.element), inPackage(t))
			case field.pointer:
				fmt.Fprintf(&b, "\tif o.%s == nil {\n\t\to.%[1]s = new(%s)\n\t\tc.Fill(o.%[1]s)\n\t}\n", field.name, inPackage(t))
			}
		}
		if b.Len() > 0 {
			name := lowerFirst(made.name) + "Defaults"
			names = append(names, name)
			functions = append(functions, fmt.Sprintf("func %s(o *GROUP.%s, c randfill.Continue) {\n\tc.FillNoCustom(o)\n%s}\n", name, made.name, &b))
		}
	}
	return functions, names
}

// inPackage is a type as another package writes it.
func inPackage(t *goType) string {
	text := t.String()
	prefix := text[:strings.LastIndexAny(text, "]*")+1]
	if name := strings.TrimPrefix(text, prefix); ast.IsExported(name) && !strings.Contains(name, ".") {
		return prefix + "GROUP." + name
	}
	return text
}
