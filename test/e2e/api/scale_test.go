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
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// The client of autoscalers works on the Scale of any kind that has one. It speaks JSON, and writes in the preferred version.
func TestScale(t *testing.T) {
	t.Parallel()
	discovery := framework.Kube(cp).Discovery()
	client, err := scale.NewForConfig(framework.Config(cp), restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(discovery))
	require.NoError(t, err)
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, "Pizza", version)
			scales, resource := client.Scales(s.Namespace), s.GroupVersionResource().GroupResource()
			object := s.Create(t, "a")
			object.Object["status"] = newStatus(1)
			object, err := s.Client().UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
			require.NoError(t, err)

			read, err := scales.Get(t.Context(), resource, s.Name("a"), metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, &autoscalingv1.Scale{
				TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
				ObjectMeta: metav1.ObjectMeta{
					Name: s.Name("a"), Namespace: s.Namespace, UID: object.GetUID(),
					ResourceVersion: object.GetResourceVersion(), CreationTimestamp: object.GetCreationTimestamp(),
				},
				Spec:   autoscalingv1.ScaleSpec{Replicas: 1},
				Status: autoscalingv1.ScaleStatus{Replicas: 1, Selector: "pizza=margherita"},
			}, read)

			read.Spec.Replicas = 5
			// Not the client's to say.
			read.Status = autoscalingv1.ScaleStatus{Replicas: 9, Selector: "other"}
			read.Labels = map[string]string{"other": "true"}
			updated, err := scales.Update(t.Context(), resource, read, metav1.UpdateOptions{FieldManager: "scaler"})
			require.NoError(t, err)
			scaled, err := s.Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, []string{".spec.replicas"}, owners(t, scaled)["scaler Update v1 scale"])
			want := object.DeepCopy()
			want.SetResourceVersion(updated.ResourceVersion)
			want.SetGeneration(2)
			want.SetManagedFields(scaled.GetManagedFields())
			require.NoError(t, unstructured.SetNestedField(want.Object, int64(5), "spec", "replicas"))
			require.Equal(t, want, scaled)

			// The first Scale is of an older pizza now.
			_, err = scales.Update(t.Context(), resource, read, metav1.UpdateOptions{})
			framework.RequireStatus(t, err, 409, metav1.StatusReasonConflict)
			// Without a resourceVersion the number holds whatever happened meanwhile, as "kubectl scale" wants it.
			updated.ResourceVersion = ""
			updated.Spec.Replicas = 6
			updated, err = scales.Update(t.Context(), resource, updated, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.EqualValues(t, 6, updated.Spec.Replicas)

			_, err = scales.Get(t.Context(), resource, s.Name("missing"), metav1.GetOptions{})
			require.Equal(t, s.Details(s.Name("missing")), framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound).Details)
		})
	}
}

// A scaler of one version is known in the others.
func TestScaleOwnerAcrossVersions(t *testing.T) {
	t.Parallel()
	for _, scaled := range framework.Versions() {
		for _, applied := range framework.Versions() {
			s := newSubject(t, "Pizza", scaled)
			s.Create(t, "a")
			_, err := s.Client().Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(`{"spec":{"replicas":5}}`),
				metav1.PatchOptions{FieldManager: "scaler"}, "scale")
			require.NoError(t, err)
			_, err = s.in(applied).apply(t, by("alice"), "spec", map[string]any{"replicas": int64(6)})
			requireFieldConflict(t, err, ".spec.replicas", `"scaler" with subresource "scale" using `+s.GroupVersion().String())
		}
	}
}
