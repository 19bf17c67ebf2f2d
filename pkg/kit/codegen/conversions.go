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
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	// conversionCall matches a call of a function that converts.
	conversionCall = regexp.MustCompile(`[^.\w](Convert_\w+)\(`)
	// leftOut matches conversion-gen's comment about a field without generated code.
	leftOut = regexp.MustCompile(`// WARNING: in\.(\w+) requires manual conversion`)
	// inconvertible matches its comment in generated code that does not compile.
	inconvertible = regexp.MustCompile(`make\(\[\][^\n]*\n[^\n]*\n\s*// FIXME: Provide conversion function to convert (\S+) to (\S+)\n`)
)

// checkConversions returns an error that names the conversions the author has to write.
// Without them, the generated code does not compile.
func (g *generation) checkConversions(apis []API) error {
	var missing []string
	for dir := range versions(apis...) {
		found, err := missingConversions(os.DirFS(g.Module), dir)
		if err != nil {
			return err
		}
		missing = append(missing, found...)
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("these conversions can't be generated:\n" + strings.Join(missing, "\n"))
}

// missingConversions returns the functions to write in the package of a version.
func missingConversions(module fs.FS, dir string) ([]string, error) {
	names, err := fs.Glob(module, path.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	functions, called := map[string]string{}, map[string]bool{}
	for _, name := range names {
		text, err := fs.ReadFile(module, name)
		if err != nil {
			return nil, err
		}
		for _, function := range strings.Split(string(text), "\nfunc ")[1:] {
			name, _, _ := strings.Cut(function, "(")
			functions[name] = function
		}
		for _, match := range conversionCall.FindAllStringSubmatch(string(text), -1) {
			called[match[1]] = true
		}
	}
	version := path.Base(dir)
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(called)) {
		if _, declared := functions[name]; declared {
			continue
		}
		var fields []string
		for _, match := range leftOut.FindAllStringSubmatch(functions["auto"+name], -1) {
			fields = append(fields, match[1])
		}
		missing = append(missing, fmt.Sprintf("  %s/conversion.go: write func %s, which calls auto%s and then converts %s", dir, signature(name, version), name, strings.Join(fields, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		for _, match := range inconvertible.FindAllStringSubmatch(functions[name], -1) {
			from, to := qualify(match[1], version), qualify(match[2], version)
			missing = append(missing, fmt.Sprintf("  %s/conversion.go: write func Convert_Slice_%s_To_Slice_%s(in *[]%s, out *[]%s, s conversion.Scope) error, and the reverse", dir, from, to, match[1], match[2]))
		}
	}
	return missing, nil
}

// signature returns the declaration of a function such as Convert_v1_Bread_To_bakery_Bread.
func signature(name, version string) string {
	from, to, _ := strings.Cut(strings.TrimPrefix(name, "Convert_"), "_To_")
	local := func(name string) string {
		return strings.TrimPrefix(strings.Replace(name, "_", ".", 1), version+".")
	}
	return fmt.Sprintf("%s(in *%s, out *%s, s conversion.Scope) error", name, local(from), local(to))
}

// qualify returns the type for a part of a conversion's name.
func qualify(name, version string) string {
	if strings.Contains(name, ".") {
		return strings.ReplaceAll(name, ".", "_")
	}
	if ast.IsExported(name) {
		return version + "_" + name
	}
	return name
}
