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
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

func gvr(version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: restaurant.GroupName, Version: version, Resource: resource}
}

func pizzas(version, namespace string) dynamic.ResourceInterface {
	return framework.Dynamic(cp).Resource(gvr(version, "pizzas")).Namespace(namespace)
}

func toppings(version string) dynamic.ResourceInterface {
	return framework.Dynamic(cp).Resource(gvr(version, "toppings"))
}

func pizza(version, name string, spec map[string]any) *unstructured.Unstructured {
	return framework.Object(version, "Pizza", name, spec)
}

// createTopping creates a topping, which a test deletes at its end if it does not do
// so itself.
func createTopping(t *testing.T, name string) {
	t.Helper()
	_, err := toppings("v1").Create(t.Context(), framework.Object("v1", "Topping", name, map[string]any{"cost": "1"}), metav1.CreateOptions{})
	require.NoError(t, err)
}

// eventually repeats what fails until it succeeds.
func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	controlplane.Eventually(t, func() error { return try(t.Context()) })
}

// requireServerError requires an error to be an answer of kube-apiserver that it has
// failed, for a reason that the message holds.
func requireServerError(t *testing.T, err error, message string) {
	t.Helper()
	var answer apierrors.APIStatus
	require.ErrorAs(t, err, &answer)
	require.EqualValues(t, 500, answer.Status().Code, answer.Status().Message)
	require.Contains(t, answer.Status().Message, message)
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	return string(content)
}
