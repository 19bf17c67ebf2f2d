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
	"strconv"
	"strings"
)

// tagsOfVersion are the tags in the source of a version.
type tagsOfVersion struct {
	// fields are those of fields, by type and name in JSON, and types those of types.
	fields map[string]map[string][]string
	types  map[string][]string
	// constants are the values of strings, such as types of conditions.
	constants []string
}

// readTags reads the Go files of a version.
func readTags(sources fs.FS, version string) (*tagsOfVersion, error) {
	read := &tagsOfVersion{fields: map[string]map[string][]string{}, types: map[string][]string{}, constants: []string{"Ready", "Available"}}
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
		read.file(file)
	}
	if len(read.fields) == 0 {
		return nil, fmt.Errorf("the sources of version %s have no types, so that nothing is known of their validation", version)
	}
	return read, nil
}

func (r *tagsOfVersion) file(file *ast.File) {
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
				if fields, ok := one.Type.(*ast.StructType); ok {
					r.structure(one.Name.Name, fields)
				}
			}
		}
	}
}

func (r *tagsOfVersion) structure(name string, structure *ast.StructType) {
	tags := map[string][]string{}
	for _, field := range structure.Fields.List {
		if field.Tag == nil {
			continue
		}
		text, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			continue
		}
		json, _, _ := strings.Cut(reflect.StructTag(text).Get("json"), ",")
		if json != "" && json != "-" {
			tags[json] = tagsIn(field.Doc)
		}
	}
	r.fields[name] = tags
}

// tagsIn are the lines of a comment that begin with a plus sign.
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
