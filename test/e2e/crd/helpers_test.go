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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// versions are all versions of the API, the oldest first.
var versions = []string{"v1alpha1", "v1beta1", "v1"}

// config is the administrator's client configuration.
func config() *rest.Config {
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func dynamicClient() dynamic.Interface { return dynamic.NewForConfigOrDie(config()) }

func gvr(version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: restaurant.GroupName, Version: version, Resource: resource}
}

// namespace makes a namespace for the test. It stays, as no controller is there to
// empty it.
func namespace(t *testing.T) string {
	t.Helper()
	created, err := kubernetes.NewForConfigOrDie(config()).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "crd-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return created.Name
}

// pizzas is a client for the pizzas of a namespace in a version.
func pizzas(version, namespace string) dynamic.ResourceInterface {
	return dynamicClient().Resource(gvr(version, "pizzas")).Namespace(namespace)
}

func toppings(version string) dynamic.ResourceInterface {
	return dynamicClient().Resource(gvr(version, "toppings"))
}

// pizza is a pizza in a version, with a spec.
func pizza(version, name string, spec map[string]any) *unstructured.Unstructured {
	return object(version, "Pizza", name, spec)
}

// object has no spec if that is nil.
func object(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(restaurant.Kind(kind).WithVersion(version))
	object.SetName(name)
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object
}

// portions are toppings as a version spells them, each with a quantity.
func portions(version string, pairs ...any) []any {
	var toppings []any
	for i := 0; i < len(pairs); i += 2 {
		name, quantity := pairs[i].(string), pairs[i+1].(int)
		if version != "v1alpha1" {
			toppings = append(toppings, map[string]any{"name": name, "quantity": int64(quantity)})
			continue
		}
		for range quantity {
			toppings = append(toppings, name)
		}
	}
	return toppings
}

// createTopping creates a topping, which a test deletes at its end if it does not do
// so itself.
func createTopping(t *testing.T, name string) {
	t.Helper()
	_, err := toppings("v1").Create(t.Context(), object("v1", "Topping", name, map[string]any{"cost": "1"}), metav1.CreateOptions{})
	require.NoError(t, err)
}

// eventually repeats what fails until it succeeds.
func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	controlplane.Eventually(t, func() error { return try(t.Context()) })
}

// requireStatus requires an error to be an answer of the server with this code and
// reason, and returns the answer.
func requireStatus(t *testing.T, err error, code int32, reason metav1.StatusReason) metav1.Status {
	t.Helper()
	var answer apierrors.APIStatus
	require.ErrorAs(t, err, &answer)
	status := answer.Status()
	require.Equal(t, code, status.Code, status.Message)
	require.Equal(t, reason, status.Reason, status.Message)
	return status
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
