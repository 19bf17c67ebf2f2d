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
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A subject is what a test that holds for all kinds and versions is about.
type subject struct{ framework.Objects }

// newSubject makes the namespace that the kind's objects need, or sees to it that none
// remain of a kind that is in no namespace.
func newSubject(t *testing.T, kind, version string) subject {
	t.Helper()
	if kind == "Pizza" {
		return subject{framework.NewScope(t, cp).Objects(kind, version)}
	}
	s := subject{framework.NewClusterScope(t, cp).Objects(kind, version)}
	s.Cleanup(func(ctx context.Context) error {
		return s.Client().DeleteCollection(ctx, metav1.DeleteOptions{}, s.All())
	})
	return s
}

// in returns the same objects in another version.
func (s subject) in(version string) subject { return subject{s.In(version)} }

// change gives a field of the spec another valid value than a new object has.
func (s subject) change(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	field, value := "cost", any("2")
	if s.Kind == "Pizza" {
		field, value = "replicas", int64(2)
	}
	require.NoError(t, unstructured.SetNestedField(object.Object, value, "spec", field))
}
