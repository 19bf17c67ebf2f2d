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

package testing

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// drill is the apply of a client that knows only these fields of its spec.
func drill(spec map[string]any) *unstructured.Unstructured {
	of := machine("drill")
	of.Object["spec"] = spec
	return of
}

func part(name string) map[string]any { return map[string]any{"name": name} }

// TestApply is server-side apply by several appliers, KEP-555.
func TestApply(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	client := machines(t, server.ClientConfig)
	apply := func(manager string, obj *unstructured.Unstructured, subresources ...string) (*unstructured.Unstructured, error) {
		return client.Apply(t.Context(), "drill", obj, metav1.ApplyOptions{FieldManager: manager}, subresources...)
	}
	_, err := apply("first", drill(map[string]any{"replicas": int64(2), "parts": []any{part("motor")}}))
	require.NoError(t, err, "An apply creates.")

	// Each part has an owner of its own.
	got, err := apply("second", drill(map[string]any{"turbo": true, "parts": []any{part("bit")}}))
	require.NoError(t, err)
	require.Equal(t, []string{"motor", "bit"}, parts(t, got))

	_, err = apply("second", drill(map[string]any{"replicas": int64(3)}))
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.ErrorContains(t, err, `conflict with "first": .spec.replicas`)

	// A field that an applier no longer mentions is removed, unless another applier has it,
	// too.
	got, err = apply("second", drill(map[string]any{"turbo": true}))
	require.NoError(t, err)
	require.Equal(t, []string{"motor"}, parts(t, got))

	// Nobody owns the status by an apply of the whole, nor the spec by one of the status.
	whole := drill(map[string]any{"turbo": true})
	whole.Object["status"] = map[string]any{"replicas": int64(1)}
	_, err = apply("controller", whole, "status")
	require.NoError(t, err)
	got, err = apply("second", whole)
	require.NoError(t, err)
	require.Equal(t, map[string][]string{
		"first":      {`.spec.replicas`, `.spec.parts`},
		"second":     {`.spec.turbo`},
		"controller": {`.status.replicas`},
	}, owners(t, got))
}

func parts(t *testing.T, of *unstructured.Unstructured) (names []string) {
	t.Helper()
	all, _, err := unstructured.NestedSlice(of.Object, "spec", "parts")
	require.NoError(t, err)
	for _, part := range all {
		names = append(names, part.(map[string]any)["name"].(string))
	}
	return names
}

// owners returns the fields that managers own, one level below spec and status.
func owners(t *testing.T, of *unstructured.Unstructured) map[string][]string {
	t.Helper()
	fields := map[string][]string{}
	for _, entry := range of.GetManagedFields() {
		set := &fieldpath.Set{}
		require.NoError(t, set.FromJSON(entry.FieldsV1.GetRawReader()))
		seen := map[string]bool{}
		set.Iterate(func(path fieldpath.Path) {
			if name := path[:min(2, len(path))].String(); !seen[name] {
				seen[name] = true
				fields[entry.Manager] = append(fields[entry.Manager], name)
			}
		})
	}
	return fields
}
