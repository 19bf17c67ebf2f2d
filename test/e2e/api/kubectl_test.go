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
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// deprecation is what every use of v1alpha1 makes kubectl print.
const deprecation = "Warning: restaurant.programming-kubernetes.info/v1alpha1 Pizza is deprecated in v0.37+; " +
	"use restaurant.programming-kubernetes.info/v1 Pizza\n"

// kubectl is the administrator's, or with a kubeconfig somebody else's, in a
// namespace.
type kubectl struct {
	namespace  string
	kubeconfig string
	// editor is a shell command that "kubectl edit" opens files with.
	editor string
}

// answer is what a run of kubectl ends with.
type answer struct {
	stdout, stderr string
	code           int
}

func (k kubectl) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := cp.Kubectl(t.Context(), append([]string{"--namespace=" + k.namespace}, args...)...)
	// Temporary files, which diff and edit name in what they print.
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	if k.kubeconfig != "" {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+k.kubeconfig)
	}
	if k.editor != "" {
		cmd.Env = append(cmd.Env, "KUBE_EDITOR="+k.editor)
	}
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

// rows splits a table into its cells. All ages are the same.
func rows(table string) [][]string {
	// Of minutes there are few, unlike of the thousandths in a cost.
	age := regexp.MustCompile(`^(\d+s|\dm(\d+s)?)$`)
	var all [][]string
	for line := range strings.Lines(table) {
		cells := strings.Fields(line)
		for i, cell := range cells {
			if age.MatchString(cell) {
				cells[i] = "<age>"
			}
		}
		all = append(all, cells)
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
	framework.AlsoRemote(t)
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

	list := [][]string{{"NAME", "TOPPINGS", "REPLICAS", "COST", "AGE"}, {"margherita", "tomato,mozzarella×2", "2/3", "3.8", "<age>"}}
	wide := [][]string{
		{"NAME", "TOPPINGS", "REPLICAS", "COST", "AGE", "CONDITION", "REASON"},
		{"margherita", "tomato,mozzarella×2", "2/3", "3.8", "<age>", "Ready", "Baking"},
	}
	labels := [][]string{
		{"NAME", "TOPPINGS", "REPLICAS", "COST", "AGE", "LABELS"},
		{"margherita", "tomato,mozzarella×2", "2/3", "3.8", "<age>", label},
	}
	prefixed := [][]string{list[0], {"pizza.restaurant.programming-kubernetes.info/margherita", "tomato,mozzarella×2", "2/3", "3.8", "<age>"}}
	for name, test := range map[string]struct {
		args []string
		want [][]string
	}{
		"a list":              {[]string{"pizzas"}, list},
		"by name":             {[]string{"pizza", "margherita"}, list},
		"by type and name":    {[]string{"pizza/margherita"}, list},
		"the singular":        {[]string{"pizza"}, list},
		"the short name":      {[]string{"pz"}, list},
		"with the group":      {[]string{"pizzas.restaurant.programming-kubernetes.info"}, list},
		"in v1beta1":          {[]string{pizzas("v1beta1")}, list},
		"in v1":               {[]string{pizzas("v1")}, list},
		"wide":                {[]string{"pizzas", "--output=wide"}, wide},
		"with labels":         {[]string{"pizzas", "--show-labels"}, labels},
		"the status":          {[]string{"pizza", "margherita", "--subresource=status"}, list},
		"the scale":           {[]string{"pizza", "margherita", "--subresource=scale"}, [][]string{{"NAME", "DESIRED", "AVAILABLE", "AGE"}, {"margherita", "3", "2", "<age>"}}},
		"by label":            {[]string{"pizzas", "--selector=" + label}, list},
		"by field":            {[]string{"pizzas", "--field-selector=metadata.name=margherita,spec.replicas=3"}, list},
		"in all namespaces":   {[]string{"pizzas", "--all-namespaces", "--selector=" + label}, [][]string{append([]string{"NAMESPACE"}, list[0]...), append([]string{k.namespace}, list[1]...)}},
		"sorted":              {[]string{"pizzas", "--sort-by={.spec.replicas}"}, list},
		"own columns":         {[]string{"pizzas", "--output=custom-columns=N:.metadata.name,R:.spec.replicas"}, [][]string{{"N", "R"}, {"margherita", "3"}}},
		"a name":              {[]string{"pizzas", "--output=name"}, [][]string{{"pizza.restaurant.programming-kubernetes.info/margherita"}}},
		"a path":              {[]string{"pizza", "margherita", "--output=jsonpath={.spec.toppings[*].name}"}, [][]string{{"tomato", "mozzarella"}}},
		"without a header":    {[]string{"pizzas", "--no-headers"}, list[1:]},
		"a topping":           {[]string{"topping", topping}, [][]string{{"NAME", "COST", "AGE"}, {topping, "1", "<age>"}}},
		"toppings":            {[]string{"toppings", "--selector=" + label}, [][]string{{"NAME", "COST", "AGE"}, {topping, "1", "<age>"}}},
		"toppings, for short": {[]string{"tp", topping}, [][]string{{"NAME", "COST", "AGE"}, {topping, "1", "<age>"}}},
		"the category restaurant": {[]string{"restaurant", "--selector=" + label}, append(append([][]string{}, prefixed...), []string{},
			[]string{"NAME", "COST", "AGE"}, []string{"topping.restaurant.programming-kubernetes.info/" + topping, "1", "<age>"})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Empty(t, cmp.Diff(test.want, rows(k.ok(t, append([]string{"get"}, test.args...)...))), "unexpected table (-want +got)")
		})
	}

	t.Run("in v1alpha1, with a warning", func(t *testing.T) {
		t.Parallel()
		got := k.run(t, "", "get", pizzas("v1alpha1"))
		require.Equal(t, answer{stdout: got.stdout, stderr: deprecation}, got)
		require.Equal(t, list, rows(got.stdout))
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, answer{stderr: "No resources found in " + k.namespace + " namespace.\n"}, k.run(t, "", "get", "pizzas", "--selector=no=such"))
	})
	t.Run("a missing one", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, answer{stderr: "Error from server (NotFound): pizzas.restaurant.programming-kubernetes.info \"calzone\" not found\n", code: 1},
			k.run(t, "", "get", "pizza", "calzone"))
	})
}

