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
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// caseLabel has the name of its object as its value. By it, webhooks and policies of a case
// of a table select the object of their case.
const caseLabel = "admission-test-case"

// dryRun is for the options of a request.
var dryRun = []string{metav1.DryRunAll}

// A scope is what belongs to one test. Its webhooks apply to the requests of its user, and
// its policies to its namespace.
type scope struct {
	*framework.Scope

	t *testing.T
}

// newScope makes the namespace of a test, which runs side by side with others.
func newScope(t *testing.T) *scope {
	t.Helper()
	t.Parallel()
	return &scope{framework.NewScope(t, cp), t}
}

// beside is another namespace of the test, with an own user.
func (s *scope) beside(suffix string) *scope {
	s.t.Helper()
	return &scope{s.Beside(suffix), s.t}
}

// user is the client configuration of a user who may do anything.
func (s *scope) user() *rest.Config {
	config := framework.Config(cp)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: s.ID, UID: "uid-of-" + s.ID, Groups: []string{"kitchen", "system:masters"}, Extra: map[string][]string{"example.com/shift": {"late", "früh"}},
	}
	return config
}

// pizzas is the user's client for the pizzas of the test's namespace in a version.
func (s *scope) pizzas(version string) dynamic.ResourceInterface {
	return s.Objects("Pizza", version).ClientFor(s.user())
}

// toppings is the user's client for toppings in a version.
func (s *scope) toppings(version string) dynamic.ResourceInterface {
	return s.Objects("Topping", version).ClientFor(s.user())
}

// object is a valid object of the test, with the label for its case.
func (s *scope) object(kind, version, suffix string) *unstructured.Unstructured {
	object := s.Objects(kind, version).New(suffix)
	labels := object.GetLabels()
	labels[caseLabel] = object.GetName()
	object.SetLabels(labels)
	return object
}

// pizza is a pizza with these toppings, or with tomato.
func (s *scope) pizza(version, suffix string, toppings ...string) *unstructured.Unstructured {
	if toppings == nil {
		toppings = []string{"tomato"}
	}
	pizza := s.object("Pizza", version, suffix)
	set(pizza, framework.Toppings(version, toppings...), "spec", "toppings")
	return pizza
}

// createPizza creates what pizza returns.
func (s *scope) createPizza(version, suffix string, toppings ...string) *unstructured.Unstructured {
	s.t.Helper()
	created, err := s.pizzas(version).Create(s.t.Context(), s.pizza(version, suffix, toppings...), metav1.CreateOptions{})
	require.NoError(s.t, err)
	return created
}

// createTopping creates a topping until the test ends.
func (s *scope) createTopping(version, suffix string) *unstructured.Unstructured {
	s.t.Helper()
	s.Cleanup(func(ctx context.Context) error {
		return s.Objects("Topping", version).Client().Delete(ctx, s.Name(suffix), metav1.DeleteOptions{})
	})
	return s.Objects("Topping", version).Create(s.t, suffix)
}

// bake is an order to bake a pizza.
func (s *scope) bake(version, suffix string, count int64) *unstructured.Unstructured {
	return s.Objects("Bake", version).With(suffix, map[string]any{"count": count})
}

// track follows a pizza, and returns all of what is said.
func (s *scope) track(version, suffix, query string) (string, error) {
	path := s.Objects("Pizza", version).Path() + "/" + s.Name(suffix) + "/track?" + query
	answer := kubernetes.NewForConfigOrDie(s.user()).Discovery().RESTClient().Get().RequestURI(path).Do(s.t.Context())
	if err := answer.Error(); err != nil {
		return "", err
	}
	said, err := answer.Raw()
	return string(said), err
}

func set(object *unstructured.Unstructured, value any, fields ...string) {
	if err := unstructured.SetNestedField(object.Object, value, fields...); err != nil {
		panic(err)
	}
}

func get(object *unstructured.Unstructured, fields ...string) any {
	value, _, err := unstructured.NestedFieldCopy(object.Object, fields...)
	if err != nil {
		panic(err)
	}
	return value
}

// selected selects the object of a case.
func (s *scope) selected(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{caseLabel: s.Name(name)}}
}

// rule is for all versions of resources of the restaurant.
func rule(operation admissionregistrationv1.OperationType, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{restaurant.GroupName}, APIVersions: []string{"*"}, Resources: resources},
	}
}

// of restricts a rule to a version.
func of(rule admissionregistrationv1.RuleWithOperations, version string) admissionregistrationv1.RuleWithOperations {
	rule.APIVersions = []string{version}
	return rule
}

func conditions(expressions ...string) (conditions []admissionregistrationv1.MatchCondition) {
	for i, expression := range expressions {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: expression})
	}
	return conditions
}

// registrations is a client of a kind of admissionregistration.k8s.io. Both versions of
// mutating policies have the same fields.
func registrations(kind string) (dynamic.ResourceInterface, string) {
	gvk := admissionregistrationv1.SchemeGroupVersion.WithKind(kind)
	if strings.HasPrefix(kind, "MutatingAdmissionPolicy") {
		gvk.Version = framework.MutatingPolicyVersion()
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return framework.Dynamic(cp).Resource(resource), gvk.GroupVersion().String()
}

// createRegistration creates an object of a kind of admissionregistration.k8s.io until the test ends.
func (s *scope) createRegistration(kind, name string, content any) {
	s.t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(content)
	require.NoError(s.t, err)
	object := &unstructured.Unstructured{Object: fields}
	client, apiVersion := registrations(kind)
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetName(s.Name(name))
	_, err = client.Create(s.t.Context(), object, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.Cleanup(func(ctx context.Context) error { return client.Delete(ctx, object.GetName(), metav1.DeleteOptions{}) })
}

// awaitRefusal waits until a topping, the marker of a configuration, is refused. A server takes a
// configuration as a whole, so all of it is in effect then.
func (s *scope) awaitRefusal(marker, want string) {
	s.t.Helper()
	controlplane.Eventually(s.t, func() error {
		_, err := s.toppings("v1").Create(s.t.Context(), s.object("Topping", "v1", marker), metav1.CreateOptions{DryRun: dryRun})
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("the configuration %s is not in effect: %w", s.Name(marker), err)
		}
		return nil
	})
}
