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
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// stamp is the file with the fingerprint of the last run.
	stamp = work + "/stamp"
	// clientStamp is the file with the fingerprint of the last run's clients.
	clientStamp = work + "/stamp-clients"
)

// clientDirs returns the directories of generated code that does not depend on fields.
func clientDirs() []string { return []string{"clientset", "informers", "listers"} }

// fingerprint returns a digest of the generated code and of all its inputs. The inputs are the generators, this
// program, the header and all files of the APIs.
func (g *generation) fingerprint(apis []API) (string, error) {
	return g.digest(apis, func(string, bool) (func([]byte) ([]byte, error), bool) { return whole, true })
}

// clientFingerprint returns a digest of clientset, listers and informers, and of all their inputs. It includes the
// fields of a type only if the type can be a kind.
func (g *generation) clientFingerprint(apis []API) (string, error) {
	clients, packages := []string{}, map[string]bool{}
	for _, api := range apis {
		for _, dir := range clientDirs() {
			clients = append(clients, g.file(path.Join(api.generated(), dir))+string(filepath.Separator))
		}
	}
	for dir := range versions(apis...) {
		packages[g.file(dir)] = true
	}
	return g.digest(apis, func(name string, generated bool) (func([]byte) ([]byte, error), bool) {
		if slices.ContainsFunc(clients, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
			return whole, true
		}
		ofVersion := packages[filepath.Dir(name)] && filepath.Ext(name) == ".go"
		return withoutFields, ofVersion && (!generated || filepath.Base(name) == tagsFile)
	})
}

func whole(text []byte) ([]byte, error) { return text, nil }

// withoutFields returns a Go file without the fields of structs that can't be kinds. Kinds embed their TypeMeta.
func withoutFields(text []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var fields []span
	for _, declaration := range file.Decls {
		types, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range types.Specs {
			of, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			fieldsOf, ok := of.Type.(*ast.StructType)
			embeds := func(field *ast.Field) bool { return len(field.Names) == 0 }
			if ok && !slices.ContainsFunc(fieldsOf.Fields.List, embeds) {
				fields = append(fields, span{files.Position(fieldsOf.Fields.Opening).Offset, files.Position(fieldsOf.Fields.Closing).Offset})
			}
		}
	}
	return cut(text, fields), nil
}

// digest returns a digest of the generators, this program, the header and some files of the APIs. Part selects files,
// and returns a function that reduces a file to the relevant text.
func (g *generation) digest(apis []API, part func(name string, generated bool) (func([]byte) ([]byte, error), bool)) (string, error) {
	digest := sha256.New()
	fmt.Fprintf(digest, "%s %s %s %t %t %+v\n", g.name, g.goVersion, g.version, g.NoProtobuf, g.NoClients, apis)
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	add := func(name, path string, of func([]byte) ([]byte, error)) error {
		data, err := os.ReadFile(path)
		if err == nil {
			data, err = of(data)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(digest, "%s %x\n", name, sha256.Sum256(data))
		return err
	}
	if err := add("program", program, whole); err != nil {
		return "", err
	}
	if g.Header != "" {
		if err := add("header", g.Header, whole); err != nil {
			return "", err
		}
	}
	err = g.eachFile(apis, func(path string, generated bool) error {
		if of, is := part(path, generated); is {
			return add(path, path, of)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x\n", digest.Sum(nil)), nil
}

// isLast reports whether a stamp has a fingerprint.
func (g *generation) isLast(stamp, fingerprint string) bool {
	last, err := os.ReadFile(g.file(stamp))
	return err == nil && string(last) == fingerprint
}

// remember keeps the fingerprints for the next run.
func (g *generation) remember(apis []API) error {
	all, err := g.fingerprint(apis)
	if err != nil {
		return err
	}
	clients, err := g.clientFingerprint(apis)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(g.file(stamp), []byte(all), 0o600), os.WriteFile(g.file(clientStamp), []byte(clients), 0o600))
}
