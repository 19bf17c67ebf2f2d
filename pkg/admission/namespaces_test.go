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

package admission

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Only a namespace that is certainly gone is replaced.
func TestNamespacesFor(t *testing.T) {
	t.Parallel()
	there := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "there", Labels: map[string]string{"a": "b"}}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "refused", nil)
	client := fake.NewClientset(there)
	client.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.(clienttesting.GetAction).GetName() == "refused", nil, forbidden
	})
	for name, test := range map[string]struct {
		labels map[string]string
		err    error
	}{
		"there":   {there.Labels, nil},
		"gone":    {map[string]string{"kubernetes.io/metadata.name": "gone"}, nil},
		"refused": {nil, forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, err := namespacesFor{client}.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
			if diff := cmp.Diff(test.err, err); diff != "" {
				t.Fatalf("unexpected error (-want +got):\n%s", diff)
			}
			if err == nil && (namespace.Name != name || !maps.Equal(namespace.Labels, test.labels)) {
				t.Errorf("got %s with the labels %v, want %s with %v", namespace.Name, namespace.Labels, name, test.labels)
			}
		})
	}
}
