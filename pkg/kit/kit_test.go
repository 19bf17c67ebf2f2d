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

package kit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

// newModule writes a module with a group and no kinds. It needs no other module, since
// its tests neither build nor generate code.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/bakery\n\ngo 1.26.0\n")
	write(t, dir, "cmd/apiserver/main.go", `package main

import (
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
)

func main() { server.NewCommand(nil, "apiserver") }
`)
	write(t, dir, "pkg/apis/bakery/doc.go", "// +groupName=bakery.example.com\n\npackage bakery\n")
	write(t, dir, "pkg/apis/bakery/register.go", `package bakery

// AddToScheme is a person's.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &Flour{}) // ground elsewhere
	return nil
}
`)
	write(t, dir, "artifacts/deploy/base/namespace.yaml", "kind: Namespace\nmetadata:\n  name: ovens\n")
	write(t, dir, "artifacts/deploy/base/kustomization.yaml", "kind: Kustomization\nresources:\n  - namespace.yaml\n")
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(text)
}

// files are the texts of all files of a directory, and its directories.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		found[name] = ""
		if !entry.IsDir() {
			found[name] = read(t, dir, name)
		}
		return nil
	}))
	return found
}

func bread() kit.KindOptions {
	return kit.KindOptions{Name: "Bread", Versions: []string{"v1alpha1"}, Namespaced: true}
}

func create(t *testing.T, dir string, kind kit.KindOptions) *kit.Result {
	t.Helper()
	result, err := kit.CreateKind(t.Context(), kit.Target{Dir: dir}, kind)
	require.NoError(t, err)
	return result
}

func TestListsGetWhatTheyLack(t *testing.T) {
	dir := newModule(t)
	create(t, dir, bread())
	create(t, dir, kit.KindOptions{Name: "Oven", Versions: []string{"v1"}})
	_, err := kit.CreateVersion(t.Context(), kit.Target{Dir: dir}, "v1beta1", "Bread")
	require.NoError(t, err)

	for file, want := range map[string]string{
		"pkg/apis/bakery/register.go":        "AddKnownTypes(SchemeGroupVersion, &Flour{}, &Bread{}, &BreadList{}, &Oven{}, &OvenList{}) // ground elsewhere\n",
		"pkg/apis/bakery/install/install.go": "SetVersionPriority(\n\t\tbakeryv1.SchemeGroupVersion,\n\t\tbakeryv1beta1.SchemeGroupVersion,\n\t\tbakeryv1alpha1.SchemeGroupVersion,\n",
		"pkg/apis/bakery/fuzzer/fuzzer.go":   "\t\tbreadSpec,\n\t\tovenSpec,\n",
		"pkg/registry/bakery/kinds.go":       "\t\tBread(),\n\t\tOven(),\n",
		"cmd/apiserver/main.go":              `server.NewCommand(nil, "apiserver", bakery.Group())`,
		"artifacts/deploy/base/kustomization.yaml": "resources:\n  - namespace.yaml\n  - rbac-apiservices.yaml\n  - apiservices.yaml\n" +
			"  - rbac-bread.yaml\n  - rbac-oven.yaml\n",
		"artifacts/deploy/base/rbac-apiservices.yaml": "    resourceNames:\n      - v1alpha1.bakery.example.com\n      - v1.bakery.example.com\n      - v1beta1.bakery.example.com\n",
		"pkg/apis/bakery/v1beta1/bread_types.go":      "package v1beta1\n",
	} {
		require.Contains(t, read(t, dir, file), want, file)
	}
	services := read(t, dir, "artifacts/deploy/base/apiservices.yaml")
	require.Equal(t, 3, strings.Count(services, "kind: APIService\n"))
	require.Equal(t, 3, strings.Count(services, "    namespace: ovens\n"))
	require.NotContains(t, services, "restaurant")
}

func TestRepeatingChangesNothing(t *testing.T) {
	dir := newModule(t)
	create(t, dir, bread())
	require.Empty(t, create(t, dir, bread()).Files)
}

