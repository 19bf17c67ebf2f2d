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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

// newGroups writes a module with a second group, and a bread in both.
func newGroups(t *testing.T) string {
	t.Helper()
	dir := newModule(t)
	for _, file := range []string{"cmd/apiserver/main.go", "artifacts/deploy/base/kustomization.yaml"} {
		require.NoError(t, os.Remove(filepath.Join(dir, file)))
	}
	createGroup(t, dir)
	for _, group := range []string{"bakery.example.com", "pastry"} {
		_, err := kit.CreateKind(t.Context(), kit.Target{Dir: dir, Group: group}, statusBread())
		require.NoError(t, err)
	}
	return dir
}

func createGroup(t *testing.T, dir string) *kit.Result {
	t.Helper()
	result, err := kit.CreateGroup(t.Context(), dir, "pastry.example.com", "")
	require.NoError(t, err)
	return result
}

func TestSecondGroup(t *testing.T) {
	dir := newGroups(t)
	for _, group := range []string{"bakery", "pastry.example.com"} {
		for _, part := range allParts {
			_, err := kit.CreatePart(t.Context(), kit.Target{Dir: dir, Group: group}, part)
			require.NoError(t, err, "%s %s", group, part.Name)
		}
	}

	for file, want := range map[string]string{
		"cmd/apiserver/main.go":                       `server.NewCommand(ctx, "apiserver", bakery.Group(), pastry.Group())`,
		"pkg/apis/pastry/register.go":                 "&Bread{}, &BreadList{}, &Bake{}, &BreadTrackOptions{}, &PriceReview{})",
		"pkg/apis/pastry/v1alpha1/doc.go":             "// +groupName=pastry.example.com\n",
		"pkg/groups/pastry/group.go":                  "\t\t\tbreadprotection.Plugin(),\n",
		"cmd/webhook/main.go":                         `"example.com/bakery/pkg/webhook/bakery"`,
		"cmd/pastry-webhook/main.go":                  `"example.com/bakery/pkg/webhook/pastry"`,
		"artifacts/examples/bread.yaml":               "apiVersion: bakery.example.com/v1alpha1\n",
		"artifacts/examples/pastry-bread.yaml":        "apiVersion: pastry.example.com/v1alpha1\n",
		"artifacts/deploy/base/rbac-pastry-bake.yaml": "  - apiGroups: [pastry.example.com]\n",
		// The server's ClusterRole selects this label.
		"artifacts/deploy/base/rbac-pastry-bread.yaml":                           "  name: bakery-apiserver:policy-parameters:pastry-breads\n  labels:\n    bakery.example.com/aggregate-to-policy-parameters: \"true\"\n",
		"artifacts/deploy/base/kustomization.yaml":                               "  - rbac-pricereview.yaml\n  - rbac-pastry-bake.yaml\n",
		"artifacts/deploy/base/rbac-apiservices.yaml":                            "      - v1alpha1.bakery.example.com\n      - v1alpha1.pastry.example.com\n",
		"artifacts/deploy/base/apiservices.yaml":                                 "  group: pastry.example.com\n",
		"artifacts/deploy/components/monitoring/prometheusrule-apiservices.yaml": `name=~".+[.](bakery[.]example[.]com|pastry[.]example[.]com)"`,
		"test/e2e/bake_test.go":                                                  "func TestBake(t *testing.T) {\n\tpath := createExample(t, \"bread\", \"breads\")\n",
		"test/e2e/pastry-bake_test.go":                                           "func TestPastryBake(t *testing.T) {\n\tpath := createExample(t, \"pastry-bread\", \"breads\")\n",
	} {
		require.Contains(t, read(t, dir, file), want, file)
	}
	require.NotContains(t, read(t, dir, "artifacts/deploy/base/apiservices.yaml"), "pastry-system")
}

