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
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const finalizer = "example.com/e2e"

func TestFinalizers(t *testing.T) {
	forEachSubject(t, func(t *testing.T, s subject) {
		for _, name := range []string{"a", "b"} {
			object := s.New(name)
			object.SetFinalizers([]string{finalizer})
			_, err := s.Client().Create(t.Context(), object, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
		require.NoError(t, s.Client().DeleteCollection(t.Context(), metav1.DeleteOptions{}, s.All()))
		for _, name := range []string{"a", "b"} {
			held, err := s.Client().Get(t.Context(), s.Name(name), metav1.GetOptions{})
			require.NoError(t, err)
			require.NotNil(t, held.GetDeletionTimestamp())

			// It can still change, but not be held by more.
			s.change(t, held)
			_, err = s.Client().Update(t.Context(), held, metav1.UpdateOptions{})
			require.NoError(t, err)
			_, err = s.patch(t, name, types.MergePatchType, `{"metadata":{"finalizers":["`+finalizer+`","example.com/more"]}}`)
			status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
			require.Len(t, status.Details.Causes, 1)
			require.Equal(t, "metadata.finalizers", status.Details.Causes[0].Field)

			_, err = s.patch(t, name, types.MergePatchType, `{"metadata":{"finalizers":null}}`)
			require.NoError(t, err)
			_, err = s.Client().Get(t.Context(), s.Name(name), metav1.GetOptions{})
			framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
		}
	})
}

// participant is an object that owns others or is owned.
type participant struct {
	t      *testing.T
	client interface {
		Create(context.Context, *unstructured.Unstructured, metav1.CreateOptions, ...string) (*unstructured.Unstructured, error)
		Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error)
		Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*unstructured.Unstructured, error)
		Delete(context.Context, string, metav1.DeleteOptions, ...string) error
	}
	object *unstructured.Unstructured
}

// participants make a new object in a namespace.
var participants = map[string]func(t *testing.T, ns string) participant{
	"Pizza v1":         newPizza("v1"),
	"Pizza v1beta1":    newPizza("v1beta1"),
	"Pizza v1alpha1":   newPizza("v1alpha1"),
	"Topping v1":       newTopping("v1"),
	"Topping v1beta1":  newTopping("v1beta1"),
	"Topping v1alpha1": newTopping("v1alpha1"),
	"ConfigMap": func(t *testing.T, ns string) participant {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		object.SetGenerateName("e2e-")
		client := framework.Dynamic(cp).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
		return participant{t, client, object}
	},
}

func newPizza(version string) func(*testing.T, string) participant {
	return func(t *testing.T, ns string) participant {
		s := newSubjectIn(t, ns, version)
		return participant{t, s.Client(), s.New("a")}
	}
}

func newTopping(version string) func(*testing.T, string) participant {
	return func(t *testing.T, _ string) participant {
		s := newSubject(t, "Topping", version)
		return participant{t, s.Client(), s.New("a")}
	}
}

// create creates the object, for an owner if there is one, and held by a finalizer
// or not. It has another owner, who does not exist: once the garbage collector has
// taken that one away, it knows whose the object is.
func (p *participant) create(owner *participant, held bool) {
	p.t.Helper()
	if owner != nil {
		reference := metav1.OwnerReference{
			APIVersion: owner.object.GetAPIVersion(), Kind: owner.object.GetKind(), Name: owner.object.GetName(), UID: owner.object.GetUID(),
			BlockOwnerDeletion: new(true),
		}
		missing := reference
		missing.Name, missing.UID = "missing", uuid.NewUUID()
		p.object.SetOwnerReferences([]metav1.OwnerReference{reference, missing})
	}
	if held {
		p.object.SetFinalizers([]string{finalizer})
	}
	created, err := p.client.Create(p.t.Context(), p.object, metav1.CreateOptions{})
	require.NoError(p.t, err)
	p.object = created
}

