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

package codegen

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// MessageMethods returns the methods of a protobuf message whose names a field might have.
func MessageMethods() []string {
	return []string{"Descriptor", "Marshal", "MarshalTo", "MarshalToSizedBuffer", "ProtoMessage", "Reset", "Size", "String", "Unmarshal"}
}

// checkSources refuses types of versions that generators would misunderstand, or refuse in terms of code that they have
// written themselves.
func (g *generation) checkSources(apis []API) error {
	var errs []error
	for dir, version := range versions(apis...) {
		files, err := filepath.Glob(filepath.Join(g.file(dir), "*.go"))
		if err != nil {
			return err
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				generic, ok := declaration.(*ast.GenDecl)
				if !ok || generic.Tok != token.TYPE {
					continue
				}
				for _, spec := range generic.Specs {
					errs = append(errs, checkType(dir, spec.(*ast.TypeSpec), generic.Doc, version.Protobuf && !g.NoProtobuf)...)
				}
			}
		}
	}
	return errors.Join(errs...)
}

func checkType(dir string, declared *ast.TypeSpec, doc *ast.CommentGroup, isMessage bool) (errs []error) {
	name := filepath.ToSlash(dir) + "." + declared.Name.Name
	if has(doc, "+k8s:enum") && !has(doc, "+enum") {
		errs = append(errs, fmt.Errorf("%s has the tag +k8s:enum: add +enum, or OpenAPI, kubectl explain and exported definitions don't know the values", name))
	}
	fields, ok := declared.Type.(*ast.StructType)
	if !ok || !isMessage {
		return errs
	}
	for _, field := range fields.Fields.List {
		for _, own := range field.Names {
			if slices.Contains(MessageMethods(), own.Name) {
				errs = append(errs, fmt.Errorf("%s.%s has the name of a method of protobuf messages: call it %[2]sValue. If its name in JSON has to stay, accept the violation of names_match in %[3]s", name, own.Name, exceptions))
			}
		}
	}
	return errs
}

// has reports whether a comment has a line with a tag.
func has(comment *ast.CommentGroup, tag string) bool {
	return comment != nil && slices.ContainsFunc(comment.List, func(line *ast.Comment) bool {
		return strings.TrimSpace(strings.TrimPrefix(line.Text, "//")) == tag
	})
}