// A client reads what it has asked for, whatever the form of the output.
func TestKubectlGetWhole(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := newKubectl(t)
	toppings := []any{
		map[string]any{"name": "tomato", "quantity": int64(1)},
		map[string]any{"name": "mozzarella", "quantity": int64(2)},
	}
	for version, toppings := range map[string][]any{
		"v1alpha1": {"tomato", "mozzarella", "mozzarella"},
		"v1beta1":  toppings,
		"v1":       toppings,
	} {
		for _, format := range []string{"yaml", "json"} {
			t.Run(version+"/"+format, func(t *testing.T) {
				t.Parallel()
				output := k.run(t, "", "get", pizzas(version), "margherita", "--output="+format).stdout
				data, err := yaml.YAMLToJSON([]byte(output))
				require.NoError(t, err)
				var got unstructured.Unstructured
				require.NoError(t, got.UnmarshalJSON(data))
				want := map[string]any{
					"apiVersion": restaurant.GroupName + "/" + version,
					"kind":       "Pizza",
					"metadata": map[string]any{
						"name": "margherita", "namespace": k.namespace, "generation": int64(1), "uid": string(got.GetUID()),
						"resourceVersion": got.GetResourceVersion(), "creationTimestamp": got.GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z07:00"),
					},
					"spec":   map[string]any{"replicas": int64(3), "toppings": toppings},
					"status": map[string]any{"replicas": int64(0)},
				}
				assert.Empty(t, cmp.Diff(want, got.Object), "unexpected %s (-want +got)", format)
			})
		}
	}
}

func TestKubectlWatch(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := newKubectl(t)
	cmd := k.command(t, "get", "pizzas", "--watch", "--output-watch-events", "--no-headers")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stdout)
	requireNext := func(want ...string) {
		t.Helper()
		require.True(t, lines.Scan(), "The watch has ended.")
		require.Equal(t, [][]string{want}, rows(lines.Text()))
	}
	requireNext("ADDED", "margherita", "tomato,mozzarella×2", "0/3", "<unknown>", "<age>")
	k.ok(t, "scale", "pizza/margherita", "--replicas=5")
	requireNext("MODIFIED", "margherita", "tomato,mozzarella×2", "0/5", "<unknown>", "<age>")
	// What is written in another version arrives all the same.
	k.run(t, strings.Replace(margheritaAlpha, "margherita", "bianca", 1), "create", "--filename=-")
	requireNext("ADDED", "bianca", "tomato,mozzarella×2", "0/3", "<unknown>", "<age>")
	k.ok(t, "delete", "pizza", "margherita")
	requireNext("DELETED", "margherita", "tomato,mozzarella×2", "0/5", "<unknown>", "<age>")
}

