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
	"go/build"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	apiversion "k8s.io/apimachinery/pkg/version"
)

var (
	packageName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	kindName    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	versionName = regexp.MustCompile(`^v[1-9]\d*((alpha|beta)[1-9]\d*)?$`)
	modulePath  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.~_/-]*$`)
)

// checkGroup returns an error if this can't be the name of a module's own API group.
func checkGroup(group string) error {
	if errs := utilvalidation.IsDNS1123Subdomain(group); len(errs) > 0 {
		return fmt.Errorf("%q can't be an API group: %s", group, errs[0])
	}
	if !strings.Contains(group, ".") {
		return fmt.Errorf("the API group %q has no dot: names without one are for Kubernetes' own groups; use one below a domain of yours, such as %s.example.com", group, group)
	}
	if strings.HasSuffix(group, ".k8s.io") || strings.HasSuffix(group, ".kubernetes.io") {
		return fmt.Errorf("the API group %q belongs to the Kubernetes project, which has to approve it: use a domain of yours", group)
	}
	return nil
}

// namesInCode returns the names that mean something in the code of templates: names of packages, variables and
// functions, and the predeclared ones. It also returns names in the code of generators.
func namesInCode() map[string]bool {
	names := map[string]bool{}
	generated := []string{"a", "b", "f", "in", "internalinterfaces", "out", "s", "shutdown", "start", "unsafe"}
	for _, name := range slices.Concat([]string{"init"}, generated, types.Universe.Names()) {
		names[name] = true
	}
	_ = fs.WalkDir(templates, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go.tmpl") {
			return err
		}
		text, err := templates.ReadFile(name)
		// The names from actions begin with a capital, so that only other ones are found.
		text = templateAction.ReplaceAll(text, []byte("X"))
		for _, path := range importPath.FindAllSubmatch(text, -1) {
			names[string(path[1])] = true
		}
		var tokens scanner.Scanner
		tokens.Init(token.NewFileSet().AddFile(name, -1, len(text)), text, nil, 0)
		for last := token.ILLEGAL; ; {
			_, found, name := tokens.Scan()
			if found == token.EOF {
				return err
			}
			if found == token.IDENT && last != token.PERIOD {
				names[name] = true
			}
			last = found
		}
	})
	return names
}

var (
	templateAction = regexp.MustCompile(`{{[^}]*}}`)
	importPath     = regexp.MustCompile(`(?m)^\t"(?:[^"]*/)?(\w+)"$`)
)

// checkName returns an error if this can't be the name of the group's Go packages.
func checkName(name string) error {
	switch {
	case !packageName.MatchString(name):
		return fmt.Errorf("%q can't be the name of a Go package: choose one of small letters and digits by --name", name)
	case token.IsKeyword(name) || namesInCode()[name]:
		return fmt.Errorf("the name %q means something else in the code: choose another name for the group's packages by --name", name)
	case versionName.MatchString(name) || slices.Contains([]string{"internal", "testdata", "vendor"}, name):
		return fmt.Errorf("the name %q means something else as a directory: choose another by --name", name)
	}
	return nil
}

// generatedNames returns the exported names in generated code beside the types.
func generatedNames() []string {
	return []string{
		"AddToScheme", "GroupName", "GroupVersion", "Install", "RegisterConversions", "RegisterDefaults", "RegisterValidations", "Resource", "SchemeBuilder",
		"SchemeGroupVersion",
	}
}

// checkKind returns an error if this can't be the name of a kind, with or without clients.
func checkKind(name Name, clients bool) error {
	kind := string(name)
	// Every version declares these.
	reserved := []string{"WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "Kinds"}
	// Generated clients have parameters by the name of the kind, next to these names.
	variables := []string{"b", "c", "ctx", "err", "fieldManager", "internal", "nil", "opts", "result", "subresource"}
	switch {
	case !kindName.MatchString(kind):
		return fmt.Errorf("%q can't be a kind: use letters and digits, beginning with a capital, such as Bread", kind)
	case slices.Contains(reserved, kind):
		return fmt.Errorf("the kind can't be called %s: every version has a kind of that name", kind)
	case slices.Contains(generatedNames(), kind):
		return fmt.Errorf("the kind can't be called %s: the package of its types declares something else by that name", kind)
	case clients && (token.IsKeyword(name.Lower()) || slices.Contains(variables, name.Lower())):
		return fmt.Errorf("the kind can't be called %s: generated clients would have a parameter %s, which means something else there; choose another name, or pass --clients=false", kind, name.Lower())
	case clients && forSomeBuilds("fake_"+name.File()+".go"):
		return fmt.Errorf("the kind can't be called %s: generated clients would have a file fake_%s.go, which Go compiles only for some systems, or for tests; choose another name, or pass --clients=false", kind, name.File())
	case strings.HasSuffix(kind, "List") && kind != "List":
		return fmt.Errorf("the kind can't be called %s: that is the name of a list of %s objects; choose another name, or import a CRD into a module of its own", kind, strings.TrimSuffix(kind, "List"))
	}
	return nil
}

// forSomeBuilds reports whether Go leaves out a file because of its name, on some systems or outside of tests.
func forSomeBuilds(name string) bool {
	none := build.Context{Compiler: "gc", OpenFile: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("package p")), nil }}
	match, err := none.MatchFile("", name)
	return err != nil || !match || strings.HasSuffix(name, "_test.go")
}

