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
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// The largest object that kube-apiserver stores moves there, with a checksum, can be changed and comes back. One
// that has grown at the server beyond what kube-apiserver's etcd takes is named before, and keeps all from
// moving back until it is smaller.
func TestLargestObjects(t *testing.T) {
	framework.Long(t, "objects of 1.5 MiB move there and back")
	t.Parallel()
	c := newDefinedCluster(t)
	create := func(name string, size int) error {
		_, err := c.menus().Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr("menus").GroupVersion().String(), "kind": "Menu", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"season": strings.Repeat("a", size)},
		}}, metav1.CreateOptions{})
		return err
	}
	remove := func(name string) { require.NoError(t, c.menus().Delete(t.Context(), name, metav1.DeleteOptions{})) }
	annotate := func(name string, size int) error {
		_, err := c.menus().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"`+strings.Repeat("b", size)+`"}}}`), metav1.PatchOptions{})
		return err
	}
	const least, most = 1_570_000, 1_573_000
	largest := least - 1 + sort.Search(most-least, func(i int) bool {
		err := create("largest", least+i)
		if err == nil {
			remove("largest")
		} else {
			require.ErrorContains(t, err, "request is too large")
		}
		return err != nil
	})
	require.NoError(t, create("largest", largest))
	require.NoError(t, create("growing", largest-1000))
	before := c.everything(t)
	code, stdout, stderr := c.migrate(t, "plan")
	require.Equal(t, 0, code, "%s%s", stdout, stderr)
	code, _, stderr = c.migrate(t, "run")
	require.Equal(t, 0, code, stderr)
	there := c.everything(t)
	for name, object := range before {
		require.Empty(t, cmp.Diff(object, there[name]), name)
	}
	require.NotZero(t, c.checksums(t))

	_, err := c.menus().Patch(t.Context(), "largest", types.MergePatchType, []byte(`{"spec":{"seats":3}}`), metav1.PatchOptions{FieldManager: "another"})
	require.NoError(t, err)
	require.NoError(t, annotate("growing", 8000))
	framework.RequireStatus(t, annotate("growing", 30_000), 413, metav1.StatusReasonRequestEntityTooLarge)
	direct := c.kubeEtcd(t)
	code, stdout, _ = c.migrate(t, "plan", "--back")
	require.Equal(t, 0, code)
	require.Regexp(t, `(?m)^notice +objects +2 of 3 menus\.\S+ may be too large for kube-apiserver's etcd: default/growing \(etcd refuses it with its default of 1\.5 MiB: \d+ bytes\); default/largest `, stdout)
	code, stdout, _ = c.migrate(t, "plan", append(direct, "--back")...)
	require.Equal(t, 1, code)
	require.Regexp(t, `(?m)^failure +objects +2 of 3 menus\.\S+ are too large for kube-apiserver's etcd: default/growing \(etcd refuses it: \d+ bytes\); default/largest `, stdout)
	for _, args := range [][]string{nil, direct} {
		code, _, stderr = c.migrate(t, "back", args...)
		require.Equal(t, 1, code)
		require.Regexp(t, `Error: writing menus\.\S+ default/(growing|largest): etcdserver: request is too large\n$`, stderr)
		require.Equal(t, "Copying", c.phase(t))
		require.NoError(t, annotate("largest", 1), "Clients use the server as before.")
	}
	require.NoError(t, annotate("growing", 1))
	_, err = c.menus().Patch(t.Context(), "largest", types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/seats"},{"op":"remove","path":"/metadata/annotations"},{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	there = c.everything(t)
	code, _, stderr = c.migrate(t, "back", direct...)
	require.Equal(t, 0, code, stderr)
	require.Empty(t, cmp.Diff(there, c.everything(t)))
}
