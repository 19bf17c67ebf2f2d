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
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Objects that kube-apiserver has let become larger than the server's bounds can be changed, made
// smaller and deleted when they have moved. A server in Go refused each change of them, so that their
// finalizers stayed.
func TestLargeObjects(t *testing.T) {
	framework.Long(t, "two migrations of large objects")
	t.Parallel()
	const annotations, owners = 25_000, 300
	for name, test := range map[string]struct {
		start func(*testing.T) *cluster
		// grows tells that the server bounds what a request adds, and not what an object has.
		grows bool
	}{
		"to a server in Go":  {newCluster, false},
		"to a crd-apiserver": {newDefinedCluster, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := test.start(t)
			var references []metav1.OwnerReference
			for i := range owners {
				owner, err := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("owner-", i)}}, metav1.CreateOptions{})
				require.NoError(t, err)
				references = append(references, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
			}
			names := []string{"many", "owned"}
			require.NoError(t, c.createPizza(t, c.restaurant(), "many", func(pizza metav1.Object) {
				pizza.SetFinalizers([]string{"example.com/a", "example.com/b"})
				many := map[string]string{}
				for i := range annotations {
					many[fmt.Sprint("a", i)] = ""
				}
				pizza.SetAnnotations(many)
			}))
			require.NoError(t, c.createPizza(t, c.restaurant(), "owned", func(pizza metav1.Object) {
				pizza.SetFinalizers([]string{"example.com/a", "example.com/b"})
				pizza.SetOwnerReferences(references)
			}))
			code, stdout, stderr := c.migrate(t, "plan")
			require.Equal(t, 0, code, "%s%s", stdout, stderr)
			code, _, stderr = c.migrate(t, "run")
			require.Equal(t, 0, code, stderr)

			merge := func(name, patch string) error {
				_, err := c.pizzas().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				return err
			}
			update := func(name string, change func(*unstructured.Unstructured)) {
				t.Helper()
				pizza, err := c.pizzas().Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				change(pizza)
				_, err = c.pizzas().Update(t.Context(), pizza, metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			for _, name := range names {
				update(name, func(pizza *unstructured.Unstructured) {
					require.NoError(t, unstructured.SetNestedField(pizza.Object, int64(2), "spec", "replicas"))
				})
				require.NoError(t, merge(name, `{"spec":{"replicas":3}}`))
				require.NoError(t, merge(name, `{"metadata":{"finalizers":["example.com/b"]}}`))
			}
			more := append(slices.Clone(references), references[0])
			more[owners].Kind = "Another"
			grown, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": more}})
			require.NoError(t, err)
			for name, grow := range map[string]string{"many": `{"metadata":{"annotations":{"one":"","more":""}}}`, "owned": string(grown)} {
				err := merge(name, grow)
				if test.grows {
					require.NoError(t, err)
					continue
				}
				require.True(t, apierrors.IsInvalid(err), "%v", err)
				require.Less(t, len(err.Error()), 300, "%s", err)
				require.Regexp(t, `^Pizza\.restaurant\.programming-kubernetes\.info "" is invalid: patch: Invalid value: .*must (not )?have (more than|at most) \d+ (elements|items, not 301)$`, err.Error())
			}
			for _, name := range names {
				require.NoError(t, c.pizzas().Delete(t.Context(), name, metav1.DeleteOptions{}))
				update(name, func(pizza *unstructured.Unstructured) { pizza.SetFinalizers(nil) })
				require.NoError(t, gone(c.pizzas().Get(t.Context(), name, metav1.GetOptions{})))
			}
		})
	}
}

// An integer that kube-apiserver 1.35 takes for the format int32 moves, and the plan names its object. Here, the format
// comes after the object.
func TestIntegersBeyondTheirFormat(t *testing.T) {
	framework.Long(t, "a migration")
	t.Parallel()
	c := newDefinedCluster(t)
	menu := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr("menus").GroupVersion().String(), "kind": "Menu", "metadata": map[string]any{"name": "popular"},
		"spec": map[string]any{"season": "all", "servings": int64(3_000_000_000)},
	}}
	define := func(schema string) {
		t.Helper()
		framework.Kubectl(t, c.ControlPlane, "patch", "customresourcedefinition", "menus."+menu.GroupVersionKind().Group, "--type=json", `--patch=[
			{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/servings", "value": `+schema+`},
			{"op": "add", "path": "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/servings", "value": `+schema+`}]`)
	}
	define(`{"type": "integer"}`)
	controlplane.Eventually(t, func() error {
		created, err := c.menus().Apply(t.Context(), "popular", menu, metav1.ApplyOptions{FieldManager: "owner"})
		if err == nil && created.Object["spec"].(map[string]any)["servings"] == nil {
			err = errors.Join(errPruned, c.menus().Delete(t.Context(), "popular", metav1.DeleteOptions{}))
		}
		return err
	})
	define(`{"type": "integer", "format": "int32"}`)
	code, stdout, stderr := c.migrate(t, "plan")
	require.Equal(t, 0, code, "%s%s", stdout, stderr)
	require.Regexp(t, `(?m)^notice +\S+ +1 of 2 menus\.\S+ .*default/popular \(.*must be of type integer with format int32.*\)`, stdout)
	code, _, stderr = c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	_, err := c.menus().Patch(t.Context(), "popular", types.MergePatchType, []byte(`{"spec":{"seats":3}}`), metav1.PatchOptions{})
	require.NoError(t, err)
}
