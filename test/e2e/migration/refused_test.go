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
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	definitions = "apiextensions.k8s.io/v1/customresourcedefinitions"
	apiServices = "apiregistration.k8s.io/v1/apiservices"
	// notTried allows dry runs, such as a migration makes before it begins.
	notTried = "request.dryRun || "
)

// block refuses updates that make an expression false, and returns a function that ends that.
func (c *cluster) block(t *testing.T, resource, allowed string) (unblock func()) {
	t.Helper()
	parts := strings.Split(resource, "/")
	c.kubectl(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: blocked}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [%s], apiVersions: [%s], resources: [%s], operations: [CREATE, UPDATE, DELETE]}]
  validations:
    - expression: 'request.operation == "DELETE" || !has(object.metadata.annotations) || !("probe" in object.metadata.annotations)'
    - expression: |
        request.userInfo.username == "system:apiserver" || %s
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: blocked}
spec: {policyName: blocked, validationActions: [Deny]}
`, parts[0], parts[1], parts[2], allowed), "create", "--filename=-")
	name := "pizzas." + restaurant.GroupName
	if resource == apiServices {
		name = "v1." + restaurant.GroupName
	}
	probe := func() error {
		output, err := c.Kubectl(t.Context(), "annotate", parts[2]+"."+parts[0], name, "probe=1", "--dry-run=server", "--overwrite").CombinedOutput()
		if err != nil && !strings.Contains(string(output), "'blocked'") {
			return fmt.Errorf("%w: %s", err, output)
		}
		if err == nil {
			return errors.New("it is not refused")
		}
		return nil
	}
	controlplane.Eventually(t, probe)
	return func() {
		framework.Kubectl(t, c.ControlPlane, "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "blocked")
		controlplane.Eventually(t, func() error {
			if probe() == nil {
				return errors.New("it is still refused")
			}
			return nil
		})
	}
}

// An update is refused for good. A migration goes on or can be aborted in each of its phases, and
// clients can use the objects then. Nothing is begun if the refusal can be known before.
func TestRefusedUpdates(t *testing.T) {
	framework.Long(t, "each step of both ways is refused")
	t.Parallel()
	c := newDefinedCluster(t)
	before := c.everything(t)
	informer := c.watch(t)
	same := func() {
		t.Helper()
		require.Empty(t, cmp.Diff(before, c.everything(t)))
		controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "between", nil) })
		require.NoError(t, c.pizzas().Delete(t.Context(), "between", metav1.DeleteOptions{}))
		informer.require(t, before)
	}
	const none = "Error: no migration of the group has begun\n"

	unblock := c.block(t, definitions, "false")
	c.requireFailure(t, `updates: an update that moving the objects takes is refused: ending the watches of the CustomResourceDefinition .* ValidatingAdmissionPolicy 'blocked' .*: correct the definition, or change the policy or webhook that refuses it`)
	unblock()

	for _, test := range []struct {
		name, resource, allowed string
		// phase is the one after the error, or Moved if there is none.
		phase string
	}{
		{"the first APIService", apiServices, notTried + "false", "Copying"},
		{"the second APIService", apiServices, notTried + `request.operation == "DELETE" || request.name.startsWith("v1alpha1.")`, "Switching"},
		{"definitions", definitions, notTried + "false", "Switching"},
		{"definitions, at the end", definitions, notTried + `object.metadata.annotations.exists(name, name == "crd-apiserver/copy")`, "Moved"},
	} {
		unblock := c.block(t, test.resource, test.allowed)
		code, _, stderr := c.migrate(t, "run")
		require.Equal(t, test.phase, c.phase(t), "%s: %s", test.name, stderr)
		if test.phase == "Moved" {
			require.Equal(t, 0, code, stderr)
			require.Contains(t, stderr, "remove the annotation crd-apiserver/copy")
			unblock()
			continue
		}
		require.Equal(t, 1, code, stderr)
		if test.name == "definitions" {
			c.requireFrozen(t)
		}
		code, _, stderr = c.migrate(t, "abort")
		require.Equal(t, 0, code, "%s: %s", test.name, stderr)
		require.Equal(t, none, c.phase(t))
		same()
		unblock()
	}
	for _, resource := range []string{"pizzas", "toppings", "menus"} {
		framework.Kubectl(t, c.ControlPlane, "annotate", "customresourcedefinition", resource+"."+restaurant.GroupName, "crd-apiserver/copy-")
	}
	same()
	registered := c.registered(t)

	const bypass = `object.spec.versions.exists(v, v.name == "migrate")`
	for _, test := range []struct {
		name, resource, allowed, phase string
		args                           []string
	}{
		{"a version more", definitions, notTried + "!" + bypass, "Moved", nil},
		{"a version less", definitions, notTried + bypass, "Switching", nil},
		{"an APIService", apiServices, notTried + `request.name.startsWith("v1.")`, "Switching", nil},
		{"the end of the copies", definitions, notTried + `!has(object.metadata.annotations) || !("crd-apiserver/copy" in object.metadata.annotations) || object.metadata.annotations["crd-apiserver/copy"] != "none"`, "Switching", c.kubeEtcd(t)},
	} {
		unblock := c.block(t, test.resource, test.allowed)
		code, _, stderr := c.migrate(t, "back", test.args...)
		require.Equal(t, 1, code, stderr)
		require.Equal(t, test.phase, c.phase(t), "%s: %s", test.name, stderr)
		if test.phase != "Moved" {
			code, _, stderr = c.migrate(t, "abort")
			require.Equal(t, 0, code, "%s: %s", test.name, stderr)
			require.Equal(t, "Moved", c.phase(t))
		}
		require.Equal(t, registered, c.registered(t), test.name)
		same()
		unblock()
	}
	code, _, stderr := c.migrate(t, "back", c.kubeEtcd(t)...)
	require.Equal(t, 0, code, stderr)
	same()
}

// Each step of a migration is refused for good once it is no longer a dry run. The steps are to freeze
// writes, to end that, to switch, and to undo that. From each phase the migration goes on or is undone in
// spite of the refusal.
func TestRefusedSteps(t *testing.T) {
	framework.Long(t, "TestRefusedFreeze of pkg/migrate is the short one")
	t.Parallel()
	const (
		none       = "Error: no migration of the group has begun\n"
		levels     = "/prioritylevelconfigurations/migrate"
		schemas    = "/flowschemas/migrate"
		policies   = "/validatingadmissionpolicies/migrate"
		bindings   = "/validatingadmissionpolicybindings/migrate"
		toServer   = `PATCH .*/apiservices/.*"caBundle":"|POST .*/apiservices `
		toKube     = `DELETE .*/apiservices/`
		endOne     = "DELETE .*" + bindings + "|DELETE .*" + schemas
		endOther   = "DELETE .*" + policies + "|PATCH .*" + levels + ".*:100[,}]|DELETE .*" + levels
		definition = "PUT .*/customresourcedefinitions/"
	)
	type row struct {
		name, command string
		// refused are requests that are refused, and phase is the one after that.
		refused, phase string
	}
	walk := func(t *testing.T, c *cluster, rows []row) {
		t.Helper()
		kube, byKube := c.toKube(t)
		before := c.everything(t)
		informer := c.watch(t)
		for _, row := range rows {
			kube.refuse(row.refused)
			args := []string{byKube}
			if row.command == "back" {
				args = append(args, c.kubeEtcd(t)...)
			}
			code, stderr := c.over(t, row.command, args...)
			phase := c.phase(t)
			t.Logf("%s: code %d, %s\n%s", row.name, code, phase, stderr)
			require.Equal(t, row.phase, phase, row.name)
			if phase != none && phase != "Copying" && phase != "Moved" && phase != "Returned" {
				continue
			}
			require.Empty(t, cmp.Diff(before, c.everything(t)), row.name)
			controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "between", nil) })
			controlplane.Eventually(t, func() error {
				if _, found, err := informer.store.GetByKey("default/between"); err != nil || !found {
					return fmt.Errorf("%s: a client that watches does not see what is written (%w)", row.name, err)
				}
				return nil
			})
			require.NoError(t, c.pizzas().Delete(t.Context(), "between", metav1.DeleteOptions{}))
		}
	}
	t.Run("custom resources", func(t *testing.T) {
		t.Parallel()
		walk(t, newDefinedCluster(t), []row{
			{"a level", "run", "PATCH .*" + levels, "Copying"},
			{"the own schema", "run", "PATCH .*" + schemas + `\S*own `, "Copying"},
			{"a schema", "run", "PATCH .*" + schemas + `\S*info `, "Copying"},
			{"a policy", "run", "PATCH .*" + policies, "Copying"},
			{"a binding", "run", "PATCH .*" + bindings, "Copying"},
			{"undone in one way", "run", endOne + "|" + toServer, "Copying"},
			{"undone in the other way", "run", endOther + "|" + toServer, "Copying"},
			{"aborted", "abort", endOne, none},
			{"the second version", "run", `(?s)POST .*/apiservices .*\Wv1(beta1)?\.`, "Switching"},
			{"neither back", "abort", endOne + "|" + toKube, "Aborting"},
			{"but on", "run", endOne + "|" + toKube, "Moved"},
			{"the second version, back", "back", `DELETE .*/apiservices/v1(alpha1|beta1)\.`, "Switching"},
			{"neither to the server", "abort", endOther + "|" + toServer, "Aborting"},
			{"but on, back", "back", endOther + "|" + toServer, "Returned"},
		})
	})
	t.Run("types", func(t *testing.T) {
		t.Parallel()
		walk(t, newCluster(t), []row{
			{"the second version", "run", `(?s)POST .*/apiservices .*\Wv1\.`, "Switching"},
			{"aborted", "abort", definition + "[^/ ]* |" + endOther, none},
			{"a definition", "run", definition + "pizzas[^/ ]* ", "Switching"},
			{"on", "run", "", "Moved"},
			{"back", "back", endOne, "Returned"},
			{"finished", "finish", "", none},
		})
	})
}

