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
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
func (s *scope) limitPizzas(t *testing.T, limit int64) {
	t.Helper()
	quotas := framework.Kube(cp).CoreV1().ResourceQuotas(s.Namespace)
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "menu"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{countPizzas: apiresource.MustParse("0")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	tried := func() error {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "tried"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	controlplane.Eventually(t, func() error {
		err := tried()
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "limited: "+string(countPizzas)+"=0") {
			return nil
		}
		return errors.Join(errors.New("the server does not know of the quota"), err)
	})
	patch := fmt.Appendf(nil, `{"spec":{"hard":{%q:"%d"}}}`, countPizzas, limit)
	_, err = quotas.Patch(t.Context(), quota.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, tried)
	s.requireUsed(t, 0)
}

// requireUsed waits until a number of pizzas is counted.
func (s *scope) requireUsed(t *testing.T, want int64) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		quota, err := framework.Kube(cp).CoreV1().ResourceQuotas(s.Namespace).Get(t.Context(), "menu", metav1.GetOptions{})
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
func (s *scope) requireExceeded(t *testing.T, err error, name string, limit int64) {
	t.Helper()
	status := framework.RequireStatus(t, err, http.StatusForbidden, metav1.StatusReasonForbidden)
	require.Equal(t, fmt.Sprintf("pizzas.restaurant.programming-kubernetes.info %q is forbidden: exceeded quota: menu, requested: %s=1, used: %s=%d, limited: %s=%d",
		name, countPizzas, countPizzas, limit, countPizzas, limit), status.Message)
}

// However many create pizzas at the same time, there are no more than the quota
// allows, and no fewer.
func TestQuotaUnderConcurrentCreates(t *testing.T) {
	const creates, limit = 50, 20
	s := newScope(t)
	s.limitPizzas(t, limit)
	var (
		all  sync.WaitGroup
		errs = make([]error, creates)
	)
	for i := range creates {
		version := framework.Versions()[i%len(framework.Versions())]
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
		s.requireExceeded(t, err, s.Name(fmt.Sprint(i)), limit)
	}
	require.Equal(t, limit, created)
	stored, err := s.pizzas("v1").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, stored.Items, limit)
	s.requireUsed(t, limit)

	// Deleted pizzas make room.
	for _, pizza := range stored.Items[:5] {
		require.NoError(t, s.pizzas("v1").Delete(t.Context(), pizza.GetName(), metav1.DeleteOptions{}))
	}
	s.requireUsed(t, limit-5)
	s.createPizza("v1", "again")
	s.requireUsed(t, limit-4)
	require.NoError(t, s.pizzas("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.requireUsed(t, 0)
}

// Only what is created counts, and a dry run is none.
func TestWhatQuotaCounts(t *testing.T) {
	const limit = 2
	s := newScope(t)
	s.limitPizzas(t, limit)
	dryRun := []string{metav1.DryRunAll}
	for i := range limit + 2 {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", fmt.Sprintf("dry-%d", i)), metav1.CreateOptions{DryRun: dryRun})
		require.NoError(t, err)
	}
	s.requireUsed(t, 0)
	s.createPizza("v1", "a")
	s.requireUsed(t, 1)
	for subresource, patch := range map[string]string{
		"": `{"spec":{"replicas":2}}`, "scale": `{"spec":{"replicas":3}}`, "status": `{"status":{"replicas":1}}`,
	} {
		var subresources []string
		if subresource != "" {
			subresources = append(subresources, subresource)
		}
		_, err := s.pizzas("v1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		require.NoError(t, err)
	}
	s.requireUsed(t, 1)
	_, err := s.pizzas("v1").Apply(t.Context(), s.Name("b"), s.pizza("v1", "b"), metav1.ApplyOptions{FieldManager: "cook"})
	require.NoError(t, err)
	s.requireUsed(t, limit)

	_, err = s.pizzas("v1").Create(t.Context(), s.pizza("v1", "c"), metav1.CreateOptions{})
	s.requireExceeded(t, err, s.Name("c"), limit)
	_, err = s.pizzas("v1").Create(t.Context(), s.pizza("v1", "c"), metav1.CreateOptions{DryRun: dryRun})
	s.requireExceeded(t, err, s.Name("c"), limit)
	_, err = s.pizzas("v1").Apply(t.Context(), s.Name("c"), s.pizza("v1", "c"), metav1.ApplyOptions{FieldManager: "cook"})
	s.requireExceeded(t, err, s.Name("c"), limit)
	output, err := cp.Kubectl(t.Context(), "create", "--namespace="+s.Namespace, "--filename=../../../artifacts/examples/2-pizzas.yaml").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), `pizzas.restaurant.programming-kubernetes.info "margherita" is forbidden: exceeded quota: menu, requested: `+string(countPizzas)+"=1, used: "+string(countPizzas)+"=2, limited: "+string(countPizzas)+"=2")

	// A pizza at the limit can still be changed.
	_, err = s.pizzas("v1").Patch(t.Context(), s.Name("a"), types.MergePatchType, []byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	// A cluster's toppings are in no namespace.
	s.createTopping("v1", "a")
}

// A pizza that another plugin refuses does not count.
func TestQuotaIsLast(t *testing.T) {
	s := newScope(t)
	s.limitPizzas(t, 1)
	for i := range 3 {
		_, err := s.pizzas("v1").Create(t.Context(), s.pizzaWith("v1", fmt.Sprint(i), "tar"), metav1.CreateOptions{})
		framework.RequireStatus(t, err, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	}
	s.createPizza("v1", "a")
	s.requireUsed(t, 1)
}
