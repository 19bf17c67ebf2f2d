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
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
)

// versions are all versions of the API, the oldest first.
var versions = []string{"v1alpha1", "v1beta1", "v1"}

const (
	// testLabel has the id of the test that an object or a namespace belongs to.
	testLabel = "admission-test"
)

// config is the administrator's client configuration.
func config() *rest.Config {
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func kubeClient() kubernetes.Interface { return kubernetes.NewForConfigOrDie(config()) }

func restaurantClient() versioned.Interface { return versioned.NewForConfigOrDie(config()) }

// A scope is what belongs to one test: a namespace, and a label for the objects
// that its webhooks and policies select.
type scope struct {
	t         *testing.T
	id        string
	namespace string
}

// newScope makes the namespace of a test, which runs side by side with others.
func newScope(t *testing.T) *scope {
	t.Helper()
	t.Parallel()
	s := &scope{t: t, id: "test-" + rand.String(8)}
	s.namespace = s.id
	namespaces := kubeClient().CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: s.labels()}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.cleanup(func(ctx context.Context) error { return namespaces.Delete(ctx, s.namespace, metav1.DeleteOptions{}) })
	return s
}

func (s *scope) labels() map[string]string { return map[string]string{testLabel: s.id} }

// selector selects the objects of the test, or its namespace.
func (s *scope) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: s.labels()}
}

// name makes a name that no other test has.
func (s *scope) name(suffix string) string { return s.id + "-" + suffix }

// cleanup undoes something when the test ends.
func (s *scope) cleanup(undo func(context.Context) error) {
	s.t.Cleanup(func() {
		if err := undo(context.WithoutCancel(s.t.Context())); !apierrors.IsNotFound(err) {
			require.NoError(s.t, err)
		}
	})
}

// pizzas is a client for the pizzas of the test's namespace in a version.
func (s *scope) pizzas(version string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(config()).Resource(resource(version, "pizzas")).Namespace(s.namespace)
}

// toppings is a client for toppings in a version.
func (s *scope) toppings(version string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(config()).Resource(resource(version, "toppings"))
}

func resource(version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: restaurant.GroupName, Version: version, Resource: name}
}

// pizza is a valid pizza of the test with one mozzarella.
func (s *scope) pizza(version, suffix string) *unstructured.Unstructured {
	toppings := []any{map[string]any{"name": "mozzarella", "quantity": int64(1)}}
	if version == "v1alpha1" {
		toppings = []any{"mozzarella"}
	}
	pizza := s.object(version, "Pizza", suffix, map[string]any{"toppings": toppings, "replicas": int64(1)})
	pizza.SetNamespace(s.namespace)
	return pizza
}

// topping is a valid topping of the test.
func (s *scope) topping(version, suffix string) *unstructured.Unstructured {
	return s.object(version, "Topping", suffix, map[string]any{"cost": "1"})
}

func (s *scope) object(version, kind, suffix string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: restaurant.GroupName, Version: version, Kind: kind})
	object.SetName(s.name(suffix))
	object.SetLabels(s.labels())
	return object
}

// createPizza creates a pizza as it is returned by pizza.
func (s *scope) createPizza(version, suffix string) *unstructured.Unstructured {
	s.t.Helper()
	created, err := s.pizzas(version).Create(s.t.Context(), s.pizza(version, suffix), metav1.CreateOptions{})
	require.NoError(s.t, err)
	return created
}

// createTopping creates a topping as it is returned by topping, until the test ends.
func (s *scope) createTopping(version, suffix string) *unstructured.Unstructured {
	s.t.Helper()
	created, err := s.toppings(version).Create(s.t.Context(), s.topping(version, suffix), metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.cleanup(func(ctx context.Context) error {
		return s.toppings(version).Delete(ctx, created.GetName(), metav1.DeleteOptions{})
	})
	return created
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
