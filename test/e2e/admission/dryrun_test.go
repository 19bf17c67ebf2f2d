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
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestSideEffects shows for every request that a dry run calls webhooks without
// side effects. A dry run that would have some is refused under each failure
// policy.
func TestSideEffects(t *testing.T) {
	for sideEffects, called := range map[admissionregistrationv1.SideEffectClass]bool{
		// TestReviews calls webhooks that have none at all.
		admissionregistrationv1.SideEffectClassNoneOnDryRun: true,
		// Nobody can register these two any more, but a cluster may have them from
		// the time of admissionregistration.k8s.io/v1beta1.
		admissionregistrationv1.SideEffectClassSome:    false,
		admissionregistrationv1.SideEffectClassUnknown: false,
	} {
		for _, sort := range []string{"Validating", "Mutating"} {
			t.Run(string(sideEffects)+"/"+strings.ToLower(sort), func(t *testing.T) {
				s := newScope(t)
				recorder := s.recorder()
				webhook := recorder.validating(pizzaKind.recordingRule(), toppingKind.recordingRule())
				webhook.ObjectSelector, webhook.MatchConditions = nil, s.forCook()
				webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
				s.storeConfiguration(sort, sideEffects, webhook)
				refusal := fmt.Sprintf("admission webhook %q does not support dry run", webhook.Name)
				controlplane.Eventually(t, func() error {
					_, err := pizzaKind.client(s, s.cook(), "v1").Create(t.Context(), s.pizza("v1", "a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					if len(recorder.ofCook()) > 0 || apierrors.IsBadRequest(err) && strings.Contains(err.Error(), refusal) {
						return nil
					}
					return fmt.Errorf("the configuration is not in effect: %w", err)
				})
				for _, kind := range []servedKind{pizzaKind, toppingKind} {
					for _, version := range framework.Versions() {
						for i, name := range slices.Sorted(maps.Keys(reviews)) {
							test := reviews[name]
							if test.of != nil && !slices.Contains(test.of, kind) {
								continue
							}
							t.Run(kind.kind+"/"+version+"/"+name, func(t *testing.T) {
								r := s.newReviewedRequest(t, kind, version, fmt.Sprintf("%s-%d", version, i), test.existing)
								before := len(recorder.ofCook())
								r.dryRun = []string{metav1.DryRunAll}
								err := test.send(r)
								calls := recorder.ofCook()[before:]
								if !called {
									status := framework.RequireStatus(t, err, http.StatusBadRequest, metav1.StatusReasonBadRequest)
									require.Equal(t, refusal, status.Message)
									require.Empty(t, calls)
									return
								}
								require.NoError(t, err)
								require.Len(t, calls, max(1, test.existing))
								for _, call := range calls {
									require.Equal(t, new(true), call.request.DryRun)
								}
							})
						}
					}
				}
			})
		}
	}
}

// storeConfiguration registers a webhook as an early kube-apiserver has stored it,
// with whatever side effects, until the test ends.
func (s *scope) storeConfiguration(sort string, sideEffects admissionregistrationv1.SideEffectClass, webhook admissionregistrationv1.ValidatingWebhook) {
	s.t.Helper()
	pair, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: s.ID})
	require.NoError(s.t, err)
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	require.NoError(s.t, err)
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{cp.Etcd.URL()}, DialTimeout: 5 * time.Second,
		TLS: &tls.Config{RootCAs: cp.PKI.ServingCA.Pool(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	})
	require.NoError(s.t, err)
	defer etcd.Close()
	webhook.SideEffects = &sideEffects
	kind := sort + "WebhookConfiguration"
	// Both sorts have the fields that are used here, and need those that kube-apiserver
	// defaults.
	webhook.MatchPolicy = new(admissionregistrationv1.Equivalent)
	webhook.NamespaceSelector, webhook.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	webhook.TimeoutSeconds = new(int32(10))
	configuration, err := json.Marshal(admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Name: s.ID, UID: types.UID(s.ID)},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhook},
	})
	require.NoError(s.t, err)
	_, err = etcd.Put(s.t.Context(), "/registry/"+strings.ToLower(kind)+"s/"+s.ID, string(configuration))
	require.NoError(s.t, err)
	s.Cleanup(func(ctx context.Context) error { return configurations(sort).Delete(ctx, s.ID, metav1.DeleteOptions{}) })
}

