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
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// countPizzas is what ResourceQuotas call the number of pizzas.
const countPizzas = corev1.ResourceName("count/pizzas.restaurant.programming-kubernetes.info")

// limitPizzas limits the pizzas of the test's namespace by a ResourceQuota named menu. It returns when the quota
// controller has counted them, and the server knows of the limit. Until then the server counts nothing, like
// kube-apiserver.
func (s *scope) limitPizzas(limit int64) {
	s.t.Helper()
	quotas := framework.Kube(cp).CoreV1().ResourceQuotas(s.Namespace)
	_, err := quotas.Create(s.t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "menu"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{countPizzas: apiresource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	tried := func() error {
		_, err := s.pizzas("v1").Create(s.t.Context(), s.pizza("v1", "tried"), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	controlplane.Eventually(s.t, func() error {
		if err := tried(); err == nil || !strings.Contains(err.Error(), "limited: "+string(countPizzas)+"=0") {
			return fmt.Errorf("the server does not know of the quota: %w", err)
		}
		return nil
	})
	_, err = quotas.Patch(s.t.Context(), "menu", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"hard":{%q:"%d"}}}`, countPizzas, limit), metav1.PatchOptions{})
	require.NoError(s.t, err)
	controlplane.Eventually(s.t, tried)
	s.requireUsed(0)
}

// requireUsed waits until a number of pizzas is counted.
func (s *scope) requireUsed(want int64) {
	s.t.Helper()
	controlplane.Eventually(s.t, func() error {
		quota, err := framework.Kube(cp).CoreV1().ResourceQuotas(s.Namespace).Get(s.t.Context(), "menu", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if used, ok := quota.Status.Used[countPizzas]; !ok || used.Value() != want {
			return fmt.Errorf("used are %v, not %d", quota.Status.Used, want)
		}
		return nil
	})
}

// requireExceeded requires that a pizza was refused for the quota.
func (s *scope) requireExceeded(err error, suffix string, limit int64) {
	s.t.Helper()
	status := framework.RequireStatus(s.t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
	require.Equal(s.t, fmt.Sprintf("pizzas.restaurant.programming-kubernetes.info %[1]q is forbidden: exceeded quota: menu, requested: %[2]s=1, used: %[2]s=%[3]d, limited: %[2]s=%[3]d",
		s.Name(suffix), countPizzas, limit), status.Message)
}

// However many create pizzas at the same time, there are no more than the quota
// allows, and no fewer.
func TestQuotaUnderConcurrentCreates(t *testing.T) {
	const creates, limit = 40, 15
	s := newScope(t)
	s.limitPizzas(limit)
	var (
		all  sync.WaitGroup
		errs = make([]error, creates)
	)
	for i := range creates {
		version := framework.Versions()[i%3]
		all.Go(func() {
			_, errs[i] = s.pizzas(version).Create(t.Context(), s.pizza(version, fmt.Sprint(i)), metav1.CreateOptions{})
		})
	}
	all.Wait()
	created := 0
	for i, err := range errs {
		if err == nil {
			created++
			continue
		}
		s.requireExceeded(err, fmt.Sprint(i), limit)
	}
	require.Equal(t, limit, created)
	s.requireUsed(limit)
	// Deleted pizzas make room.
	require.NoError(t, s.pizzas("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.requireUsed(0)
}

// Only what is created and stored counts: no dry run, no pizza that another plugin refuses, no
// other write.
func TestWhatQuotaCounts(t *testing.T) {
	const limit = 2
	s := newScope(t)
	s.limitPizzas(limit)
	create := func(suffix string, dryRun []string, toppings ...string) error {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", suffix, toppings...), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	apply := func(suffix string) error {
		_, err := s.pizzas("v1").Apply(t.Context(), s.Name(suffix), s.pizza("v1", suffix), metav1.ApplyOptions{FieldManager: "cook"})
		return err
	}
	for i := range limit + 1 {
		require.NoError(t, create(fmt.Sprint("dry-", i), dryRun))
		framework.RequireStatus(t, create(fmt.Sprint("refused-", i), nil, "tar"), http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	require.NoError(t, create("a", nil))
	require.NoError(t, apply("b"))
	s.requireUsed(limit)
	for _, err := range []error{create("c", nil), create("c", dryRun), apply("c")} {
		s.requireExceeded(err, "c", limit)
	}
	output, err := cp.Kubectl(t.Context(), "create", "--namespace="+s.Namespace, "--filename=../../../artifacts/examples/2-pizzas.yaml").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), `pizzas.restaurant.programming-kubernetes.info "margherita" is forbidden: exceeded quota: menu, requested: `+string(countPizzas)+"=1")

	// A pizza at the limit can still be changed, and a cluster's toppings are in no namespace.
	for _, change := range []struct {
		patch        string
		subresources []string
	}{
		{`{"spec":{"replicas":2}}`, nil}, {`{"spec":{"replicas":3}}`, []string{"scale"}}, {`{"status":{"replicas":1}}`, []string{"status"}},
	} {
		_, err := s.pizzas("v1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(change.patch), metav1.PatchOptions{}, change.subresources...)
		require.NoError(t, err)
	}
	_, err = s.pizzas("v1").Create(t.Context(), s.bake("v1", "a", 1), metav1.CreateOptions{}, "bake")
	require.NoError(t, err)
	s.createTopping("v1", "a")
	s.requireUsed(limit)
}
