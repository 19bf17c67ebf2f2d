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
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// deprecation is what every use of v1alpha1 makes kubectl print.
const deprecation = "Warning: restaurant.programming-kubernetes.info/v1alpha1 Pizza is deprecated in v0.37+; " +
	"use restaurant.programming-kubernetes.info/v1 Pizza\n"

// kubectl is the administrator's, in a namespace.
type kubectl struct{ namespace string }

// answer is what a run of kubectl ends with.
type answer struct {
	stdout, stderr string
	code           int
}

func (k kubectl) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := cp.Kubectl(t.Context(), append([]string{"--namespace=" + k.namespace}, args...)...)
	// Temporary files, which diff names in what it prints.
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	return cmd
}

// run runs kubectl with an input, in which manifests may be.
func (k kubectl) run(t *testing.T, input string, args ...string) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := k.command(t, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return answer{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// ok runs kubectl, which must succeed without a warning, and returns what it
// prints.
func (k kubectl) ok(t *testing.T, args ...string) string {
	t.Helper()
	return k.okWith(t, "", args...)
}

func (k kubectl) okWith(t *testing.T, input string, args ...string) string {
	t.Helper()
	got := k.run(t, input, args...)
	require.Equal(t, answer{stdout: got.stdout}, got, "kubectl %s", strings.Join(args, " "))
	return got.stdout
}

// rows are the lines of a table, with one space between cells. All ages are the same.
func rows(table string) []string {
	// Of minutes there are few, unlike of the thousandths in a cost.
	age := regexp.MustCompile(`^(\d+s|\dm(\d+s)?)$`)
	var all []string
	for line := range strings.Lines(table) {
		cells := strings.Fields(line)
		for i, cell := range cells {
			if age.MatchString(cell) {
				cells[i] = "<age>"
			}
		}
		all = append(all, strings.Join(cells, " "))
	}
	return all
}

// manifest is a pizza in a version that spells toppings as v1 does.
const manifest = `
apiVersion: restaurant.programming-kubernetes.info/%s
kind: Pizza
metadata:
  name: margherita
spec:
  replicas: %d
  toppings:
  - name: tomato
  - name: mozzarella
    quantity: 2
`

// margherita is a pizza in v1.
func margherita(replicas int) string { return fmt.Sprintf(manifest, "v1", replicas) }

const margheritaAlpha = `
apiVersion: restaurant.programming-kubernetes.info/v1alpha1
kind: Pizza
metadata:
  name: margherita
spec:
  replicas: 3
  toppings: [tomato, mozzarella, mozzarella]
`

// pizzas is the resource's name with the version.
func pizzas(version string) string { return "pizzas." + version + "." + restaurant.GroupName }

// newKubectl returns a kubectl in a namespace in which there is a margherita.
func newKubectl(t *testing.T) kubectl {
	t.Helper()
	k := kubectl{namespace: framework.Namespace(t, cp)}
	require.Equal(t, "pizza.restaurant.programming-kubernetes.info/margherita created\n",
		k.okWith(t, margherita(3), "create", "--filename=-"))
	return k
}

func TestKubectlGet(t *testing.T) {
	t.Parallel()
	k := newKubectl(t)
	toppings := newSubject(t, "Topping", "v1")
	topping := toppings.Create(t, "basil").GetName()
	// The topping has it, and it tells the test's topping from all others.
	label := framework.Label + "=" + toppings.ID
	k.ok(t, "label", "pizza/margherita", label)
	k.ok(t, "patch", "pizza", "margherita", "--subresource=status", "--type=merge", "--patch", `{"status":{"replicas":2,"cost":"3.8","selector":"a=b","conditions":[
		{"type":"Priced","status":"True","reason":"Summed","message":"","lastTransitionTime":"2026-11-20T10:00:00Z"},
		{"type":"Ready","status":"False","reason":"Baking","message":"One is in the oven.","lastTransitionTime":"2026-11-20T10:00:00Z"}]}}`)

	list := []string{"NAME TOPPINGS REPLICAS COST AGE", "margherita tomato,mozzarella×2 2/3 3.8 <age>"}
	ofToppings := []string{"NAME COST AGE", topping + " 1 <age>"}
	const group = ".restaurant.programming-kubernetes.info"
	for args, want := range map[string][]string{
		"pizzas":           list,
		"pizza margherita": list,
		"pizza/margherita": list,
		"pz":               list,
		"pizzas" + group:   list,
		pizzas("v1beta1"):  list,
		"pizzas --output=wide": {
			"NAME TOPPINGS REPLICAS COST AGE CONDITION REASON", "margherita tomato,mozzarella×2 2/3 3.8 <age> Ready Baking",
		},
		"pizza margherita --subresource=status":                            list,
		"pizza margherita --subresource=scale":                             {"NAME DESIRED AVAILABLE AGE", "margherita 3 2 <age>"},
		"pizzas --field-selector=metadata.name=margherita,spec.replicas=3": list,
		"pizzas --all-namespaces --selector=" + label:                      {"NAMESPACE " + list[0], k.namespace + " " + list[1]},
		"pizzas --sort-by={.spec.replicas}":                                list,
		"pizzas --output=custom-columns=N:.metadata.name,R:.spec.replicas": {"N R", "margherita 3"},
		"pizzas --output=name":                                             {"pizza" + group + "/margherita"},
		"pizza margherita --output=jsonpath={.spec.toppings[*].name}":      {"tomato mozzarella"},
		"topping " + topping:                                               ofToppings,
		"tp --selector=" + label:                                           ofToppings,
		"restaurant --selector=" + label: {
			list[0], "pizza" + group + "/" + list[1], "", "NAME COST AGE", "topping" + group + "/" + topping + " 1 <age>",
		},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			assert.Empty(t, cmp.Diff(want, rows(k.ok(t, append([]string{"get"}, strings.Fields(args)...)...))), "unexpected table (-want +got)")
		})
	}

	t.Run("in v1alpha1, with a warning", func(t *testing.T) {
		t.Parallel()
		got := k.run(t, "", "get", pizzas("v1alpha1"))
		require.Equal(t, answer{stdout: got.stdout, stderr: deprecation}, got)
		require.Equal(t, list, rows(got.stdout))
	})
	t.Run("a missing one", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, answer{stderr: "Error from server (NotFound): pizzas.restaurant.programming-kubernetes.info \"calzone\" not found\n", code: 1},
			k.run(t, "", "get", "pizza", "calzone"))
	})
}