func TestWhatAPersonChangedIsLeft(t *testing.T) {
	dir := newModule(t)
	create(t, dir, bread())
	const types, declaration = "pkg/apis/bakery/v1alpha1/bread_types.go", "pkg/registry/bakery/bread.go"
	changed := strings.ReplaceAll(read(t, dir, types), "256", "100")
	write(t, dir, types, changed)
	require.NoError(t, os.Remove(filepath.Join(dir, declaration)))

	require.Equal(t, []kit.File{{Change: kit.Created, Path: declaration}, {Change: kit.Left, Path: types}}, create(t, dir, bread()).Files)
	require.Equal(t, changed, read(t, dir, types))
}

// In a workspace, "go list" answers for all modules.
func TestWorkspace(t *testing.T) {
	workspace := t.TempDir()
	write(t, workspace, "other/go.mod", "module example.com/other\n\ngo 1.26\n")
	write(t, workspace, "go.work", "go 1.26.0\n\nuse (\n\t./bakery\n\t./other\n)\n")
	dir := filepath.Join(workspace, "bakery")
	require.NoError(t, os.CopyFS(dir, os.DirFS(newModule(t))))
	create(t, dir, bread())
	require.Contains(t, read(t, dir, "pkg/apis/bakery/install/install.go"), `"example.com/bakery/pkg/apis/bakery/v1alpha1"`)

	write(t, workspace, "go.work", "go 1.26.0\n\nuse ./other\n")
	_, err := kit.CreateKind(t.Context(), kit.Target{Dir: dir}, bread())
	require.EqualError(t, err, "the workspace "+workspace+"/go.work does not have the module example.com/bakery: run \"go work use "+dir+"\", or set GOWORK=off")
}

// Generators guess plurals, not always like a person.
func TestPlurals(t *testing.T) {
	dir := newModule(t)
	for kind, plural := range map[kit.Name]string{"Person": "people", "Sheep": "sheep", "RyeBread": "rye-breads"} {
		create(t, dir, kit.KindOptions{Name: kind, Resource: plural, Versions: []string{"v1"}})
		require.Contains(t, read(t, dir, "pkg/apis/bakery/v1/"+kind.File()+"_types.go"), "// +resourceName="+plural+"\n")
		require.Regexp(t, `Resource: +"`+plural+`"`, read(t, dir, "pkg/registry/bakery/"+kind.File()+".go"))
	}
}

// Roles of kinds are beside the server's.
func TestRolesOfKinds(t *testing.T) {
	dir := newModule(t)
	_, err := kit.CreateGroup(t.Context(), dir, "policy.example.com", "")
	require.NoError(t, err)
	write(t, dir, "artifacts/deploy/base/rbac-policy-parameters.yaml", " bakery.example.com/aggregate-to-policy-parameters: \"true\"\n")
	for group, kinds := range map[string][]kit.Name{"bakery": {"Server", "Parameters", "APIServices"}, "policy": {"Server", "Parameters"}} {
		for _, kind := range kinds {
			_, err := kit.CreateKind(t.Context(), kit.Target{Dir: dir, Group: group}, kit.KindOptions{Name: kind, Versions: []string{"v1"}})
			require.NoError(t, err)
		}
	}
	for file, want := range map[string]string{
		"rbac-server-roles": "bakery:server-viewer", "rbac-policy-server": "policy:server-viewer", "rbac-apiservices-roles": "bakery:apiservices-viewer",
		"rbac-parameters": "bakery:parameters-viewer", "rbac-policy-parameters-roles": "policy:parameters-viewer",
	} {
		require.Contains(t, read(t, dir, "artifacts/deploy/base/"+file+".yaml"), want)
		require.Contains(t, read(t, dir, "artifacts/deploy/base/kustomization.yaml"), "  - "+file+".yaml\n")
	}
}

