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
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// has is a check for a condition.
func has(condition string, status metav1.ConditionStatus, reason, message string) func(*restaurantv1.Pizza) error {
	return func(p *restaurantv1.Pizza) error {
		found := meta.FindStatusCondition(p.Status.Conditions, condition)
		if found == nil || found.Status != status || found.Reason != reason || found.Message != message || found.ObservedGeneration != p.Generation {
			return fmt.Errorf("the condition %s of %s is %+v", condition, p.Name, found)
		}
		return nil
	}
}

// TestStatus follows a pizza from its creation to the oven and back.
func TestStatus(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	cheese, ham := topping(t, "1.50"), topping(t, "2")
	pizza(t, ns, "prosciutto", cheese, ham)

	output, err := cp.Kubectl(t.Context(), "wait", "--namespace="+ns, "--for=condition=Priced", "--timeout="+controlplane.Patience.String(), "pizza/prosciutto").CombinedOutput()
	require.NoError(t, err, "%s", output)
	priced := awaitPizza(t, ns, "prosciutto", costs("3500m"))
	require.Equal(t, "restaurant.programming-kubernetes.info/pizza-uid="+string(priced.UID), priced.Status.Selector)
	require.Equal(t, int64(1), priced.Status.ObservedGeneration)
	require.NoError(t, has("Priced", metav1.ConditionTrue, "Priced", "All toppings have a price")(priced))
	require.NoError(t, has("Ready", metav1.ConditionFalse, "Baking", "0 of 2 are baked")(priced))

	// The baker counts the replicas.
	priced.Status.Replicas = 2
	_, err = restaurantClient().Pizzas(ns).UpdateStatus(t.Context(), priced, metav1.UpdateOptions{})
	require.NoError(t, err)
	awaitPizza(t, ns, "prosciutto", has("Ready", metav1.ConditionTrue, "Baked", "2 of 2 are baked"))

	setCost(t, ham, "2.25")
	awaitPizza(t, ns, "prosciutto", costs("3750m"))

	require.NoError(t, restaurantClient().Toppings().Delete(t.Context(), ham, metav1.DeleteOptions{}))
	without := awaitPizza(t, ns, "prosciutto", has("Priced", metav1.ConditionFalse, "ToppingsMissing", "There is no topping "+ham))
	require.Nil(t, without.Status.Cost)
	require.NoError(t, has("Ready", metav1.ConditionFalse, "NotPriced", "It has no price yet")(without))
	require.Equal(t, int32(2), without.Status.Replicas)

	without.Spec.Toppings = without.Spec.Toppings[:1]
	_, err = restaurantClient().Pizzas(ns).Update(t.Context(), without, metav1.UpdateOptions{})
	require.NoError(t, err)
	again := awaitPizza(t, ns, "prosciutto", costs("1500m"))
	require.Equal(t, int64(2), again.Status.ObservedGeneration)
	require.NoError(t, has("Ready", metav1.ConditionTrue, "Baked", "2 of 2 are baked")(again))

	for _, entry := range again.ManagedFields {
		if entry.Manager == "pricing-controller" {
			require.Equal(t, "status", entry.Subresource)
			require.NotContains(t, string(entry.FieldsV1.GetRawBytes()), "f:spec")
			return
		}
	}
	require.Fail(t, "The controller owns no fields.", "%+v", again.ManagedFields)
}

// TestEvents shows that users are told what is wrong, by kubectl describe for one, and
// not what is as it should be.
func TestEvents(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	cheese, ham := topping(t, "1"), topping(t, "2")
	created := pizza(t, ns, "prosciutto", cheese, ham)
	awaitPizza(t, ns, "prosciutto", costs("3"))
	require.NoError(t, restaurantClient().Toppings().Delete(t.Context(), ham, metav1.DeleteOptions{}))
	awaitPizza(t, ns, "prosciutto", has("Priced", metav1.ConditionFalse, "ToppingsMissing", "There is no topping "+ham))

	want := []string{"Warning ToppingsMissing: There is no topping " + ham}
	controlplane.Eventually(t, func() error {
		events, err := framework.Kube(cp).EventsV1().Events(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, event := range events.Items {
			require.Equal(t, created.UID, event.Regarding.UID)
			require.Equal(t, "Pizza", event.Regarding.Kind)
			require.Equal(t, restaurantv1.SchemeGroupVersion.String(), event.Regarding.APIVersion)
			got = append(got, asLine(event))
		}
		if len(got) < len(want) {
			return fmt.Errorf("there are only the events %q", got)
		}
		require.ElementsMatch(t, want, got)
		return nil
	})
	output, err := cp.Kubectl(t.Context(), "describe", "--namespace="+ns, "pizza", "prosciutto").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "There is no topping "+ham)
	require.Contains(t, string(output), "Events:")
}

// TestLongEvent has more to tell than fits into an event.
func TestLongEvent(t *testing.T) {
	framework.Long(t, "events are waited for")
	t.Parallel()
	ns := framework.Namespace(t, cp)
	var missing []string
	for _, letter := range "abcde" {
		missing = append(missing, strings.Repeat(string(letter), 253))
	}
	message := "There is no topping " + strings.Join(missing, ", ")
	pizza(t, ns, "exotic", missing...)
	awaitPizza(t, ns, "exotic", has("Priced", metav1.ConditionFalse, "ToppingsMissing", message))
	want := "Warning ToppingsMissing: " + message[:1024]
	controlplane.Eventually(t, func() error {
		events, err := framework.Kube(cp).EventsV1().Events(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, event := range events.Items {
			got = append(got, asLine(event))
		}
		if !slices.Contains(got, want) {
			return fmt.Errorf("there are only the events %q", got)
		}
		return nil
	})
}

func asLine(event eventsv1.Event) string {
	return strings.TrimSpace(event.Type + " " + event.Reason + ": " + event.Note)
}
