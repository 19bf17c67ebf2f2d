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

package crd

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// tagsOfVersion has the tags in the source of a version.
type tagsOfVersion struct {
	// fields has the tags of fields, by type and name in JSON, and types has the tags of types. A field also has
	// the tags of its named types that are no structs.
	fields map[string]map[string][]string
	types  map[string][]string
	// foreign are embedded types whose tags are unknown or do not apply to the struct, by struct.
	foreign map[string][]string
	// constants are the values of string constants, such as types of conditions.
	constants []string
}

// readTags reads the Go files of a version.
func readTags(sources fs.FS, version string) (*tagsOfVersion, error) {
	read := &tagsOfVersion{fields: map[string]map[string][]string{}, types: map[string][]string{}, foreign: map[string][]string{}, constants: []string{"Ready", "Available"}}
	declared := map[string]ast.Expr{}
	names, err := fs.Glob(sources, path.Join(version, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasPrefix(path.Base(name), "zz_generated.") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		text, err := fs.ReadFile(sources, name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		read.file(file, declared)
	}
	for name := range declared {
		read.structure(name, declared)
	}
	if len(read.fields) == 0 {
		return nil, fmt.Errorf("the sources of version %s have no types, so that nothing is known of their validation", version)
	}
	return read, nil
}

// file collects the types of a file, their tags, and constants.
func (r *tagsOfVersion) file(file *ast.File, declared map[string]ast.Expr) {
	for _, declaration := range file.Decls {
		generic, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, one := range generic.Specs {
			switch one := one.(type) {
			case *ast.ValueSpec:
				for _, value := range one.Values {
					if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING && generic.Tok == token.CONST {
						if text, err := strconv.Unquote(literal.Value); err == nil {
							r.constants = append(r.constants, text)
						}
					}
				}
			case *ast.TypeSpec:
				r.types[one.Name.Name] = append(tagsIn(generic.Doc), tagsIn(one.Doc)...)
				declared[one.Name.Name] = one.Type
			}
		}
	}
}

// structure collects the tags of the fields of a struct, and of those that it embeds.
func (r *tagsOfVersion) structure(name string, declared map[string]ast.Expr) {
	structure, ok := declared[name].(*ast.StructType)
	if _, done := r.fields[name]; !ok || done {
		return
	}
	tags := map[string][]string{}
	r.fields[name] = tags
	for _, field := range structure.Fields.List {
		json := ""
		if field.Tag != nil {
			text, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				continue
			}
			json, _, _ = strings.Cut(reflect.StructTag(text).Get("json"), ",")
		}
		switch {
		case json == "-":
		case json != "":
			tags[json] = append(tagsIn(field.Doc), r.demanded(field.Type, declared, nil)...)
		case len(field.Names) == 0:
			r.embed(name, field.Type, declared)
		}
	}
}

// embed adds the fields of an embedded type to a struct. The struct's own fields take precedence.
func (r *tagsOfVersion) embed(into string, embedded ast.Expr, declared map[string]ast.Expr) {
	if pointer, ok := embedded.(*ast.StarExpr); ok {
		embedded = pointer.X
	}
	switch embedded := embedded.(type) {
	case *ast.SelectorExpr:
		if embedded.Sel.Name != "TypeMeta" {
			r.foreign[into] = append(r.foreign[into], embedded.Sel.Name)
		}
	case *ast.Ident:
		r.structure(embedded.Name, declared)
		for json, tags := range r.fields[embedded.Name] {
			if _, own := r.fields[into][json]; !own {
				r.fields[into][json] = tags
			}
		}
		r.foreign[into] = append(r.foreign[into], r.foreign[embedded.Name]...)
		if slices.ContainsFunc(r.types[embedded.Name], func(tag string) bool { return strings.HasPrefix(tag, "+k8s:") }) {
			r.foreign[into] = append(r.foreign[into], embedded.Name)
		}
	}
}

// demanded returns the tags of the named types in a type. It leaves out structs, which have definitions of
// their own.
func (r *tagsOfVersion) demanded(of ast.Expr, declared map[string]ast.Expr, within []string) (tags []string) {
	each := func(element ast.Expr) {
		for _, tag := range r.demanded(element, declared, within) {
			tags = append(tags, "+k8s:eachVal="+tag)
		}
	}
	switch of := of.(type) {
	case *ast.StarExpr:
		return r.demanded(of.X, declared, within)
	case *ast.ArrayType:
		each(of.Elt)
	case *ast.MapType:
		each(of.Value)
	case *ast.Ident:
		underlying, own := declared[of.Name]
		if _, isStruct := underlying.(*ast.StructType); !own || isStruct || slices.Contains(within, of.Name) {
			return nil
		}
		return append(slices.Clone(r.types[of.Name]), r.demanded(underlying, declared, append(within, of.Name))...)
	}
	return tags
}

// tagsIn returns the lines of a comment that begin with a plus sign.
func tagsIn(comment *ast.CommentGroup) (tags []string) {
	if comment == nil {
		return nil
	}
	for _, line := range comment.List {
		if tag := strings.TrimSpace(strings.TrimPrefix(line.Text, "//")); strings.HasPrefix(tag, "+") {
			tags = append(tags, tag)
		}
	}
	return tags
}
