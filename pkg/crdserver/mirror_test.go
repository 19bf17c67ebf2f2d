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

package crdserver

import (
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

func definition(group string) *apiextensionsv1.CustomResourceDefinition {
	now := metav1.Now()
	grace := int64(0)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "widgets." + group, UID: "uid", ResourceVersion: "7", Generation: 3,
			Annotations:       map[string]string{lastApplied: "{}", "api-approved.kubernetes.io": "https://example.com"},
			Finalizers:        []string{apiextensionsv1.CustomResourceCleanupFinalizer},
			DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
				{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue},
			},
			StoredVersions: []string{"v1"},
		},
	}
}

// apiextensions-apiserver deletes the objects of a definition that is being deleted, so a copy never is.
func TestCopyIsNotBeingDeleted(t *testing.T) {
	t.Parallel()
	original := definition("example.com")
	require.Equal(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "widgets.example.com", UID: "uid", Generation: 3,
			Annotations: map[string]string{"api-approved.kubernetes.io": "https://example.com"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com"},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions:     []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
			StoredVersions: []string{"v1"},
		},
	}, copyOf(original))
	require.Len(t, original.Annotations, 2, "The original has changed.")
	require.Len(t, original.Status.Conditions, 2, "The original has changed.")
}

// Definitions of other groups are reduced to the necessary fields.
func TestSlim(t *testing.T) {
	t.Parallel()
	m := &mirror{groups: sets.New("example.com")}
	chosen := definition("example.com")
	kept, err := m.slim(chosen)
	require.NoError(t, err)
	require.Same(t, chosen, kept)
	slim, err := m.slim(definition("example.org"))
	require.NoError(t, err)
	require.Equal(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.org", UID: "uid", ResourceVersion: "7"},
	}, slim)
}