func TestKubectlWait(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := newKubectl(t)
	const met = "pizza.restaurant.programming-kubernetes.info/margherita condition met\n"
	require.Equal(t, met, k.ok(t, "wait", "--for=create", "pizza/margherita"))
	require.Equal(t, met, k.ok(t, "wait", "--for=jsonpath={.spec.replicas}=3", "pizza/margherita"))
	require.Equal(t, answer{stderr: "error: timed out waiting for the condition on pizzas/margherita\n", code: 1},
		k.run(t, "", "wait", "--for=jsonpath={.spec.replicas}=4", "--timeout=1s", "pizza/margherita"))

	k.ok(t, "patch", "pizza", "margherita", "--subresource=status", "--type=merge", "--patch",
		`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Baked","message":"","lastTransitionTime":"2026-11-20T10:00:00Z"}]}}`)
	require.Equal(t, met, k.ok(t, "wait", "--for=condition=Ready", "pizza/margherita"))

	k.ok(t, "patch", "pizza", "margherita", "--type=merge", "--patch", `{"metadata":{"finalizers":["example.com/hungry"]}}`)
	k.ok(t, "delete", "pizza", "margherita", "--wait=false")
	waiting := k.command(t, "wait", "--for=delete", "--timeout="+controlplane.Patience.String(), "--v=6", "pizza/margherita")
	var stdout bytes.Buffer
	waiting.Stdout = &stdout
	stderr, err := waiting.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, waiting.Start())
	for log := bufio.NewScanner(stderr); log.Scan(); {
		// Only now would it not see by itself that the pizza is gone.
		if strings.Contains(log.Text(), "watch=true") {
			k.ok(t, "patch", "pizza", "margherita", "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`)
		}
	}
	require.NoError(t, waiting.Wait())
	require.Equal(t, met, stdout.String())
}

func TestKubectlDescribe(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := newKubectl(t)
	for version, toppings := range map[string]string{
		"v1alpha1": "Toppings:\n    tomato\n    mozzarella\n    mozzarella\n",
		"v1beta1":  "Toppings:\n    Name:      tomato\n    Quantity:  1\n    Name:      mozzarella\n    Quantity:  2\n",
		"v1":       "Toppings:\n    Name:      tomato\n    Quantity:  1\n    Name:      mozzarella\n    Quantity:  2\n",
	} {
		output := k.run(t, "", "describe", pizzas(version), "margherita").stdout
		for _, want := range []string{
			"Name:         margherita\n",
			"Namespace:    " + k.namespace + "\n",
			"API Version:  restaurant.programming-kubernetes.info/" + version + "\n",
			"Kind:         Pizza\n",
			"Spec:\n  Replicas:  3\n  " + toppings,
			"Status:\n  Replicas:  0\n",
			"Events:      <none>\n",
		} {
			require.Contains(t, output, want)
		}
	}
}

func TestKubectlExplain(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := kubectl{}
	for version, toppings := range map[string]string{
		"v1alpha1": "    toppings\t<[]string>\n",
		"v1beta1":  "    toppings\t<[]PizzaTopping>\n      name\t<string> -required-\n      quantity\t<integer>\n",
		"v1":       "    toppings\t<[]PizzaTopping>\n      name\t<string> -required-\n      quantity\t<integer>\n",
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			flag := "--api-version=" + restaurant.GroupName + "/" + version
			head := "GROUP:      restaurant.programming-kubernetes.info\nKIND:       Pizza\nVERSION:    " + version + "\n"

			recursive := k.ok(t, "explain", "pizza", "--recursive", flag)
			for _, want := range []string{
				head,
				"  spec\t<PizzaSpec>\n    replicas\t<integer>\n" + toppings,
				"  status\t<PizzaStatus>\n    conditions\t<[]Condition>\n",
				"    cost\t<Quantity>\n    observedGeneration\t<integer>\n    replicas\t<integer>\n    selector\t<string>\n",
			} {
				require.Contains(t, recursive, want)
			}

			field := k.ok(t, "explain", "pizza.spec.replicas", flag)
			require.True(t, strings.HasPrefix(field, head), field)
			require.Contains(t, field, "FIELD: replicas <integer>\n")
			require.Contains(t, field, "    replicas is how many of this pizza the kitchen keeps baked, from 0 to 1000.\n    Defaults to 1.\n")

			require.Contains(t, k.ok(t, "explain", "topping.spec", flag), "  cost\t<Quantity> -required-\n")
			require.Equal(t, answer{stdout: head + "\n", stderr: "error: field \"size\" does not exist\n", code: 1}, k.run(t, "", "explain", "pizza.spec.size", flag))
		})
	}
}

