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
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/install"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// The tests in this file show what custom resources do as well, as far as no other
// test does; docs/crd-or-apiserver.md has the whole list.

// codecs read and write objects as the server stores them.
func codecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme)
}

// storePizza replaces what etcd has of a pizza, in a version and a media type.
func (s subject) storePizza(t *testing.T, suffix, version, mediaType string, change func(*restaurant.Pizza)) {
	t.Helper()
	client, key := etcdOf(t, cp.APIServer), s.keys()+suffix
	answer, err := client.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	stored, err := etcd.OpenValue(key, answer.Kvs[0].Value)
	require.NoError(t, err)
	pizza := &restaurant.Pizza{}
	require.NoError(t, runtime.DecodeInto(codecs().UniversalDecoder(), stored, pizza))
	change(pizza)
	i := slices.IndexFunc(codecs().SupportedMediaTypes(), func(info runtime.SerializerInfo) bool { return info.MediaType == mediaType })
	encoder := codecs().EncoderForVersion(codecs().SupportedMediaTypes()[i].Serializer, s.in(version).GroupVersion())
	value, err := runtime.Encode(encoder, pizza)
	require.NoError(t, err)
	swapped, err := client.Txn(t.Context()).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", answer.Kvs[0].ModRevision)).
		Then(clientv3.OpPut(key, string(value))).
		Else(clientv3.OpGet(key)). // As kine wants it.
		Commit()
	require.NoError(t, err)
	require.True(t, swapped.Succeeded)
}

// What was stored by other rules may stay as it is while something else changes.
func TestRatcheting(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	s.Create(t, "a")
	s.storePizza(t, "a", "v1", runtime.ContentTypeProtobuf, func(pizza *restaurant.Pizza) {
		pizza.Spec.Replicas = 2000
		pizza.Spec.Toppings[0].Quantity = 20
	})
	for _, version := range framework.Versions() {
		labelled, err := s.in(version).patch(t, "a", types.MergePatchType, `{"metadata":{"labels":{"seen-in":"`+version+`"}}}`)
		require.NoError(t, err)
		require.EqualValues(t, 2000, labelled.Object["spec"].(map[string]any)["replicas"])
		_, err = s.in(version).patch(t, "a", types.MergePatchType, `{"spec":{"replicas":2001}}`)
		status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
		require.Equal(t, []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.replicas", Message: "Invalid value: 2001: must be less than or equal to 1000",
		}}, status.Details.Causes)
	}
}

// What was stored in another version, or as JSON, is read, and moves to the version of
// the storage when it is written again.
func TestStorageMigration(t *testing.T) {
	t.Parallel()
	for _, stored := range framework.Versions() {
		for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
			t.Run(stored+"/"+mediaType, func(t *testing.T) {
				t.Parallel()
				s := newSubject(t, "Pizza", "v1")
				created := s.Create(t, "a")
				s.storePizza(t, "a", stored, mediaType, func(*restaurant.Pizza) {})
				for _, version := range framework.Versions() {
					read, err := s.in(version).Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{})
					require.NoError(t, err)
					require.Equal(t, s.in(version).New("a").Object["spec"], read.Object["spec"])
				}
				read, err := s.Client().Get(t.Context(), s.Name("a"), metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, created.Object["spec"], read.Object["spec"])
				updated, err := s.Client().Update(t.Context(), read, metav1.UpdateOptions{})
				require.NoError(t, err)
				require.EqualValues(t, 1, updated.GetGeneration())

				answer, err := etcdOf(t, cp.APIServer).Get(t.Context(), s.keys()+"a")
				require.NoError(t, err)
				var envelope runtime.Unknown
				value, err := etcd.OpenValue(s.keys()+"a", answer.Kvs[0].Value)
				require.NoError(t, err)
				require.Equal(t, "k8s\x00", string(value[:4]))
				require.NoError(t, envelope.Unmarshal(value[4:]))
				require.Equal(t, runtime.TypeMeta{APIVersion: restaurant.GroupName + "/v1", Kind: "Pizza"}, envelope.TypeMeta)
			})
		}
	}
}

// What x-kubernetes-validations are to a custom resource, a policy is to any kind, also
// if it compares the object with the old one.
func TestCELRules(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	client := framework.Kube(cp).AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.ID},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{framework.Label: s.ID}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{s.Group}, APIVersions: []string{"v1"}, Resources: []string{"pizzas"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{
				{Expression: "object.spec.toppings.all(t, t.quantity < 5)", Message: "not so much"},
				{Expression: "oldObject == null || object.spec.replicas >= oldObject.spec.replicas", Message: "never fewer"},
			},
		},
	}
	_, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.ValidatingAdmissionPolicies().Delete(context.WithoutCancel(t.Context()), s.ID, metav1.DeleteOptions{}))
	})
	_, err = client.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.ID},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.ID, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.ValidatingAdmissionPolicyBindings().Delete(context.WithoutCancel(t.Context()), s.ID, metav1.DeleteOptions{}))
	})

	s.Create(t, "a")
	// A policy takes effect in its own time.
	refusal := func(patch string) (message string) {
		controlplane.Eventually(t, func() error {
			_, err := s.Client().Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				return fmt.Errorf("%s is accepted", patch)
			}
			message = framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid).Message
			return nil
		})
		return message
	}
	require.Contains(t, refusal(`{"spec":{"toppings":[{"name":"tomato","quantity":5}]}}`), "not so much")
	_, err = s.patch(t, "a", types.MergePatchType, `{"spec":{"replicas":3}}`)
	require.NoError(t, err)
	require.Contains(t, refusal(`{"spec":{"replicas":2}}`), "never fewer")
}