// remove deletes the object.
func (p *participant) remove(policy metav1.DeletionPropagation) {
	p.t.Helper()
	require.NoError(p.t, p.client.Delete(p.t.Context(), p.object.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy}))
}

// release removes the finalizer.
func (p *participant) release() {
	p.t.Helper()
	_, err := p.client.Patch(p.t.Context(), p.object.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(p.t, err)
}

// read returns the object as it is now, nil if it is gone.
func (p *participant) read() *unstructured.Unstructured {
	p.t.Helper()
	object, err := p.client.Get(p.t.Context(), p.object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(p.t, err)
	return object
}

// waitFor waits until what holds of the object as it is now, nil if it is gone.
func (p *participant) waitFor(what string, holds func(*unstructured.Unstructured) bool) {
	p.t.Helper()
	controlplane.Eventually(p.t, func() error {
		if object := p.read(); !holds(object) {
			return fmt.Errorf("%s is not %s: %v", p.object.GetName(), what, object)
		}
		return nil
	})
}

func gone(object *unstructured.Unstructured) bool { return object == nil }

func beingDeleted(object *unstructured.Unstructured) bool {
	return object != nil && object.GetDeletionTimestamp() != nil
}

// The cluster's garbage collector treats owners and what they own as it does those
// of built-in kinds.
func TestGarbageCollection(t *testing.T) {
	for name, kinds := range map[string][2]string{
		"a pizza owns a config map":          {"Pizza v1", "ConfigMap"},
		"an older pizza owns a config map":   {"Pizza v1alpha1", "ConfigMap"},
		"a config map owns a pizza":          {"ConfigMap", "Pizza v1beta1"},
		"a pizza owns a pizza":               {"Pizza v1beta1", "Pizza v1alpha1"},
		"a topping owns a pizza":             {"Topping v1", "Pizza v1"},
		"an older topping owns a config map": {"Topping v1alpha1", "ConfigMap"},
		"a topping owns a topping":           {"Topping v1beta1", "Topping v1alpha1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := framework.Namespace(t, cp)
			pair := func(t *testing.T, held bool) (owner, owned *participant) {
				first, second := participants[kinds[0]](t, ns), participants[kinds[1]](t, ns)
				first.create(nil, false)
				second.create(&first, held)
				second.waitFor("known to the garbage collector", func(object *unstructured.Unstructured) bool {
					return len(object.GetOwnerReferences()) == 1
				})
				return &first, &second
			}
			t.Run("background", func(t *testing.T) {
				t.Parallel()
				owner, owned := pair(t, false)
				owner.remove(metav1.DeletePropagationBackground)
				require.Nil(t, owner.read())
				owned.waitFor("gone", gone)
			})
			t.Run("foreground", func(t *testing.T) {
				t.Parallel()
				owner, owned := pair(t, true)
				owner.remove(metav1.DeletePropagationForeground)
				require.Equal(t, []string{metav1.FinalizerDeleteDependents}, owner.read().GetFinalizers())
				owned.waitFor("being deleted", beingDeleted)
				require.NotNil(t, owner.read(), "The owner is gone before what it owns.")
				owned.release()
				owner.waitFor("gone", gone)
				require.Nil(t, owned.read())
			})
			t.Run("orphan", func(t *testing.T) {
				t.Parallel()
				owner, owned := pair(t, false)
				owner.remove(metav1.DeletePropagationOrphan)
				owner.waitFor("gone", gone)
				require.Empty(t, owned.read().GetOwnerReferences())
				require.False(t, beingDeleted(owned.read()))
			})
		})
	}
}

// An owner that does not exist is found out.
func TestGarbageCollectionOfTheOwnerless(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	for name, participate := range participants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			missing, owned := participants["Topping v1"](t, ns), participate(t, ns)
			missing.object.SetUID("00000000-0000-0000-0000-000000000000")
			owned.create(&missing, false)
			owned.waitFor("gone", gone)
		})
	}
}