func TestKubectlCanI(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	ns := framework.Namespace(t, cp)
	user := "waiter-" + ns
	grant(t, user, ns, rule("get,list", "pizzas,pizzas/scale"))
	kubeconfig, err := cp.KubeconfigFor(user)
	require.NoError(t, err)
	admin, waiter := kubectl{namespace: ns}, kubectl{namespace: ns, kubeconfig: kubeconfig}
	notNobody := "selfsubjectaccessreviews.authorization.k8s.io is forbidden: "
	if framework.Minor() < 36 { // Without the feature ConstrainedImpersonation, what is forbidden is to be that user.
		notNobody = `users "nobody" is forbidden: `
	}

	for name, test := range map[string]struct {
		as   kubectl
		args []string
		want answer
	}{
		"the administrator creates":            {admin, []string{"create", "pizzas"}, answer{stdout: "yes\n"}},
		"the administrator deletes":            {admin, []string{"deletecollection", "toppings"}, answer{stdout: "yes\n", stderr: "Warning: resource 'toppings' is not namespace scoped in group 'restaurant.programming-kubernetes.info'\n\n"}},
		"the user lists":                       {waiter, []string{"list", "pz"}, answer{stdout: "yes\n"}},
		"the user reads the scale":             {waiter, []string{"get", "pizzas", "--subresource=scale"}, answer{stdout: "yes\n"}},
		"the user reads the status":            {waiter, []string{"get", "pizzas", "--subresource=status"}, answer{stdout: "no\n", code: 1}},
		"the user creates":                     {waiter, []string{"create", "pizzas"}, answer{stdout: "no\n", code: 1}},
		"the user lists everywhere":            {waiter, []string{"list", "pizzas", "--all-namespaces"}, answer{stdout: "no\n", code: 1}},
		"the administrator asks for the user":  {admin, []string{"get", "pizza/margherita", "--as=" + user}, answer{stdout: "yes\n"}},
		"the administrator asks for a nobody":  {admin, []string{"get", "pizza/margherita", "--as=nobody"}, answer{stdout: "no\n", code: 1}},
		"the user may not ask for the nobody":  {waiter, []string{"get", "pizzas", "--as=nobody"}, answer{code: 1, stderr: "Error from server (Forbidden): " + notNobody}},
		"the administrator asks for the older": {admin, []string{"get", pizzas("v1alpha1"), "--as=" + user}, answer{stdout: "yes\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := test.as.run(t, "", append([]string{"auth", "can-i"}, test.args...)...)
			if strings.HasSuffix(test.want.stderr, ": ") {
				require.True(t, strings.HasPrefix(got.stderr, test.want.stderr), got.stderr)
				test.want.stderr = got.stderr
			}
			require.Equal(t, test.want, got)
		})
	}

	forbidden := func(verb, what, where string) answer {
		return answer{code: 1, stderr: fmt.Sprintf("Error from server (Forbidden): pizzas.restaurant.programming-kubernetes.info%s is forbidden: "+
			"User %q cannot %s resource \"pizzas\" in API group \"restaurant.programming-kubernetes.info\" %s\n", what, user, verb, where)}
	}
	require.Equal(t, answer{stderr: "No resources found in " + ns + " namespace.\n"}, waiter.run(t, "", "get", "pizzas"))
	require.Equal(t, forbidden("list", "", "at the cluster scope"), waiter.run(t, "", "get", "pizzas", "--all-namespaces"))
	require.Equal(t, forbidden("delete", " \"margherita\"", fmt.Sprintf("in the namespace %q", ns)), waiter.run(t, "", "delete", "pizza", "margherita"))
}

func TestKubectlDiscovery(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	k := kubectl{namespace: framework.Namespace(t, cp)}
	const verbs = "create,delete,deletecollection,get,list,patch,update,watch"
	require.Equal(t, [][]string{
		{"NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "VERBS", "CATEGORIES"},
		{"pizzas", "pz", "restaurant.programming-kubernetes.info/v1", "true", "Pizza", verbs, "restaurant"},
		{"pricereviews", "restaurant.programming-kubernetes.info/v1", "false", "PriceReview", "create"},
		{"toppings", "tp", "restaurant.programming-kubernetes.info/v1", "false", "Topping", verbs, "restaurant"},
	}, rows(k.ok(t, "api-resources", "--api-group="+restaurant.GroupName, "--output=wide")))
	require.Equal(t, "pizzas.restaurant.programming-kubernetes.info\ntoppings.restaurant.programming-kubernetes.info\n",
		k.ok(t, "api-resources", "--categories=restaurant", "--output=name"))
	for _, version := range framework.Versions() {
		require.Contains(t, k.ok(t, "api-versions"), restaurant.GroupName+"/"+version+"\n")
	}

	var group metav1.APIGroup
	require.NoError(t, json.Unmarshal([]byte(k.ok(t, "get", "--raw", "/apis/"+restaurant.GroupName)), &group))
	require.Equal(t, "v1", group.PreferredVersion.Version)
	require.Contains(t, k.ok(t, "get", "--raw", "/apis/restaurant.programming-kubernetes.info/v1/namespaces/"+k.namespace+"/pizzas"),
		`"kind":"PizzaList","apiVersion":"restaurant.programming-kubernetes.info/v1"`)
	require.Equal(t, answer{code: 1, stderr: "Error from server (NotFound): the server could not find the requested resource\n"},
		k.run(t, "", "get", "--raw", "/apis/restaurant.programming-kubernetes.info/v1/namespaces/"+k.namespace+"/calzones"))
}
