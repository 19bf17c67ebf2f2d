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
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// dry is how a client says that nothing may be persisted.
var dry = []string{metav1.DryRunAll}

// trial is a write that is only tried. It returns the answer, nil for none.
type trial func() (*unstructured.Unstructured, error)

func TestDryRun(t *testing.T) {
	forEachSubject(t, func(t *testing.T, s subject) {
		field, _, second := s.specField()
		existing := s.Create(t, "a")
		s.Create(t, "b")
		changes := map[string]trial{
			"update": func() (*unstructured.Unstructured, error) {
				object := existing.DeepCopy()
				s.change(t, object)
				return s.Client().Update(t.Context(), object, metav1.UpdateOptions{DryRun: dry})
			},
			"apply": func() (*unstructured.Unstructured, error) {
				object := s.New("a")
				s.change(t, object)
				return s.Client().Apply(t.Context(), s.Name("a"), object, metav1.ApplyOptions{DryRun: dry, FieldManager: "e2e", Force: true})
			},
			"JSON patch":            s.triedPatch(t, types.JSONPatchType, []map[string]any{{"op": "replace", "path": "/spec/" + field, "value": second}}),
			"merge patch":           s.triedPatch(t, types.MergePatchType, map[string]any{"spec": map[string]any{field: second}}),
			"strategic merge patch": s.triedPatch(t, types.StrategicMergePatchType, map[string]any{"spec": map[string]any{field: second}}),
		}
		before := s.stored(t)
		require.Len(t, before, 2)
		for name, try := range changes {
			changed, err := try()
			require.NoError(t, err, name)
			got, _, err := unstructured.NestedFieldNoCopy(changed.Object, "spec", field)
			require.NoError(t, err, name)
			require.Equal(t, second, got, name)
			require.EqualValues(t, 2, changed.GetGeneration(), name)
			require.Equal(t, existing.GetUID(), changed.GetUID(), name)
			require.Equal(t, before, s.stored(t), "%s was persisted.", name)
		}
		// What would not be done is not said to be done.
		stale := existing.DeepCopy()
		stale.SetResourceVersion("1")
		_, err := s.Client().Update(t.Context(), stale, metav1.UpdateOptions{DryRun: dry})
		framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)

		for name, try := range map[string]trial{
			"create": func() (*unstructured.Unstructured, error) {
				return s.Client().Create(t.Context(), s.New("c"), metav1.CreateOptions{DryRun: dry})
			},
			"apply": func() (*unstructured.Unstructured, error) {
				return s.Client().Apply(t.Context(), s.Name("c"), s.New("c"), metav1.ApplyOptions{DryRun: dry, FieldManager: "e2e"})
			},
			"generate a name": func() (*unstructured.Unstructured, error) {
				object := s.New("c")
				object.SetName("")
				object.SetGenerateName(s.ID + "-")
				return s.Client().Create(t.Context(), object, metav1.CreateOptions{DryRun: dry})
			},
		} {
			created, err := try()
			require.NoError(t, err, name)
			require.NotEmpty(t, created.GetName(), name)
			require.NotEmpty(t, created.GetUID(), name)
			require.Empty(t, created.GetResourceVersion(), name)
			require.Equal(t, s.New("c").Object["spec"], created.Object["spec"], name)
			require.Equal(t, before, s.stored(t), "%s was persisted.", name)
		}
		_, err = s.Client().Create(t.Context(), s.New("a"), metav1.CreateOptions{DryRun: dry})
		framework.RequireStatus(t, err, 409, metav1.StatusReasonAlreadyExists)

		for _, policy := range []metav1.DeletionPropagation{
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
		} {
			options := metav1.DeleteOptions{DryRun: dry, PropagationPolicy: &policy}
			require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), options), policy)
			require.Equal(t, before, s.stored(t), "A delete in the %s was persisted.", policy)
			require.NoError(t, s.Client().DeleteCollection(t.Context(), options, s.All()), policy)
			require.Equal(t, before, s.stored(t), "A deletecollection in the %s was persisted.", policy)
		}
		err = s.Client().Delete(t.Context(), s.Name("missing"), metav1.DeleteOptions{DryRun: dry})
		framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)

		_, err = s.Client().Create(t.Context(), s.New("c"), metav1.CreateOptions{DryRun: []string{"Some"}})
		status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
		require.Equal(t, "dryRun", status.Details.Causes[0].Field)
		require.Equal(t, before, s.stored(t))
	})
}

