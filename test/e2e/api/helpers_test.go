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
	"path"
	"strings"
	"testing"
	"time"

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
	// patience bounds every wait for something that happens in its own time. It
	// is generous: how fast things are is not what is tested here.
	patience = time.Minute
)

// config is the administrator's client configuration. Warnings of deprecated
// versions would only fill the tests' output.
func config() *rest.Config {
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func restaurantClient() versioned.Interface { return versioned.NewForConfigOrDie(config()) }

func kubeClient() kubernetes.Interface { return kubernetes.NewForConfigOrDie(config()) }

func dynamicClient() dynamic.Interface { return dynamic.NewForConfigOrDie(config()) }

// namespace makes a namespace for the test, which goes with it.
func namespace(t *testing.T) string {
	t.Helper()
	namespaces := kubeClient().CoreV1().Namespaces()
	created, err := namespaces.Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		err := namespaces.Delete(context.WithoutCancel(t.Context()), created.Name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
	return created.Name
}

// A subject is a kind in one version, as the tests see it that hold for all kinds
// and versions. Its objects belong to one test.
type subject struct {
	schema.GroupVersionKind
	resource string
	// namespace is empty for a kind of the whole cluster.
	namespace string
	// id tells the test's objects from all others, by label and by prefix of
	// their names.
	id string
}

// idLabel is on all objects of a test.
const idLabel = "e2e"

// forEachSubject runs a test for every kind in every version, side by side.
func forEachSubject(t *testing.T, test func(*testing.T, subject)) {
	t.Helper()
	for _, kind := range []string{"Pizza", "Topping"} {
		for _, version := range versions {
			t.Run(path.Join(kind, version), func(t *testing.T) {
				t.Parallel()
				test(t, newSubject(t, kind, version))
			})
		}
	}
}

// newSubject makes the namespace that the kind's objects need.
func newSubject(t *testing.T, kind, version string) subject {
	t.Helper()
	if kind == "Pizza" {
		return newSubjectIn(t, namespace(t), kind, version)
	}
	return newSubjectIn(t, "", kind, version)
}

// newSubjectIn sees to it that no objects remain of a kind that is in no namespace.
func newSubjectIn(t *testing.T, ns, kind, version string) subject {
	t.Helper()
	s := subject{
		GroupVersionKind: schema.GroupVersionKind{Group: restaurant.GroupName, Version: version, Kind: kind},
		resource:         strings.ToLower(kind) + "s",
		namespace:        ns,
		id:               "e2e-" + rand.String(8),
	}
	if ns == "" {
		t.Cleanup(func() {
			require.NoError(t, s.client().DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, s.all()))
		})
	}
	return s
}

// in returns the same objects in another version.
func (s subject) in(version string) subject {
	s.Version = version
	return s
}

// groupVersionResource is what the kind is called in paths.
func (s subject) groupVersionResource() schema.GroupVersionResource {
	return s.GroupVersion().WithResource(s.resource)
}

// details is how the server names one of the objects in an answer.
func (s subject) details(name string) *metav1.StatusDetails {
	return &metav1.StatusDetails{Name: name, Group: s.Group, Kind: s.resource}
}

// client works on the kind in this version, in the test's namespace if it has one.
func (s subject) client() dynamic.ResourceInterface { return s.clientFor(config()) }

func (s subject) clientFor(config *rest.Config) dynamic.ResourceInterface {
	client := dynamic.NewForConfigOrDie(config).Resource(s.groupVersionResource())
	if s.namespace == "" {
		return client
	}
	return client.Namespace(s.namespace)
}

// path is where the test's objects are.
func (s subject) path() string {
	elements := []string{"/apis", s.GroupVersion().String()}
	if s.namespace != "" {
		elements = append(elements, "namespaces", s.namespace)
	}
	return path.Join(append(elements, s.resource)...)
}

// all selects the objects of the test.
func (s subject) all() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: idLabel + "=" + s.id}
}

// name makes a name that no other test has.
func (s subject) name(suffix string) string { return s.id + "-" + suffix }

// new is a valid object, with all defaults written out.
func (s subject) new(suffix string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(s.GroupVersionKind)
	object.SetNamespace(s.namespace)
	object.SetName(s.name(suffix))
	object.SetLabels(map[string]string{idLabel: s.id})
	object.Object["spec"] = map[string]any{"cost": "1"}
	if s.Kind == "Pizza" {
		object.Object["spec"] = map[string]any{"toppings": toppingsIn(s.Version, "mozzarella", "tomato"), "replicas": int64(1)}
	}
	return object
}

// toppingsIn lists one portion each of some toppings, as a version spells it.
func toppingsIn(version string, names ...string) []any {
	var toppings []any
	for _, name := range names {
		if version == "v1alpha1" {
			toppings = append(toppings, name)
		} else {
			toppings = append(toppings, map[string]any{"name": name, "quantity": int64(1)})
		}
	}
	return toppings
}

// create creates an object as it is returned by new.
func (s subject) create(t *testing.T, suffix string) *unstructured.Unstructured {
	t.Helper()
	created, err := s.client().Create(t.Context(), s.new(suffix), metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// specField is a field of the spec with two valid values, the first of which
// objects have when they are new.
func (s subject) specField() (name string, first, second any) {
	if s.Kind == "Pizza" {
		return "replicas", int64(1), int64(2)
	}
	return "cost", "1", "2"
}

// change gives the field of specField its second value.
func (s subject) change(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	field, _, second := s.specField()
	require.NoError(t, unstructured.SetNestedField(object.Object, second, "spec", field))
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
