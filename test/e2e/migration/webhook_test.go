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

package migration

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A write that a slow webhook had before the freeze began, is stored by kube-apiserver much later, and moves nevertheless.
func TestSlowWebhook(t *testing.T) {
	framework.Long(t, "TestLongestWrite of pkg/migrate is the short one")
	t.Parallel()
	const delay, timeoutSeconds = 8 * time.Second, 10
	c := newCluster(t)
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		time.Sleep(delay)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer webhook.Close()
	fail, none, seconds := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(timeoutSeconds)
	_, err := framework.Kube(c.ControlPlane).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "slow.example.com", FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"slow": "true"}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &webhook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{restaurant.GroupName}, APIVersions: []string{"*"}, Resources: []string{"pizzas"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	create := func(name string) error {
		return c.createPizza(t, c.restaurant(), name, func(pizza metav1.Object) { pizza.SetLabels(map[string]string{"slow": "true"}) })
	}
	controlplane.Eventually(t, func() error {
		began := time.Now()
		if err := create(fmt.Sprintf("first-%d", began.UnixNano())); err != nil {
			return err
		}
		if time.Since(began) < delay {
			return errors.New("kube-apiserver does not call the webhook yet")
		}
		return nil
	})

	var (
		writes, all sync.WaitGroup
		mu          sync.Mutex
		written     []string
	)
	stop := make(chan struct{})
	all.Go(func() {
		for n := 0; ; n++ {
			writes.Go(func() {
				if name := fmt.Sprintf("slow-%d", n); create(name) == nil {
					mu.Lock()
					written = append(written, name)
					mu.Unlock()
				}
			})
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	code, _, stderr := c.migrate(t, "run")
	close(stop)
	all.Wait()
	writes.Wait()
	require.Equal(t, 0, code, stderr)
	found := c.everything(t)
	require.Greater(t, len(written), 20)
	for _, name := range written {
		assert.Contains(t, found, "pizzas/"+metav1.NamespaceDefault+"/"+name)
	}
}