func TestNamespaceDeletion(t *testing.T) {
	framework.Long(t, "the controllers of the cluster take their time")
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	namespaces := framework.Kube(cp).CoreV1().Namespaces()
	for _, version := range framework.Versions() {
		s.in(version).Create(t, version)
	}
	held := s.New("held")
	held.SetFinalizers([]string{finalizer})
	_, err := s.Client().Create(t.Context(), held, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, namespaces.Delete(t.Context(), s.Namespace, metav1.DeleteOptions{}))

	for _, version := range framework.Versions() {
		late := s.in(version)
		// The server hears of it a moment later.
		var refused error
		controlplane.Eventually(t, func() error {
			_, refused = late.Client().Create(t.Context(), late.New("late"), metav1.CreateOptions{DryRun: dry})
			if refused == nil {
				return fmt.Errorf("a pizza can be created in %s", s.Namespace)
			}
			return nil
		})
		status := framework.RequireStatus(t, refused, 403, metav1.StatusReasonForbidden)
		require.Equal(t, []metav1.StatusCause{{
			Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace",
			Message: "namespace " + s.Namespace + " is being terminated",
		}}, status.Details.Causes)
		_, err = late.Client().Apply(t.Context(), s.Name("late"), late.New("late"), by("e2e"))
		framework.RequireStatus(t, err, 403, metav1.StatusReasonForbidden)
	}

	controlplane.Eventually(t, func() error {
		ns, err := namespaces.Get(t.Context(), s.Namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range ns.Status.Conditions {
			if condition.Type == corev1.NamespaceFinalizersRemaining && condition.Status == corev1.ConditionTrue {
				want := "Some content in the namespace has finalizers remaining: " + finalizer + " in 1 resource instances"
				require.Equal(t, want, condition.Message)
				return nil
			}
		}
		return fmt.Errorf("the namespace does not say what it waits for: %v", ns.Status.Conditions)
	})
	require.Equal(t, []string{"held"}, s.listed(t, metav1.ListOptions{}))
	object, err := s.Client().Get(t.Context(), s.Name("held"), metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, beingDeleted(object))

	_, err = s.patch(t, "held", types.MergePatchType, `{"metadata":{"finalizers":null}}`)
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		_, err := namespaces.Get(t.Context(), s.Namespace, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the namespace is still there: %w", err)
		}
		return nil
	})
}

func TestMissingNamespace(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		s := newSubjectIn(t, "e2e-missing", version)
		for name, try := range map[string]func() error{
			"create": func() error {
				_, err := s.Client().Create(t.Context(), s.New("a"), metav1.CreateOptions{})
				return err
			},
			"dry run": func() error {
				_, err := s.Client().Create(t.Context(), s.New("a"), metav1.CreateOptions{DryRun: dry})
				return err
			},
			"apply": func() error {
				_, err := s.Client().Apply(t.Context(), s.Name("a"), s.New("a"), by("e2e"))
				return err
			},
		} {
			status := framework.RequireStatus(t, try(), 404, metav1.StatusReasonNotFound)
			require.Equal(t, &metav1.StatusDetails{Name: "e2e-missing", Kind: "namespaces"}, status.Details, name)
		}
		require.Empty(t, s.listed(t, metav1.ListOptions{}))
	}
}

// The cluster's quota controller counts pizzas.
func TestQuotaIsCounted(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	s.Create(t, "a")
	s.in("v1alpha1").Create(t, "b")
	pizzas := corev1.ResourceName("count/" + s.GroupVersionResource().GroupResource().String())
	quotas := framework.Kube(cp).CoreV1().ResourceQuotas(s.Namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pizzas"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{pizzas: resource.MustParse("5")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	used := func(want int64) func() error {
		return func() error {
			quota, err := quotas.Get(t.Context(), "pizzas", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if got, ok := quota.Status.Used[pizzas]; !ok || got.Value() != want {
				return fmt.Errorf("of %d pizzas %v are counted", want, quota.Status.Used)
			}
			return nil
		}
	}
	controlplane.Eventually(t, used(2))
	require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
	controlplane.Eventually(t, used(1))
}