func TestErrorsNameTheFix(t *testing.T) {
	for name, test := range map[string]struct {
		kind kit.KindOptions
		// prepare changes the module.
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"no version":                 {kind: kit.KindOptions{Name: "Bread"}, want: "name at least one version by --versions, such as v1"},
		"not a version":              {kind: kit.KindOptions{Name: "Bread", Versions: []string{"1.0"}}, want: `"1.0" can't be a version: use v1, v1beta1, v2alpha1 and the like`},
		"not a kind":                 {kind: kit.KindOptions{Name: "bread", Versions: []string{"v1"}}, want: `"bread" can't be a kind: use letters and digits, beginning with a capital, such as Bread`},
		"a list":                     {kind: kit.KindOptions{Name: "BreadList", Versions: []string{"v1"}}, want: "the kind can't be called BreadList: that is the name of a list of Bread objects; choose another name, or import a CRD into a module of its own"},
		"every version's":            {kind: kit.KindOptions{Name: "ListOptions", Versions: []string{"v1"}}, want: "the kind can't be called ListOptions: every version has a kind of that name"},
		"a keyword in clients":       {kind: kit.KindOptions{Name: "Package", Versions: []string{"v1"}}, want: "the kind can't be called Package: generated clients would have a parameter package, which means something else there; choose another name, or pass --clients=false"},
		"a variable in clients":      {kind: kit.KindOptions{Name: "Err", Versions: []string{"v1"}}, want: "the kind can't be called Err: generated clients would have a parameter err, which means something else there; choose another name, or pass --clients=false"},
		"a file of tests":            {kind: kit.KindOptions{Name: "Test", Versions: []string{"v1"}}, want: "the kind can't be called Test: generated clients would have a file fake_test.go, which Go compiles only for some systems, or for tests; choose another name, or pass --clients=false"},
		"a file of a system":         {kind: kit.KindOptions{Name: "Windows", Versions: []string{"v1"}}, want: "the kind can't be called Windows: generated clients would have a file fake_windows.go, which Go compiles only for some systems, or for tests; choose another name, or pass --clients=false"},
		"a function of each version": {kind: kit.KindOptions{Name: "Resource", Versions: []string{"v1"}}, want: "the kind can't be called Resource: the package of its types declares something else by that name"},
		"another with other capitals": {kind: kit.KindOptions{Name: "BREAD", Resource: "loaves", Versions: []string{"v1"}}, prepare: func(t *testing.T, dir string) { create(t, dir, bread()) },
			want: "the kind can't be called BREAD: its types would be in pkg/apis/bakery/bread_types.go, which has others; choose another name, or import a CRD into a module of its own"},
		"not a plural":      {kind: kit.KindOptions{Name: "Bread", Resource: "Breads", Versions: []string{"v1"}}, want: `"Breads" can't be the name of a resource: use small letters and digits, and dashes between them`},
		"in other versions": {kind: kit.KindOptions{Name: "Bread", Versions: []string{"v1"}}, prepare: func(t *testing.T, dir string) { create(t, dir, bread()) }, want: `Bread exists already, in v1alpha1: add a version by "kit create version v1 --kind Bread"`},
		"a field twice":     {kind: kit.KindOptions{Name: "Bread", Versions: []string{"v1"}, Fields: []kit.Field{{Name: "size", Type: "string"}, {Name: "size", Type: "int32"}}}, want: "the field size exists already"},
		"a version twice":   {kind: kit.KindOptions{Name: "Bread", Versions: []string{"v1", "v1"}}, want: "a version is named twice: v1, v1"},
		"another's plural": {kind: kit.KindOptions{Name: "Loaf", Resource: "breads", Versions: []string{"v1"}}, prepare: func(t *testing.T, dir string) { create(t, dir, bread()) },
			want: `"breads" is a name of Bread already: choose another by --plural or --short, or another kind`},
		"another's short name": {kind: kit.KindOptions{Name: "Loaf", Short: []string{"br"}, Versions: []string{"v1"}}, prepare: func(t *testing.T, dir string) {
			create(t, dir, kit.KindOptions{Name: "Bread", Short: []string{"br"}, Versions: []string{"v1"}})
		}, want: `"br" is a name of Bread already: choose another by --plural or --short, or another kind`},
		"messages in a group": {kind: kit.KindOptions{Name: "Oven", Versions: []string{"v1"}, NoProtobuf: true}, prepare: func(t *testing.T, dir string) { create(t, dir, bread()) },
			want: "the group bakery.example.com has protobuf messages, as its first kind: leave out --protobuf=false"},
		"not a module": {kind: bread(), prepare: func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "go.mod"))) },
			want: `there is no module in DIR: run "kit init" there first, or name the directory of a go.mod by --dir`},
		"no group": {kind: bread(), prepare: func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(dir+"/pkg/apis/bakery/doc.go"))
		}, want: `DIR has no API group: run "kit init" there, or write pkg/apis/<group>/doc.go with the comment // +groupName=<name>`},
		"a list that a person has removed": {kind: bread(), prepare: func(t *testing.T, dir string) {
			write(t, dir, "pkg/apis/bakery/register.go", "package bakery\n")
		}, want: "pkg/apis/bakery/register.go: no call of AddKnownTypes was found: add &Bread{} by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			if test.prepare != nil {
				test.prepare(t, dir)
			}
			before := files(t, dir)
			_, err := kit.CreateKind(t.Context(), kit.Target{Dir: dir}, test.kind)
			require.EqualError(t, err, strings.ReplaceAll(test.want, "DIR", dir))
			require.Equal(t, before, files(t, dir), "something was left of what the command has written")
		})
	}
}

