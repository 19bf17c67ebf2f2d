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

package pricing

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// replicas is a check for how many of a pizza are asked for.
func replicas(want int32) func(*restaurantv1.Pizza) error {
	return func(p *restaurantv1.Pizza) error {
		if got := ptr.Deref(p.Spec.Replicas, 0); got != want {
			return fmt.Errorf("%d of %s are asked for instead of %d", got, p.Name, want)
		}
		return nil
	}
}

// TestHorizontalPodAutoscaler shows that the cluster's autoscaler finds the scale of
// a pizza and drives it.
func TestHorizontalPodAutoscaler(t *testing.T) {
	framework.Long(t, "an autoscaler takes its time")
	t.Parallel()
	ns := framework.Namespace(t, cp)
	pizza(t, ns, "popular", topping(t, "1"))
	awaitPizza(t, ns, "popular", costs("1"))
	_, err := framework.Kube(cp).AutoscalingV2().HorizontalPodAutoscalers(ns).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "popular"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: restaurantv1.SchemeGroupVersion.String(), Kind: "Pizza", Name: "popular"},
			MinReplicas:    ptr.To[int32](5),
			MaxReplicas:    7,
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	// Without metrics, the autoscaler keeps the number within its bounds.
	awaitPizza(t, ns, "popular", replicas(5))
}