// The last finalizer's removal deletes an object; tried only, it does not.
func TestDryRunOfTheLastFinalizer(t *testing.T) {
	forEachSubject(t, func(t *testing.T, s subject) {
		object := s.New("a")
		object.SetFinalizers([]string{"example.com/e2e"})
		_, err := s.Client().Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
		before := s.stored(t)
		require.Len(t, before, 1)

		patch := []byte(`{"metadata":{"finalizers":null}}`)
		_, err = s.Client().Patch(t.Context(), s.Name("a"), types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry})
		require.NoError(t, err)
		require.Equal(t, before, s.stored(t))
		_, err = s.Client().Patch(t.Context(), s.Name("a"), types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		require.Empty(t, s.stored(t))
	})
}

func TestDryRunOfSubresources(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, "Pizza", version)
			existing := s.Create(t, "a")
			before := s.stored(t)
			status := map[string]any{"status": map[string]any{"replicas": 2}}
			scale := map[string]any{"spec": map[string]any{"replicas": 2}}
			for name, try := range map[string]trial{
				"update status": func() (*unstructured.Unstructured, error) {
					object := existing.DeepCopy()
					require.NoError(t, unstructured.SetNestedField(object.Object, int64(2), "status", "replicas"))
					return s.Client().UpdateStatus(t.Context(), object, metav1.UpdateOptions{DryRun: dry})
				},
				"apply status": func() (*unstructured.Unstructured, error) {
					options := metav1.ApplyOptions{DryRun: dry, FieldManager: "e2e"}
					return s.apply(t, options, "status", map[string]any{"replicas": int64(2)}, "status")
				},
				"JSON patch of status": s.triedPatch(t, types.JSONPatchType,
					[]map[string]any{{"op": "replace", "path": "/status/replicas", "value": 2}}, "status"),
				"merge patch of status":           s.triedPatch(t, types.MergePatchType, status, "status"),
				"strategic merge patch of status": s.triedPatch(t, types.StrategicMergePatchType, status, "status"),
			} {
				tried, err := try()
				require.NoError(t, err, name)
				got, _, err := unstructured.NestedInt64(tried.Object, "status", "replicas")
				require.NoError(t, err, name)
				require.EqualValues(t, 2, got, name)
				require.Equal(t, before, s.stored(t), "%s was persisted.", name)
			}
			for name, try := range map[string]trial{
				"update scale": func() (*unstructured.Unstructured, error) {
					object, err := s.Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{}, "scale")
					require.NoError(t, err)
					require.NoError(t, unstructured.SetNestedField(object.Object, int64(2), "spec", "replicas"))
					return s.Client().Update(t.Context(), object, metav1.UpdateOptions{DryRun: dry}, "scale")
				},
				"apply scale": func() (*unstructured.Unstructured, error) {
					object := &unstructured.Unstructured{Object: map[string]any{
						"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": int64(2)},
					}}
					object.SetName(s.Name("a"))
					return s.Client().Apply(t.Context(), s.Name("a"), object,
						metav1.ApplyOptions{DryRun: dry, FieldManager: "e2e", Force: true}, "scale")
				},
				"JSON patch of scale": s.triedPatch(t, types.JSONPatchType,
					[]map[string]any{{"op": "replace", "path": "/spec/replicas", "value": 2}}, "scale"),
				"merge patch of scale":           s.triedPatch(t, types.MergePatchType, scale, "scale"),
				"strategic merge patch of scale": s.triedPatch(t, types.StrategicMergePatchType, scale, "scale"),
			} {
				tried, err := try()
				require.NoError(t, err, name)
				got, _, err := unstructured.NestedInt64(tried.Object, "spec", "replicas")
				require.NoError(t, err, name)
				require.EqualValues(t, 2, got, name)
				require.Equal(t, before, s.stored(t), "%s was persisted.", name)
			}
		})
	}
}

// triedPatch tries to patch the object "a".
func (s subject) triedPatch(t *testing.T, as types.PatchType, patch any, subresources ...string) trial {
	return func() (*unstructured.Unstructured, error) {
		data, err := json.Marshal(patch)
		require.NoError(t, err)
		return s.Client().Patch(t.Context(), s.Name("a"), as, data, metav1.PatchOptions{DryRun: dry}, subresources...)
	}
}
