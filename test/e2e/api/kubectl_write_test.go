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

package api

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func TestKubectlApply(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	const name = "pizza.restaurant.programming-kubernetes.info/margherita "
	for version, test := range map[string]struct {
		manifest, changed string
		warning           string
	}{
		"v1alpha1": {margheritaAlpha, strings.Replace(margheritaAlpha, "tomato, ", "basil, ", 1), deprecation},
		"v1beta1":  {fmt.Sprintf(manifest, "v1beta1", 3), strings.Replace(fmt.Sprintf(manifest, "v1beta1", 3), "tomato", "basil", 1), ""},
		"v1":       {margherita(3), strings.Replace(margherita(3), "tomato", "basil", 1), ""},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			k := kubectl{namespace: framework.Namespace(t, cp)}
			for _, step := range []struct {
				manifest string
				args     []string
				want     string
			}{
				{test.manifest, nil, name + "created\n"},
				{test.manifest, nil, name + "unchanged\n"},
				{test.changed, []string{"--dry-run=server"}, name + "configured (server dry run)\n"},
				{test.changed, nil, name + "configured\n"},
				// From here on this kubectl owns the fields by server-side apply.
				{test.changed, []string{"--server-side"}, name + "serverside-applied\n"},
				{test.manifest, []string{"--server-side"}, name + "serverside-applied\n"},
			} {
				got := k.run(t, step.manifest, append([]string{"apply", "--filename=-"}, step.args...)...)
				require.Equal(t, answer{stdout: step.want, stderr: test.warning}, got)
				if step.manifest == test.changed && len(step.args) == 0 {
					require.Equal(t, "basil mozzarella", k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={.spec.toppings[*].name}"),
						"The topping that is no longer in the manifest is still on the pizza, or the order has changed.")
				}
			}
			require.Equal(t, "tomato=1 mozzarella=2 ", k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={range .spec.toppings[*]}{.name}={.quantity} {end}"))
		})
	}
}

func TestKubectlApplyConflict(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := kubectl{namespace: framework.Namespace(t, cp)}
	k.okWith(t, margherita(3), "apply", "--server-side", "--filename=-", "--field-manager=first")
	got := k.run(t, margherita(4), "apply", "--server-side", "--filename=-", "--field-manager=second")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "error: Apply failed with 1 conflict: conflict with \"first\": .spec.replicas\n")
	k.okWith(t, margherita(4), "apply", "--server-side", "--filename=-", "--field-manager=second", "--force-conflicts")
	require.Equal(t, "4", k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={.spec.replicas}"))
}

func TestKubectlDiff(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := kubectl{namespace: framework.Namespace(t, cp)}
	changes := regexp.MustCompile(`(?m)^[-+] .*\n`)
	for _, mode := range []string{"--server-side=false", "--server-side=true"} {
		created := k.run(t, margherita(3), "diff", "--filename=-", mode)
		require.Equal(t, 1, created.code, created.stderr)
		require.Contains(t, created.stdout, "\n+kind: Pizza\n")

		k.okWith(t, margherita(3), "apply", "--filename=-", mode)
		require.Equal(t, answer{}, k.run(t, margherita(3), "diff", "--filename=-", mode), mode)

		changed := k.run(t, margherita(4), "diff", "--filename=-", mode)
		require.Equal(t, 1, changed.code, changed.stderr)
		require.Equal(t, []string{"-  generation: 1\n", "+  generation: 2\n", "-  replicas: 3\n", "+  replicas: 4\n"},
			changes.FindAllString(strings.ReplaceAll(changed.stdout, "    - ", ""), -1), mode)
		require.Equal(t, "1", k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={.metadata.generation}"), "The diff has changed the pizza.")
		k.ok(t, "delete", "pizza", "margherita")
	}
}

func TestKubectlEdit(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	replicas := func() string {
		return k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={.spec.replicas} {.status.replicas}")
	}

	k.editor = script(t, `sed -i 's/^  replicas: 3$/  replicas: 7/' "$1"`)
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita edited\n", k.ok(t, "edit", "pizza", "margherita"))
	require.Equal(t, "7 0", replicas())

	k.editor = script(t, `sed -i 's/^  replicas: 7$/  replicas: 8/' "$1"`)
	require.Equal(t, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita edited\n", stderr: deprecation},
		k.run(t, "", "edit", pizzas("v1alpha1"), "margherita"))
	require.Equal(t, "8 0", replicas())

	k.editor = script(t, `sed -i 's/^  replicas: 0$/  replicas: 2/' "$1"`)
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita edited\n", k.ok(t, "edit", "pizza", "margherita", "--subresource=status"))
	require.Equal(t, "8 2", replicas())

	k.editor = "true"
	require.Equal(t, answer{stderr: "Edit cancelled, no changes made.\n"}, k.run(t, "", "edit", "pizza", "margherita"))

	// What the server refuses is opened again with the reason; who then changes
	// nothing gives up.
	k.editor = script(t, `sed -i 's/^  replicas: 8$/  replicas: 1001/' "$1"; cp "$1" "$0.seen"`)
	got := k.run(t, "", "edit", "pizza", "margherita")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.stderr, "error: Edit cancelled, no valid changes were saved.\n")
	seen, err := os.ReadFile(k.editor + ".seen")
	require.NoError(t, err)
	require.Contains(t, string(seen), "# pizzas.restaurant.programming-kubernetes.info \"margherita\" was not valid:\n"+
		"# * spec.replicas: Invalid value: 1001: must be less than or equal to 1000\n")
	require.Equal(t, "8 2", replicas())
}

