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

package migration

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// failures returns what a plan finds in the way.
func (c *cluster) failures(t *testing.T) []string {
	t.Helper()
	code, stdout, stderr := c.migrate(t, "plan", "--output=json")
	var output struct {
		Findings []struct{ Check, Status, Cause, Fix string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &output), stderr)
	var failures []string
	for _, finding := range output.Findings {
		if finding.Status == "failure" {
			failures = append(failures, finding.Check+": "+finding.Cause+": "+finding.Fix)
		}
	}
	require.Equal(t, len(failures) > 0, code == 1, stderr)
	return failures
}

// requireFailure requires that a plan finds one thing in the way, and that nothing is begun.
func (c *cluster) requireFailure(t *testing.T, want string) {
	t.Helper()
	failures := c.failures(t)
	require.Len(t, failures, 1)
	require.Regexp(t, "^"+want+"$", failures[0])
	code, _, stderr := c.migrate(t, "run")
	require.Equal(t, 1, code)
	require.Regexp(t, `^Error: 1 of \d+ findings keep the objects from moving: see "migrate plan"\n$`, stderr)
}

// A plan finds what is in the way, in what all subtests share; each removes it again.
// Findings about the definitions themselves are in the tests of pkg/migrate. When nothing is
// in the way any more, the objects move, and the definitions are deleted.
func TestPlan(t *testing.T) {
	framework.Long(t, "dozens of obstacles are made and removed")
	t.Parallel()
	c := newCluster(t)
	t.Run("objects at the server", func(t *testing.T) {
		client := framework.ClientAt(t, c.ControlPlane, c.APIServer)
		require.NoError(t, fixture.CreateToppings(t.Context(), client, "other"))
		c.requireFailure(t, `etcd: the server has 1 toppings\.\S+ already: nothing if they have moved already, so that clients use them; otherwise delete them: those of the same names would be overwritten, and the others deleted`)
		require.NoError(t, client.RestaurantV1().Toppings().Delete(t.Context(), "other", metav1.DeleteOptions{}))
	})
	t.Run("controllers of the server", func(t *testing.T) {
		c.kubectl(t, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: restaurant-system, name: apiserver-controllers}, spec: {holderIdentity: apiserver-1}}`, "create", "--filename=-")
		c.requireFailure(t, `controllers: the Lease restaurant-system/apiserver-controllers says that controllers of the server run, in apiserver-1: start the server with --run-controllers=false until the objects have moved; .*`)
		framework.Kubectl(t, c.ControlPlane, "delete", "lease", "apiserver-controllers", "--namespace=restaurant-system")
	})
	t.Run("a namespace that is being deleted", func(t *testing.T) {
		c.kubectl(t, `{apiVersion: v1, kind: Namespace, metadata: {name: going}}`, "create", "--filename=-")
		pizzas := c.restaurant().RestaurantV1().Pizzas("going")
		pizza := framework.Pizza("kept")
		pizza.Finalizers = []string{"example.com/kept"}
		_, err := pizzas.Create(t.Context(), pizza, metav1.CreateOptions{})
		require.NoError(t, err)
		namespaces := framework.Kube(c.ControlPlane).CoreV1().Namespaces()
		require.NoError(t, namespaces.Delete(t.Context(), "going", metav1.DeleteOptions{}))
		c.requireFailure(t, `objects: the namespace going, which has some of the objects, is being deleted: wait until it is gone`)
		_, err = pizzas.Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		controlplane.Eventually(t, func() error { return gone(namespaces.Get(t.Context(), "going", metav1.GetOptions{})) })
	})
	t.Run("fields that the server lacks", func(t *testing.T) {
		framework.Kubectl(t, c.ControlPlane, "patch", "customresourcedefinition", "pizzas."+restaurant.GroupName, "--type=json",
			`--patch=[{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size", "value": {"type": "string"}}]`)
		controlplane.Eventually(t, func() error {
			changed, err := c.pizzas().Patch(t.Context(), "first", types.MergePatchType, []byte(`{"spec":{"size":"large"}}`), metav1.PatchOptions{})
			if err == nil && changed.Object["spec"].(map[string]any)["size"] == nil {
				err = errPruned
			}
			return err
		})
		c.requireFailure(t, `objects: 1 of 1 pizzas\.\S+ can't be stored by the server without loss: default/first \(strict decoding error: unknown field "spec\.size"\): change these objects, or use a server that knows their fields`)
		_, err := c.pizzas().Patch(t.Context(), "first", types.MergePatchType, []byte(`{"spec":{"size":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	})
	t.Run("missing revisions", func(t *testing.T) {
		const missing = `the server's etcd is \d+ revisions behind kube-apiserver's, .*--raise-revision.*`
		c.raise = nil
		defer func() { c.raise = raiseRevision }()
		failures := c.failures(t)
		require.Len(t, failures, 1)
		require.Regexp(t, "^etcd: "+missing+"$", failures[0])
		code, _, stderr := c.migrate(t, "run")
		require.Equal(t, 1, code)
		require.Regexp(t, "^Error: "+missing+"\n$", stderr)
		require.Equal(t, "Error: no migration of the group has begun\n", c.phase(t))
	})
	t.Run("nothing", func(t *testing.T) {
		c.dependent(t, "first")
		code, stdout, stderr := c.migrate(t, "plan")
		require.Equal(t, 0, code, stderr)
		require.NotContains(t, stdout, "failure")
		for _, line := range []string{
			`ok      apiservices +nothing is in the way`,
			`notice  etcd/RevisionTooLow +the server's etcd is \d+ revisions behind kube-apiserver's, which --raise-revision writes`,
			`ok      controllers +nothing is in the way`,
			`notice  objects/ObjectsMove +1 pizzas\.\S+ would move, \d+ kB as JSON: 0 have finalizers, 0 are being deleted, 0 have owners`,
			`notice  objects/ObjectsMove +3 toppings\.\S+ would move, \d+ kB as JSON: 0 have finalizers, 0 are being deleted, 0 have owners`,
			`None of \d+ findings keeps the objects from moving\.`,
		} {
			require.Regexp(t, "(?m)^"+line+"$", stdout)
		}
		require.NotContains(t, stdout, "validation", "The server accepts what is there.")
	})
	t.Run("a server that is not reached", func(t *testing.T) {
		code, _, stderr := c.migrate(t, "run", fmt.Sprintf("--service-port=%d", framework.FreePort(t)))
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "Error: the server does not answer for v1alpha1."+restaurant.GroupName+": check that it runs, and the Service")
		require.Equal(t, "Copying", c.phase(t))
		// All is as it was.
		for _, version := range framework.Versions() {
			resource := gvr("pizzas")
			resource.Version = version
			controlplane.Eventually(t, func() error {
				_, err := dynamic.NewForConfigOrDie(c.config()).Resource(resource).List(t.Context(), metav1.ListOptions{})
				return err
			})
		}
		controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "after", nil) })
	})
	t.Run("a definition that has changed", func(t *testing.T) {
		patch := func(patch string) {
			framework.Kubectl(t, c.ControlPlane, "patch", "customresourcedefinition", "pizzas."+restaurant.GroupName, "--type=json", "--patch="+patch)
		}
		patch(`[{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight", "value": {"type": "string"}}]`)
		code, _, stderr := c.migrate(t, "run")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "have changed since the migration began: pizzas."+restaurant.GroupName+" has another spec; clients use them as before: ")
		require.Equal(t, "Copying", c.phase(t))
		require.NoError(t, c.createPizza(t, c.restaurant(), "during", nil))
		require.NoError(t, c.pizzas().Delete(t.Context(), "during", metav1.DeleteOptions{}))
		patch(`[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/weight"}]`)
	})
	t.Run("until the end", func(t *testing.T) {
		code, _, stderr := c.migrate(t, "finish")
		require.Equal(t, 1, code)
		require.Equal(t, "Error: the migration is in the phase Copying: finish it when it is in the phase Moved\n", stderr)
		c.dependent(t, "after")
		code, _, stderr = c.migrate(t, "run")
		require.Equal(t, 0, code, stderr)
		before := c.everything(t)

		// Clients' writes through a version that only the definition has are in kube-apiserver's etcd.
		patch := func(patch string) {
			framework.Kubectl(t, c.ControlPlane, "patch", "customresourcedefinition", "pizzas."+restaurant.GroupName, "--type=json", "--patch="+patch)
		}
		patch(`[{"op": "add", "path": "/spec/versions/0", "value": {"name": "v9", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}]`)
		code, _, stderr = c.migrate(t, "finish")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "pizzas."+restaurant.GroupName+" serves the version v9, which the server does not have")
		patch(`[{"op": "replace", "path": "/spec/versions/0/served", "value": false}]`)

		// While a version has no APIService, clients depend on the copies.
		apiService := "apiservice/v1beta1." + restaurant.GroupName
		output, err := c.Kubectl(t.Context(), "get", apiService, "--output=json").Output()
		require.NoError(t, err)
		registered := parse(t, string(output))
		registered.SetResourceVersion("")
		output, err = registered.MarshalJSON()
		require.NoError(t, err)
		framework.Kubectl(t, c.ControlPlane, "delete", apiService)
		for _, args := range [][]string{nil, {"--dry-run"}} {
			code, stdout, stderr := c.migrate(t, "finish", args...)
			require.Equal(t, 1, code)
			require.Contains(t, stdout+stderr, "there is no APIService v1beta1."+restaurant.GroupName)
			require.Equal(t, "Moved", c.phase(t))
		}
		c.kubectl(t, string(output), "create", "--filename=-")
		controlplane.Eventually(t, func() error {
			code, stdout, stderr := c.migrate(t, "finish", "--dry-run")
			if code != 0 {
				return fmt.Errorf("%s%s", stdout, stderr)
			}
			require.Regexp(t, `(?m)^notice  copies +kube-apiserver's own copies of the 2 pizzas\.\S+ would be deleted with their definition$`, stdout)
			return nil
		})
		require.Equal(t, "Moved", c.phase(t))
		framework.Kubectl(t, c.ControlPlane, "get", "customresourcedefinition", "pizzas."+restaurant.GroupName)

		code, _, stderr = c.migrate(t, "finish")
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "Error: no migration of the group has begun\n", c.phase(t))
		require.Empty(t, cmp.Diff(before, c.everything(t)))

		// When the garbage collector has deleted what it should, it has seen all of that.
		dependents := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault)
		require.NoError(t, c.pizzas().Delete(t.Context(), "after", metav1.DeleteOptions{}))
		controlplane.Eventually(t, func() error { return gone(dependents.Get(t.Context(), "of-after", metav1.GetOptions{})) })
		_, err = dependents.Get(t.Context(), "of-first", metav1.GetOptions{})
		require.NoError(t, err)
	})
}