// TestDryRunOfMutations shows that a dry run tells what webhooks would make of an
// object, or why they would refuse it, and that nothing is stored.
func TestDryRunOfMutations(t *testing.T) {
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			s := newScope(t)
			s.registerMutating("mutating", s.webhook(patch(`[{"op":"add","path":"/metadata/annotations","value":{"reviewed":"yes"}}]`)).mutating(rule(on("CREATE", "UPDATE"), "pizzas")))
			existing := s.createPizza(version, "existing")
			dryRun := []string{metav1.DryRunAll}
			for name, try := range map[string]func() (*unstructured.Unstructured, error){
				"create": func() (*unstructured.Unstructured, error) {
					return s.pizzas(version).Create(t.Context(), s.pizza(version, "new"), metav1.CreateOptions{DryRun: dryRun})
				},
				"patch": func() (*unstructured.Unstructured, error) {
					return s.pizzas(version).Patch(t.Context(), existing.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":null},"spec":{"replicas":2}}`), metav1.PatchOptions{DryRun: dryRun})
				},
			} {
				tried, err := try()
				require.NoError(t, err, name)
				require.Equal(t, map[string]string{"reviewed": "yes"}, tried.GetAnnotations(), name)
			}

			s.registerValidating("validating", s.webhook(deny(http.StatusForbidden, "not even to try")).validating(rule(on("CREATE", "DELETE"), "pizzas")))
			const refusal = `admission webhook "validating.example.com" denied the request: not even to try`
			_, err := s.pizzas(version).Create(t.Context(), s.pizza(version, "new"), metav1.CreateOptions{DryRun: dryRun})
			require.Equal(t, refusal, framework.RequireStatus(t, err, http.StatusForbidden, "").Message)
			err = s.pizzas(version).Delete(t.Context(), existing.GetName(), metav1.DeleteOptions{DryRun: dryRun})
			require.Equal(t, refusal, framework.RequireStatus(t, err, http.StatusForbidden, "").Message)

			stored, err := s.pizzas(version).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, stored.Items, 1)
			require.Equal(t, existing.Object["spec"], stored.Items[0].Object["spec"])
			require.Equal(t, existing.GetAnnotations(), stored.Items[0].GetAnnotations())
		})
	}
}

// TestConditionsOfDryRuns shows that a webhook with side effects can leave dry runs
// alone, which then are not refused.
func TestConditionsOfDryRuns(t *testing.T) {
	s := newScope(t)
	recorder := s.recorder()
	webhook := recorder.validating(rule(on("*"), "pizzas"))
	webhook.ObjectSelector = nil
	webhook.MatchConditions = append(s.forCook(), admissionregistrationv1.MatchCondition{Name: "not-dry", Expression: "request.dryRun != true"})
	s.storeConfiguration("Validating", admissionregistrationv1.SideEffectClassSome, webhook)
	controlplane.Eventually(t, func() error {
		_, err := pizzaKind.client(s, s.cook(), "v1").Create(t.Context(), s.pizza("v1", rand.String(8)), metav1.CreateOptions{})
		require.NoError(t, err)
		if len(recorder.ofCook()) == 0 {
			return errors.New("the configuration is not in effect")
		}
		return nil
	})
	_, err := pizzaKind.client(s, s.cook(), "v1").Create(t.Context(), s.pizza("v1", "dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	for _, call := range recorder.ofCook() {
		require.Equal(t, new(false), call.request.DryRun)
	}
}
