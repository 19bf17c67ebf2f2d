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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

// allParts are one of each, of a bread with a status.
var allParts = []kit.PartOptions{
	{Type: "action", Name: "Bake", Kind: "Bread"},
	{Type: "stream", Name: "Track", Kind: "Bread"},
	{Type: "review", Name: "PriceReview"},
	{Type: "plugin", Name: "BreadProtection", Kind: "Bread"},
	{Type: "controller", Name: "Baking", Kind: "Bread"},
	{Type: "controller", Name: "Cooling", Kind: "Bread"},
	{Type: "webhook", Name: "Bread"},
}

func createParts(t *testing.T, dir string) (files []kit.File) {
	t.Helper()
	for _, part := range allParts {
		result, err := kit.CreatePart(t.Context(), kit.Target{Dir: dir}, part)
		require.NoError(t, err, part)
		files = append(files, result.Files...)
	}
	return files
}

func statusBread() kit.KindOptions {
	return kit.KindOptions{Name: "Bread", Versions: []string{"v1alpha1"}, Namespaced: true, Status: true}
}

func TestPartsAreWired(t *testing.T) {
	dir := newModule(t)
	create(t, dir, statusBread())
	createParts(t, dir)
	_, err := kit.CreateVersion(t.Context(), kit.Target{Dir: dir}, "v1", "Bread")
	require.NoError(t, err)

	for file, want := range map[string]string{
		"pkg/apis/bakery/register.go":                    "&BreadList{}, &Bake{}, &BreadTrackOptions{}, &PriceReview{}) // ground elsewhere\n",
		"pkg/registry/bakery/bread.go":                   "\t\tSubresources: map[string]registry.Subresource[*bakery.Bread]{\n\t\t\t\"bake\":  bake(),\n\t\t\t\"track\": track(),\n\t\t},\n",
		"pkg/registry/bakery/kinds.go":                   "\t\tBread(),\n\t\tPriceReview(),\n",
		"pkg/groups/bakery/group.go":                     "\t\tAdmission: []admission.Plugin{\n\t\t\tbreadprotection.Plugin(),\n\t\t},\n\t\tRuntime: connect,\n",
		"pkg/groups/bakery/runtime.go":                   "\t\tControllers: []registry.Controller{\n\t\t\tbaking.New(client, informers),\n\t\t\tcooling.New(client, informers),\n\t\t},\n",
		"pkg/generated/clientset/versioned/clientset.go": "package versioned\n",
		"pkg/generated/listers/bakery/v1alpha1/bread.go": "package v1alpha1\n",
		"pkg/webhook/bakery/webhooks.go":                 "range []func(runtime.Object) field.ErrorList{\n\t\tvalidateBread,\n\t}",
		"pkg/apis/bakery/v1alpha1/bread_types.go":        "// +genclient\n// +genclient:method=Bake,verb=create,subresource=bake,input=Bake,result=Bake\n",
		// The new version has the types of the subresources, too.
		"pkg/apis/bakery/v1/bake_types.go":         "package v1\n",
		"pkg/apis/bakery/v1/track_types.go":        "package v1\n",
		"artifacts/deploy/base/kustomization.yaml": "  - rbac-bake.yaml\n  - rbac-track.yaml\n  - rbac-pricereview.yaml\n",
		"artifacts/deploy/base/rbac-bake.yaml":     "    resources: [breads/bake]\n    verbs: [create]\n",
	} {
		require.Contains(t, read(t, dir, file), want, file)
	}
}

func TestRepeatingPartsChangesNothing(t *testing.T) {
	dir := newModule(t)
	create(t, dir, statusBread())
	createParts(t, dir)
	require.Empty(t, createParts(t, dir))
	require.Empty(t, create(t, dir, statusBread()).Files, "the kind has got what a person would have changed")

	// Parts without versions do not move to a new version.
	_, err := kit.CreateVersion(t.Context(), kit.Target{Dir: dir}, "v1", "Bread")
	require.NoError(t, err)
	for _, part := range allParts {
		result, err := kit.CreatePart(t.Context(), kit.Target{Dir: dir}, part)
		require.NoError(t, err)
		if part.Type != "controller" {
			require.Empty(t, result.Files, part.Name)
		}
	}
}

// A subresource that a person has replaced is left alone.
func TestPartsOfAPersonAreLeft(t *testing.T) {
	dir := newModule(t)
	create(t, dir, statusBread())
	createParts(t, dir)
	const declaration, group = "pkg/registry/bakery/bread.go", "pkg/groups/bakery/group.go"
	declared := strings.ReplaceAll(read(t, dir, declaration), `bake(),`, `bakeLoaves(3),`)
	write(t, dir, declaration, declared)
	grouped := strings.ReplaceAll(read(t, dir, group), "\t\t\tbreadprotection.Plugin(),\n", "\t\t\tflour.Plugin(),\n\t\t\tbreadprotection.Plugin(), // last\n")
	write(t, dir, group, grouped)

	require.Empty(t, createParts(t, dir))
	require.Equal(t, declared, read(t, dir, declaration))
	require.Equal(t, grouped, read(t, dir, group))
}