func checkVersion(version string) error {
	if !versionName.MatchString(version) {
		return fmt.Errorf("%q can't be a version: use v1, v1beta1, v2alpha1 and the like", version)
	}
	return nil
}

// compareVersions orders versions as clients prefer them: v2, v1, v1beta1, v1alpha1.
func compareVersions(a, b string) int { return apiversion.CompareKubeAwareVersionStrings(b, a) }

// versionPriority is for an APIService. The numbers are in the order of compareVersions.
func versionPriority(version string) int {
	var major, stage, minor int
	switch {
	case strings.Contains(version, "alpha"):
		_, _ = fmt.Sscanf(version, "v%dalpha%d", &major, &minor)
	case strings.Contains(version, "beta"):
		_, _ = fmt.Sscanf(version, "v%dbeta%d", &major, &minor)
		stage = 1
	default:
		_, _ = fmt.Sscanf(version, "v%d", &major)
		stage = 2
	}
	return stage*300 + min(major, 29)*10 + min(minor, 9)
}

// Name is the Go name of a kind, or of a part of one, such as HTTPRoute. Its methods return other
// forms.
type Name string

// File returns the name in paths, and in the names of files and packages.
func (n Name) File() string { return strings.ToLower(string(n)) }

// Words returns the name for sentences: "http route".
func (n Name) Words() string {
	var b strings.Builder
	runes := []rune(n)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// AWords returns the name for sentences, with an article.
func (n Name) AWords() string { return withArticle(n.Words()) }

// withArticle returns a word with "a" or "an" before it.
func withArticle(word string) string {
	if strings.ContainsRune("aeiou", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}

// Lower returns the beginning of a function's name: httpRoute.
func (n Name) Lower() string {
	runes := []rune(n)
	for i := range runes {
		if i > 0 && i+1 < len(runes) && unicode.IsLower(runes[i+1]) {
			break
		}
		runes[i] = unicode.ToLower(runes[i])
	}
	return string(runes)
}

// Var returns a name for a variable, or a function, in a package that imports a group's package.
func (n Name) Var(group string) string {
	name := n.Lower()
	if token.IsKeyword(name) || namesInCode()[name] || name == group {
		return name + "Object"
	}
	return name
}

// GoPlural returns the plural in the names of generated clients.
func (n Name) GoPlural() string {
	kind := string(n)
	last, before := kind[len(kind)-1], byte(' ')
	if len(kind) > 1 {
		before = kind[len(kind)-2]
	}
	switch stem := kind[:len(kind)-1]; {
	case strings.IndexByte("sxz", last) >= 0, last == 'h' && (before == 'c' || before == 's'):
		return kind + "es"
	case last == 'y' && strings.IndexByte("bcdfghjklmnpqrstvwxyz", before) >= 0:
		return stem + "ies"
	case last == 'e' && before == 'f':
		return kind[:len(kind)-2] + "ves"
	case last == 'f':
		return stem + "ves"
	default:
		return kind + "s"
	}
}

// Plural returns the default plural in paths.
func (n Name) Plural() string { return strings.ToLower(n.GoPlural()) }

// title returns the name of a group for sentences.
func title(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// singular returns the name of an element of a list.
func singular(name string) string {
	for _, ending := range [][2]string{{"ies", "y"}, {"sses", "ss"}, {"ches", "ch"}, {"xes", "x"}, {"ss", "ss"}, {"us", "us"}, {"s", ""}} {
		if stem, found := strings.CutSuffix(name, ending[0]); found {
			return stem + ending[1]
		}
	}
	return name + "Item"
}

// typeDoc returns the doc comment of a type from the description of its field. It begins with the
// name.
func typeDoc(name, path, description string) string {
	field := strings.TrimRight(path[strings.LastIndexByte(path, '.')+1:], "[]{}")
	if rest, found := strings.CutPrefix(description, field+" "); found {
		return name + " " + rest
	}
	if rest, found := strings.CutPrefix(description, goName(field)+" "); found {
		return name + " " + rest
	}
	return strings.TrimSpace(fmt.Sprintf("%s is the type of %s.\n\n%s", name, path, description))
}