// script makes an executable shell script, which kubectl calls with a file.
func script(t *testing.T, commands string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+commands+"\n"), 0o700))
	return path
}

func TestKubectlScale(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := newKubectl(t)
	const scaled = "pizza.restaurant.programming-kubernetes.info/margherita scaled\n"
	for _, step := range []struct {
		args []string
		want answer
	}{
		{[]string{"--replicas=5"}, answer{stdout: scaled}},
		{[]string{"--replicas=0", "--current-replicas=5"}, answer{stdout: scaled}},
		{[]string{"--replicas=6", "--current-replicas=5"}, answer{stderr: "error: Expected replicas to be 5, was 0\n", code: 1}},
		{[]string{"--replicas=6", "--dry-run=server"}, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita scaled (server dry run)\n"}},
		{[]string{"--replicas=1001"}, answer{stderr: "The Pizza \"margherita\" is invalid: spec.replicas: Invalid value: 1001: must be less than or equal to 1000\n", code: 1}},
	} {
		require.Equal(t, step.want, k.run(t, "", append([]string{"scale", "pizza/margherita"}, step.args...)...))
	}
	require.Equal(t, "0 3", k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={.spec.replicas} {.metadata.generation}"))
	require.Equal(t, "horizontalpodautoscaler.autoscaling/margherita autoscaled\n", k.ok(t, "autoscale", "pizza/margherita", "--min=1", "--max=3"))
}

func TestKubectlLabelAndAnnotate(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	for _, step := range []struct {
		args []string
		want answer
	}{
		{[]string{"label", "pizza", "margherita", "oven=wood"}, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita labeled\n"}},
		{[]string{"label", "pizza", "margherita", "oven=gas"}, answer{stderr: "error: 'oven' already has a value (wood), and --overwrite is false\n", code: 1}},
		{[]string{"label", "pizza", "margherita", "oven=gas", "--overwrite", "--dry-run=server"}, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita labeled (server dry run)\n"}},
		{[]string{"label", "pizzas", "--all", "table=7"}, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita labeled\n"}},
		{[]string{"label", "pizzas", "--selector=oven=wood", "table-"}, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita unlabeled\n"}},
		{[]string{"annotate", "pizza", "margherita", "cook=Gino"}, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita annotated\n"}},
	} {
		require.Equal(t, step.want, k.run(t, "", step.args...))
	}
	require.Equal(t, `{"cook":"Gino"} {"oven":"wood"} 1`, k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={.metadata.annotations} {.metadata.labels} {.metadata.generation}"),
		"The labels or annotations differ, or they count as a change of the spec.")
}

func TestKubectlDelete(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	deleted := func(k kubectl) string {
		return "pizza.restaurant.programming-kubernetes.info \"margherita\" deleted from " + k.namespace + " namespace"
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"by name":               {[]string{"pizza", "margherita"}, "\n"},
		"by file":               {[]string{"--filename=-"}, "\n"},
		"by label":              {[]string{"pizzas", "--selector=!no"}, "\n"},
		"all":                   {[]string{"pizzas", "--all"}, "\n"},
		"now":                   {[]string{"pizza", "margherita", "--now"}, "\n"},
		"dependents in advance": {[]string{"pizza", "margherita", "--cascade=foreground"}, "\n"},
		"but not dependents":    {[]string{"pizza", "margherita", "--cascade=orphan"}, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKubectl(t)
			require.Equal(t, deleted(k)+test.want, k.okWith(t, margherita(3), append([]string{"delete"}, test.args...)...))
			require.Empty(t, k.ok(t, "get", "pizzas", "--output=name"))
		})
	}
	t.Run("by force", func(t *testing.T) {
		t.Parallel()
		k := newKubectl(t)
		got := k.run(t, "", "delete", "pizza", "margherita", "--force")
		require.Equal(t, answer{stdout: "pizza.restaurant.programming-kubernetes.info \"margherita\" force deleted from " + k.namespace + " namespace\n", stderr: got.stderr}, got)
		require.Empty(t, k.ok(t, "get", "pizzas", "--output=name"))
	})
	t.Run("as a dry run", func(t *testing.T) {
		t.Parallel()
		k := newKubectl(t)
		require.Equal(t, deleted(k)+" (server dry run)\n", k.ok(t, "delete", "pizza", "margherita", "--dry-run=server"))
		require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita\n", k.ok(t, "get", "pizzas", "--output=name"))
	})
	t.Run("a missing one", func(t *testing.T) {
		t.Parallel()
		k := kubectl{namespace: framework.Namespace(t, cp)}
		require.Equal(t, answer{stderr: "Error from server (NotFound): pizzas.restaurant.programming-kubernetes.info \"calzone\" not found\n", code: 1},
			k.run(t, "", "delete", "pizza", "calzone"))
		require.Empty(t, k.ok(t, "delete", "pizza", "calzone", "--ignore-not-found"))
	})
}

func TestKubectlValidate(t *testing.T) {
	t.Parallel()
	const (
		created = "pizza.restaurant.programming-kubernetes.info/margherita created\n"
		fields  = "unknown field \"spec.size\", unknown field \"spec.toppings[0].colour\""
	)
	odd := strings.NewReplacer("spec:", "spec:\n  size: large", "name: tomato", "name: tomato\n    colour: red").Replace
	for name, test := range map[string]struct {
		flag string
		want answer
	}{
		"strictly": {"--validate=strict", answer{code: 1, stderr: "Error from server (BadRequest): error when creating \"STDIN\": " +
			"Pizza in version \"v1\" cannot be handled as a Pizza: strict decoding error: " + fields + "\n"}},
		"with a warning": {"--validate=warn", answer{stdout: created, stderr: "Warning: unknown field \"spec.size\"\nWarning: unknown field \"spec.toppings[0].colour\"\n"}},
		"not at all":     {"--validate=ignore", answer{stdout: created}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubectl{namespace: framework.Namespace(t, cp)}
			require.Equal(t, test.want, k.run(t, odd(margherita(3)), "create", "--filename=-", test.flag))
		})
	}
	t.Run("values", func(t *testing.T) {
		t.Parallel()
		k := kubectl{namespace: framework.Namespace(t, cp)}
		require.Equal(t, answer{code: 1, stderr: "The Pizza \"margherita\" is invalid: \n" +
			"* spec.toppings[1].quantity: Invalid value: 11: must be less than or equal to 10\n" +
			"* spec.replicas: Invalid value: 1001: must be less than or equal to 1000\n"},
			k.run(t, strings.Replace(margherita(1001), "quantity: 2", "quantity: 11", 1), "create", "--filename=-"))
	})
}

func TestKubectlReplace(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita replaced\n", k.okWith(t, margherita(4), "replace", "--filename=-"))
	require.Equal(t, answer{stdout: "pizza.restaurant.programming-kubernetes.info/margherita replaced\n", stderr: deprecation},
		k.run(t, margheritaAlpha, "replace", "--filename=-"))
	require.Equal(t, "3 3", k.ok(t, "get", "pizza", "margherita", "--output=jsonpath={.spec.replicas} {.metadata.generation}"))

	stale := strings.Replace(margherita(5), "  name: margherita", "  name: margherita\n  resourceVersion: \"1\"", 1)
	got := k.run(t, stale, "replace", "--filename=-")
	require.Equal(t, answer{code: 1, stderr: "Error from server (Conflict): error when replacing \"STDIN\": Operation cannot be fulfilled on " +
		"pizzas.restaurant.programming-kubernetes.info \"margherita\": the object has been modified; please apply your changes to the latest version and try again\n"}, got)

	require.Equal(t, "pizza.restaurant.programming-kubernetes.info \"margherita\" deleted from "+k.namespace+" namespace\n"+
		"pizza.restaurant.programming-kubernetes.info/margherita replaced\n", k.okWith(t, margherita(5), "replace", "--force", "--filename=-"))
	require.Equal(t, answer{code: 1, stderr: "Error from server (AlreadyExists): error when creating \"STDIN\": " +
		"pizzas.restaurant.programming-kubernetes.info \"margherita\" already exists\n"}, k.run(t, margherita(5), "create", "--filename=-"))
}

func TestKubectlPatch(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	const (
		patchedPizza = "pizza.restaurant.programming-kubernetes.info/margherita patched\n"
		patchedScale = "scale.autoscaling/margherita patched\n"
		path         = "--output=jsonpath={range .spec.toppings[*]}{.name}={.quantity} {end}{.spec.replicas} {.status.replicas}"
	)
	for name, test := range map[string]struct {
		args   []string
		patch  string
		answer string
		want   string
	}{
		"JSON":                {[]string{"--type=json"}, `[{"op":"replace","path":"/spec/toppings/0/quantity","value":4}]`, patchedPizza, "tomato=4 mozzarella=2 3 0"},
		"merge":               {[]string{"--type=merge"}, `{"spec":{"toppings":[{"name":"basil"}]}}`, patchedPizza, "basil=1 3 0"},
		"strategic merge":     {[]string{"--type=strategic"}, `{"spec":{"toppings":[{"name":"tomato","quantity":4}]}}`, patchedPizza, "tomato=4 mozzarella=2 3 0"},
		"strategic by itself": {nil, `{"spec":{"toppings":[{"name":"tomato","$patch":"delete"}]}}`, patchedPizza, "mozzarella=2 3 0"},
		"status, JSON":        {[]string{"--type=json", "--subresource=status"}, `[{"op":"replace","path":"/status/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":9}]`, patchedPizza, "tomato=1 mozzarella=2 3 2"},
		"status, merge":       {[]string{"--type=merge", "--subresource=status"}, `{"spec":{"replicas":9},"status":{"replicas":2}}`, patchedPizza, "tomato=1 mozzarella=2 3 2"},
		"status, strategic":   {[]string{"--subresource=status"}, `{"spec":{"replicas":9},"status":{"replicas":2}}`, patchedPizza, "tomato=1 mozzarella=2 3 2"},
		"scale, JSON":         {[]string{"--type=json", "--subresource=scale"}, `[{"op":"replace","path":"/spec/replicas","value":9}]`, patchedScale, "tomato=1 mozzarella=2 9 0"},
		"scale, merge":        {[]string{"--type=merge", "--subresource=scale"}, `{"spec":{"replicas":9},"status":{"replicas":2}}`, patchedScale, "tomato=1 mozzarella=2 9 0"},
		"scale, strategic":    {[]string{"--subresource=scale"}, `{"spec":{"replicas":9}}`, patchedScale, "tomato=1 mozzarella=2 9 0"},
		"a dry run":           {[]string{"--dry-run=server"}, `{"spec":{"replicas":9}}`, patchedPizza, "tomato=1 mozzarella=2 3 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKubectl(t)
			require.Equal(t, test.answer, k.ok(t, append([]string{"patch", "pizza", "margherita", "--patch", test.patch}, test.args...)...))
			require.Equal(t, test.want, k.ok(t, "get", "pizza", "margherita", path))
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		k := newKubectl(t)
		require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita patched (no change)\n", k.ok(t, "patch", "pizza", "margherita", "--patch", "{}"))
	})
}

func TestKubectlDryRun(t *testing.T) {
	t.Parallel()
	k := kubectl{namespace: framework.Namespace(t, cp)}
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita created (server dry run)\n",
		k.okWith(t, margherita(3), "create", "--filename=-", "--dry-run=server"))
	require.Equal(t, "1", k.okWith(t, strings.Replace(margherita(3), "  replicas: 3\n", "", 1),
		"create", "--filename=-", "--dry-run=server", "--output=jsonpath={.spec.replicas}"), "The defaults are not in the answer.")
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita serverside-applied (server dry run)\n",
		k.okWith(t, margherita(3), "apply", "--server-side", "--filename=-", "--dry-run=server"))
	require.Empty(t, k.ok(t, "get", "pizzas", "--output=name"))
}