func TestInitErrorsNameTheFix(t *testing.T) {
	valid := kit.InitOptions{Group: "bakery.example.com", Module: "example.com/bakery"}
	for name, test := range map[string]struct {
		change func(*kit.InitOptions)
		want   string
	}{
		"no domain": {func(o *kit.InitOptions) { o.Group = "bakery" },
			`the API group "bakery" has no dot: names without one are for Kubernetes' own groups; use one below a domain of yours, such as bakery.example.com`},
		"Kubernetes' domain": {func(o *kit.InitOptions) { o.Group = "bakery.k8s.io" },
			`the API group "bakery.k8s.io" belongs to the Kubernetes project, which has to approve it: use a domain of yours`},
		"no module": {func(o *kit.InitOptions) { o.Module = "" },
			`"" can't be the path of a Go module: name one by --module, such as example.com/bakery`},
		"a name that is taken": {func(o *kit.InitOptions) { o.Group = "registry.example.com" },
			`the name "registry" means something else in the code: choose another name for the group's packages by --name`},
		"not a namespace": {func(o *kit.InitOptions) { o.Namespace = "A" },
			`"A" can't be a namespace: use small letters, digits and hyphens, at most 63`},
		"no checkout": {func(o *kit.InitOptions) { o.Replace = "/missing" },
			"/missing is not a checkout of restaurant.programming-kubernetes.info/apiserver: name the directory of its go.mod by --replace"},
		"a checkout, not a release": {func(*kit.InitOptions) {},
			"this kit was built from a checkout, so there is no version of it to require: name the checkout by --replace"},
	} {
		t.Run(name, func(t *testing.T) {
			options := valid
			options.Dir = t.TempDir()
			test.change(&options)
			_, err := kit.Init(t.Context(), options)
			require.EqualError(t, err, test.want)
		})
	}
	t.Run("another module", func(t *testing.T) {
		options := valid
		options.Dir = t.TempDir()
		write(t, options.Dir, "go.mod", "module example.com/dairy\n\ngo 1.26.0\n")
		_, err := kit.Init(t.Context(), options)
		require.EqualError(t, err, options.Dir+" is the module example.com/dairy already: pass --module=example.com/dairy, or choose another directory")
	})
}