// registered are the APIServices that lead to the server, with their labels.
func (c *cluster) registered(t *testing.T) string {
	t.Helper()
	output, err := c.Kubectl(t.Context(), "get", "apiservices", "--output",
		`jsonpath={range .items[?(@.spec.service)]}{.metadata.name} {.metadata.labels} {.spec}{"\n"}{end}`).CombinedOutput()
	require.NoError(t, err, "%s", output)
	return string(output)
}

// requireFrozen requires that kube-apiserver itself makes clients wait while no process moves objects.
func (c *cluster) requireFrozen(t *testing.T) {
	t.Helper()
	config := c.config()
	var answered []int
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(req)
			if err == nil {
				answered = append(answered, response.StatusCode)
				require.NotEmpty(t, response.Header.Get("Retry-After"))
				response.Header.Del("Retry-After")
			}
			return response, err
		})
	})
	began := time.Now()
	_, err := dynamic.NewForConfigOrDie(config).Resource(gvr("pizzas")).Namespace(metav1.NamespaceDefault).
		Patch(t.Context(), "first", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	require.Equal(t, []int{http.StatusTooManyRequests}, answered)
	t.Logf("A write was held for %s.", time.Since(began))
	output, err := c.Kubectl(t.Context(), "label", "pizza", "first", "a=b").CombinedOutput()
	require.Error(t, err)
	const wait = "the objects are being moved to another server: try again in a moment"
	require.Contains(t, string(output), wait)
	require.ErrorContains(t, c.writeByAlias(t, "first"), wait)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// intruder is a user with permission to update menus, but not their status, and not with invalid values. It
// tries to by the version that exists while objects move back.
type intruder struct {
	stop func()

	mu                sync.Mutex
	accepted, refused int
}

func (c *cluster) startIntruder(t *testing.T) *intruder {
	t.Helper()
	framework.Kubectl(t, c.ControlPlane, "create", "role", "editor", "--verb=get,list,update,patch", "--resource=menus."+restaurant.GroupName)
	framework.Kubectl(t, c.ControlPlane, "create", "rolebinding", "editor", "--role=editor", "--user=editor")
	config, err := c.RESTConfigFor("editor")
	require.NoError(t, err)
	config.QPS = -1
	resource := gvr("menus")
	resource.Version = "migrate"
	client := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(metav1.NamespaceDefault)
	i := &intruder{}
	done, ended := make(chan struct{}), make(chan struct{})
	i.stop = sync.OnceFunc(func() {
		close(done)
		<-ended
	})
	t.Cleanup(i.stop)
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(15 * time.Millisecond):
			}
			_, err := client.Patch(t.Context(), "summer", types.MergePatchType, []byte(`{"spec":{"season":"changed","seats":1000},"status":{"approved":true}}`), metav1.PatchOptions{})
			i.mu.Lock()
			switch {
			case err == nil:
				i.accepted++
			case apierrors.IsForbidden(err):
				i.refused++
			}
			i.mu.Unlock()
		}
	}()
	return i
}

// require requires that the version was there, and that nothing was written by it.
func (i *intruder) require(t *testing.T, there bool) {
	t.Helper()
	i.stop()
	require.Zero(t, i.accepted)
	require.Equal(t, there, i.refused > 0, "%d", i.refused)
}
