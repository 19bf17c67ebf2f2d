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

package crd

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is written in one version reads right in all others, and back.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, written := range versions {
		t.Run(written, func(t *testing.T) {
			t.Parallel()
			ns := namespace(t)
			spec := map[string]any{"replicas": int64(3), "toppings": portions(written, "tomato", 1, "mozzarella", 2)}
			created, err := pizzas(written, ns).Create(t.Context(), pizza(written, "margherita", spec), metav1.CreateOptions{})
			require.NoError(t, err)
			for _, version := range versions {
				read, err := pizzas(version, ns).Get(t.Context(), "margherita", metav1.GetOptions{})
				require.NoError(t, err)
				want := created.DeepCopy()
				want.SetAPIVersion(gvr(version, "").GroupVersion().String())
				want.Object["spec"] = map[string]any{"replicas": int64(3), "toppings": portions(version, "tomato", 1, "mozzarella", 2)}
				require.Equal(t, want, read)
			}
		})
	}
}