// Two kinds may have an action of one name, which has a type for each.
func TestActionsOfOneName(t *testing.T) {
	dir := newModule(t)
	create(t, dir, statusBread())
	create(t, dir, kit.KindOptions{Name: "Oven", Versions: []string{"v1"}})
	for _, kind := range []kit.Name{"Bread", "Oven"} {
		action := kit.PartOptions{Type: "action", Name: "Restart", Kind: kind}
		_, err := kit.CreatePart(t.Context(), kit.Target{Dir: dir}, action)
		require.NoError(t, err)
		again, err := kit.CreatePart(t.Context(), kit.Target{Dir: dir}, action)
		require.NoError(t, err)
		require.Empty(t, again.Files)
	}
	for file, want := range map[string]string{
		"pkg/apis/bakery/register.go":                 "&Restart{}, &OvenRestart{})",
		"pkg/apis/bakery/v1/oven_types.go":            "// +genclient:method=Restart,verb=create,subresource=restart,input=OvenRestart,result=OvenRestart\n",
		"pkg/registry/bakery/bread.go":                `"restart": restart(),`,
		"pkg/registry/bakery/oven.go":                 `"restart": ovenRestart(),`,
		"pkg/registry/bakery/ovenrestart.go":          "registry.Action[*bakery.Oven, *bakery.OvenRestart]",
		"artifacts/deploy/base/rbac-ovenrestart.yaml": "    resources: [ovens/restart]\n",
		"artifacts/deploy/base/kustomization.yaml":    "  - rbac-ovenrestart.yaml\n",
		"test/e2e/ovenrestart_test.go":                `path+"/restart"`,
		"pkg/apis/bakery/v1alpha1/restart_types.go":   "type Restart struct {",
		"pkg/apis/bakery/v1/ovenrestart_types.go":     "created at the subresource restart of an oven",
	} {
		require.Contains(t, read(t, dir, file), want, file)
	}
}

func TestPartErrorsNameTheFix(t *testing.T) {
	for name, test := range map[string]struct {
		part kit.PartOptions
		// prepare changes the module.
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"no such kind":      {part: kit.PartOptions{Type: "action", Name: "Bake", Kind: "Cake"}, want: `there is no kind Cake: create it by "kit create kind Cake --versions v1"`},
		"not a name":        {part: kit.PartOptions{Type: "action", Name: "bake", Kind: "Bread"}, want: `"bake" can't be the name of an action: use letters and digits, beginning with a capital`},
		"a type's name":     {part: kit.PartOptions{Type: "action", Name: "BreadSpec", Kind: "Bread"}, want: "pkg/apis/bakery has a type BreadSpec already, which is not in pkg/apis/bakery/breadspec_types.go: choose another name"},
		"a package's name":  {part: kit.PartOptions{Type: "plugin", Name: "Registry", Kind: "Bread"}, want: "the name Registry means something else in the code: choose another"},
		"a variable's name": {part: kit.PartOptions{Type: "controller", Name: "Informers", Kind: "Bread"}, want: "the name Informers means something else in the code: choose another"},
		"a test's name":     {part: kit.PartOptions{Type: "action", Name: "Examples", Kind: "Bread"}, want: "the name Examples means something else in the tests: choose another"},
		"Kubernetes' own":   {part: kit.PartOptions{Type: "action", Name: "Status", Kind: "Bread"}, want: "the name Status is for /status, as Kubernetes defines it: choose another"},
		"another kind's": {part: kit.PartOptions{Type: "stream", Name: "Track", Kind: "Oven"}, prepare: func(t *testing.T, dir string) {
			_, err := kit.CreatePart(t.Context(), kit.Target{Dir: dir}, kit.PartOptions{Type: "stream", Name: "Track", Kind: "Bread"})
			require.NoError(t, err)
		}, want: "pkg/registry/bakery/track.go is not about Oven: choose another name, such as TrackOven"},
		"no status": {part: kit.PartOptions{Type: "controller", Name: "Heating", Kind: "Oven"},
			want: `the kind Oven has no conditions in its status, which a controller would write: add them, as "kit create kind --status" does`},
		"no clients": {part: kit.PartOptions{Type: "controller", Name: "Baking", Kind: "Bread"}, prepare: func(t *testing.T, dir string) {
			const types = "pkg/apis/bakery/v1alpha1/bread_types.go"
			write(t, dir, types, strings.ReplaceAll(read(t, dir, types), "// +genclient\n", ""))
		}, want: `the kind Bread has no Go clients: add the tag +genclient to its type in pkg/apis/bakery/v1alpha1, and run "kit generate"`},
		"no such version": {part: kit.PartOptions{Type: "review", Name: "PriceReview", Versions: []string{"v2"}}, want: "the group has no version v2, but v1, v1alpha1"},
		"no declaration": {part: kit.PartOptions{Type: "stream", Name: "Track", Kind: "Bread"}, prepare: func(t *testing.T, dir string) {
			write(t, dir, "pkg/registry/bakery/bread.go", "package bakery\n")
		}, want: "pkg/registry/bakery has no function Bread, which the kit would change"},
		"a list that is none": {part: kit.PartOptions{Type: "plugin", Name: "BreadProtection", Kind: "Bread"}, prepare: func(t *testing.T, dir string) {
			const group = "pkg/groups/bakery/group.go"
			write(t, dir, group, strings.ReplaceAll(read(t, dir, group), "kinds.Kinds(),\n", "kinds.Kinds(),\nAdmission: plugins(),\n"))
		}, want: "pkg/groups/bakery/group.go: Admission of the function Group is not written as a list: add breadprotection.Plugin() by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			create(t, dir, statusBread())
			create(t, dir, kit.KindOptions{Name: "Oven", Versions: []string{"v1"}})
			if test.prepare != nil {
				test.prepare(t, dir)
			}
			_, err := kit.CreatePart(t.Context(), kit.Target{Dir: dir}, test.part)
			require.EqualError(t, err, test.want)
		})
	}
}