func TestRepeatingAGroupChangesNothing(t *testing.T) {
	dir := newGroups(t)
	require.Empty(t, createGroup(t, dir).Files)
	refreshed, err := kit.RefreshFiles(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, refreshed.Files)

	const alerts, types = "artifacts/deploy/components/monitoring/prometheusrule-apiservices.yaml", "pkg/apis/pastry/doc.go"
	changed := strings.ReplaceAll(read(t, dir, alerts), "for: 2m", "for: 3m")
	write(t, dir, alerts, changed)
	documented := read(t, dir, types) + "\n// Tarts, mostly.\n"
	write(t, dir, types, documented)
	_, err = kit.CreateGroup(t.Context(), dir, "cakes.example.com", "")
	require.NoError(t, err)
	require.Equal(t, changed, read(t, dir, alerts))
	require.Equal(t, documented, read(t, dir, types))
}

// Clients of a group are called like its packages if they can't have the name of its first label.
func TestClientsOfGroups(t *testing.T) {
	dir := newGroups(t)
	for group, test := range map[string]struct{ name, packages, tag string }{
		"cert-manager.io":    {"", "certmanager", "// +groupGoName=Certmanager\n"},
		"pastry.example.org": {"tarts", "tarts", "// +groupGoName=Tarts\n"},
		"cakes.example.com":  {"", "cakes", ""},
	} {
		_, err := kit.CreateGroup(t.Context(), dir, group, test.name)
		require.NoError(t, err)
		_, err = kit.CreateKind(t.Context(), kit.Target{Dir: dir, Group: group}, statusBread())
		require.NoError(t, err)
		_, err = kit.CreatePart(t.Context(), kit.Target{Dir: dir, Group: group}, kit.PartOptions{Type: "controller", Name: "Baking", Kind: "Bread"})
		require.NoError(t, err)
		for _, file := range []string{"/doc.go", "/v1alpha1/doc.go"} {
			require.Contains(t, read(t, dir, "pkg/apis/"+test.packages+file), "// +groupName="+group+"\n"+test.tag+"\n")
		}
		require.Contains(t, read(t, dir, "pkg/controller/"+test.packages+"/baking/controller.go"), "shared."+strings.ToUpper(test.packages[:1])+test.packages[1:]+"().V1alpha1()")
	}
}

func TestGroupErrorsNameTheFix(t *testing.T) {
	dir := newGroups(t)
	// Earlier versions wrote no name for clients.
	write(t, dir, "pkg/apis/cakes/doc.go", "// +groupName=buns.example.com\n\npackage cakes\n")
	createKind := func(group string) error {
		_, err := kit.CreateKind(t.Context(), kit.Target{Dir: dir, Group: group}, bread())
		return err
	}
	create := func(group, name string) error {
		_, err := kit.CreateGroup(t.Context(), dir, group, name)
		return err
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"none of several": {createKind(""), "the module has the groups bakery.example.com, buns.example.com, pastry.example.com: say by --group which one is meant"},
		"unknown":         {createKind("dairy"), `the module has no group dairy, but bakery.example.com, buns.example.com, pastry.example.com: create it by "kit create group"`},
		"no domain": {create("dairy", ""),
			`the API group "dairy" has no dot: names without one are for Kubernetes' own groups; use one below a domain of yours, such as dairy.example.com`},
		"another name":    {create("pastry.example.com", "tarts"), "the group pastry.example.com exists already, in pkg/apis/pastry: leave out --name"},
		"a name twice":    {create("tarts.example.com", "pastry"), "the packages of the group pastry.example.com are called pastry already: choose another name by --name"},
		"a client's name": {create("buns.example.org", "buns"), "the Go clients of the groups buns.example.com and buns.example.org would have the same name: choose another by --name"},
		"another init": {func() error {
			_, err := kit.Init(t.Context(), kit.InitOptions{Dir: dir, Group: "dairy.example.com", Module: "example.com/bakery"})
			return err
		}(), dir + ` has a server for the group bakery.example.com already: add another group by "kit create group"`},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, test.err, test.want)
		})
	}
}