// A step is a run of kubectl in the words of its user, and what it prints. Where the output goes on,
// the text ends in "…".
type step struct {
	args, input    string
	stdout, stderr string
}

func TestKubectlWrites(t *testing.T) {
	t.Parallel()
	const (
		pizza    = "pizza.restaurant.programming-kubernetes.info/margherita "
		toppings = "get pizza margherita --output=jsonpath={range.spec.toppings[*]}{.name}={.quantity},{end}{.spec.replicas}/{.status.replicas}"
		patch    = "patch pizza margherita --patch="
		invalid  = "invalid: spec.replicas: Invalid value: 1001: must be less than or equal to 1000\n"
		conflict = "error: Apply failed with 1 conflict: conflict with \"first\": .spec.replicas\n…"
	)
	basil := func(manifest string) string { return strings.Replace(manifest, "tomato", "basil", 1) }
	create := step{"create --filename=-", margherita(3), pizza + "created\n", ""}
	scripts := map[string][]step{
		"server-side": {
			{"apply --server-side --filename=- --field-manager=first", margherita(3), pizza + "serverside-applied\n", ""},
			{"apply --server-side --filename=- --field-manager=second", margherita(4), "", conflict},
			{"apply --server-side --filename=- --field-manager=second --force-conflicts", margherita(4), pizza + "serverside-applied\n", ""},
			{toppings, "", "tomato=1,mozzarella=2,4/0", ""},
		},
		"scale": {
			create,
			{"scale pizza/margherita --replicas=5", "", pizza + "scaled\n", ""},
			{"scale pizza/margherita --replicas=0 --current-replicas=5", "", pizza + "scaled\n", ""},
			{"scale pizza/margherita --replicas=6 --current-replicas=5", "", "", "error: Expected replicas to be 5, was 0\n"},
			{"scale pizza/margherita --replicas=1001", "", "", "The Pizza \"margherita\" is " + invalid},
			{"autoscale pizza/margherita --min=1 --max=3", "", "horizontalpodautoscaler.autoscaling/margherita autoscaled\n", ""},
			{toppings, "", "tomato=1,mozzarella=2,0/0", ""},
		},
		"patch": {
			create,
			{patch + `[{"op":"replace","path":"/spec/toppings/0/quantity","value":4}] --type=json`, "", pizza + "patched\n", ""},
			{patch + `{"spec":{"toppings":[{"name":"basil"},{"name":"tomato","$patch":"delete"}]}}`, "", pizza + "patched\n", ""},
			{toppings, "", "basil=1,mozzarella=2,3/0", ""},
			{patch + `{"spec":{"toppings":[{"name":"basil"}]}} --type=merge`, "", pizza + "patched\n", ""},
			{patch + `{"spec":{"replicas":9},"status":{"replicas":2}} --subresource=status`, "", pizza + "patched\n", ""},
			{patch + `{"spec":{"replicas":7},"status":{"replicas":9}} --subresource=scale --type=merge`, "", "scale.autoscaling/margherita patched\n", ""},
			{patch + `{"spec":{"replicas":8}} --dry-run=server`, "", pizza + "patched\n", ""},
			{patch + `{}`, "", pizza + "patched (no change)\n", ""},
			{toppings, "", "basil=1,7/2", ""},
		},
		"validate": {
			{
				"create --filename=- --validate=strict", strings.Replace(margherita(3), "spec:", "spec:\n  size: large", 1), "",
				"Error from server (BadRequest): error when creating \"STDIN\": Pizza in version \"v1\" cannot be handled as a Pizza: strict decoding error: unknown field \"spec.size\"\n",
			},
			{
				"create --filename=-", strings.Replace(margherita(1001), "quantity: 2", "quantity: 11", 1), "",
				"The Pizza \"margherita\" is invalid: \n* spec.toppings[1].quantity: Invalid value: 11: must be less than or equal to 10\n" +
					"* spec.replicas: Invalid value: 1001: must be less than or equal to 1000\n",
			},
		},
	}
	for version, test := range map[string]struct{ manifest, warning string }{
		"v1alpha1": {margheritaAlpha, deprecation}, "v1beta1": {fmt.Sprintf(manifest, "v1beta1", 3), ""}, "v1": {margherita(3), ""},
	} {
		scripts["apply "+version] = []step{
			{"apply --filename=-", test.manifest, pizza + "created\n", test.warning},
			{"apply --filename=-", test.manifest, pizza + "unchanged\n", test.warning},
			{"apply --filename=- --dry-run=server", basil(test.manifest), pizza + "configured (server dry run)\n", test.warning},
			{"apply --filename=-", basil(test.manifest), pizza + "configured\n", test.warning},
			{toppings, "", "basil=1,mozzarella=2,3/0", ""},
			// From here on this kubectl owns the fields by server-side apply.
			{"apply --server-side --filename=-", basil(test.manifest), pizza + "serverside-applied\n", test.warning},
			{"apply --server-side --filename=-", test.manifest, pizza + "serverside-applied\n", test.warning},
			{toppings, "", "tomato=1,mozzarella=2,3/0", ""},
		}
	}
	for name, steps := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kubectl{namespace: framework.Namespace(t, cp)}
			for _, step := range steps {
				got := k.run(t, step.input, strings.Fields(step.args)...)
				want := answer{abridged(step.stdout, got.stdout), abridged(step.stderr, got.stderr), 0}
				if step.stdout == "" && step.stderr != "" {
					want.code = 1
				}
				require.Equal(t, want, got, step.args)
			}
		})
	}
}

// abridged returns got if it begins like want, where that ends with an ellipsis, and else want.
func abridged(want, got string) string {
	if beginning, ok := strings.CutSuffix(want, "…"); ok && strings.HasPrefix(got, beginning) {
		return got
	}
	return want
}
