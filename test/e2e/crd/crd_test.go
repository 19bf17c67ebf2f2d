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

package crd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Objects that are written in one version read right in all others, and back.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, written := range framework.Versions() {
		t.Run(written, func(t *testing.T) {
			t.Parallel()
			ns := framework.Namespace(t, cp)
			spec := map[string]any{"replicas": int64(3), "toppings": framework.Toppings(written, "tomato", "mozzarella×2")}
			created, err := pizzas(written, ns).Create(t.Context(), pizza(written, "margherita", spec), metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, map[string]any{"replicas": int64(0)}, created.Object["status"])
			for _, version := range framework.Versions() {
				read, err := pizzas(version, ns).Get(t.Context(), "margherita", metav1.GetOptions{})
				require.NoError(t, err)
				want := created.DeepCopy()
				want.SetAPIVersion(gvr(version, "").GroupVersion().String())
				want.Object["spec"] = map[string]any{"replicas": int64(3), "toppings": framework.Toppings(version, "tomato", "mozzarella×2")}
				require.Equal(t, want, read)

				read.SetAnnotations(map[string]string{"written-in": version})
				updated, err := pizzas(version, ns).Update(t.Context(), read, metav1.UpdateOptions{})
				require.NoError(t, err)
				require.Equal(t, want.Object["spec"], updated.Object["spec"])
				created, err = pizzas(written, ns).Get(t.Context(), "margherita", metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, spec, created.Object["spec"], "It came back from %s.", version)
				require.EqualValues(t, 1, created.GetGeneration())
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ns := framework.Namespace(t, cp)
			usual := map[string]any{"replicas": int64(1), "toppings": framework.Toppings(version, "mozzarella", "tomato", "salami")}
			one := map[string]any{"replicas": int64(1), "toppings": framework.Toppings(version, "tomato")}
			tomato := []any{map[string]any{"name": "tomato"}}
			null := []any{map[string]any{"name": "tomato", "quantity": nil}}
			if version == "v1alpha1" {
				tomato, null = []any{"tomato"}, []any{"tomato"}
			}
			for name, test := range map[string]struct{ spec, want map[string]any }{
				"no-spec":       {nil, usual},
				"empty":         {map[string]any{}, usual},
				"null-toppings": {map[string]any{"toppings": nil, "replicas": nil}, usual},
				"no-toppings":   {map[string]any{"toppings": []any{}, "replicas": int64(0)}, map[string]any{"replicas": int64(0), "toppings": usual["toppings"]}},
				"one":           {map[string]any{"toppings": tomato}, one},
				"null":          {map[string]any{"toppings": null, "replicas": nil}, one},
			} {
				created, err := pizzas(version, ns).Create(t.Context(), pizza(version, name, test.spec), metav1.CreateOptions{})
				require.NoError(t, err, name)
				require.Equal(t, test.want, created.Object["spec"], name)
				read, err := pizzas(version, ns).Get(t.Context(), name, metav1.GetOptions{})
				require.NoError(t, err)
				require.Equal(t, created, read)
			}
			// An update that takes all toppings away puts the usual ones on.
			patched, err := pizzas(version, ns).Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"toppings":null}}`), metav1.PatchOptions{})
			require.NoError(t, err)
			require.Equal(t, usual, patched.Object["spec"])
		})
	}
}

func TestToppingsMustExist(t *testing.T) {
	t.Parallel()
	for _, version := range framework.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ns, name := framework.Namespace(t, cp), "caper-"+version
			withTar := pizza(version, "strange", map[string]any{"toppings": framework.Toppings(version, "tomato", "tar×2")})
			_, err := pizzas(version, ns).Create(t.Context(), withTar, metav1.CreateOptions{})
			status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
			require.Equal(t, `admission webhook "pizzas.validate.restaurant.programming-kubernetes.info" denied the request: `+
				`Pizza.restaurant.programming-kubernetes.info "strange" is invalid: spec.toppings[tar]: Not found: "tar"`, status.Message)
			require.Equal(t, []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueNotFound, Field: "spec.toppings[tar]", Message: `Not found: "tar"`}}, status.Details.Causes)

			// A topping of a moment ago is known.
			createTopping(t, name)
			caper := pizza(version, "caper", map[string]any{"toppings": framework.Toppings(version, name)})
			_, err = pizzas(version, ns).Create(t.Context(), caper, metav1.CreateOptions{})
			require.NoError(t, err)

			_, err = pizzas(version, ns).Patch(t.Context(), "caper", types.MergePatchType,
				[]byte(`{"spec":{"toppings":`+jsonOf(t, framework.Toppings(version, "tar"))+`}}`), metav1.PatchOptions{})
			framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
		})
	}
}

func TestToppingInUse(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	createTopping(t, "olive")
	for i := range 4 {
		_, err := pizzas("v1", ns).Create(t.Context(), pizza("v1", fmt.Sprint("oliva-", i), map[string]any{"toppings": framework.Toppings("v1", "olive")}), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	eventually(t, func(ctx context.Context) error {
		// The webhook learns of a pizza a moment after it is created.
		err := toppings("v1").Delete(ctx, "olive", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it would be deleted")
		}
		if !strings.Contains(err.Error(), "it is on 4 pizzas") {
			return err
		}
		return nil
	})
	for _, version := range framework.Versions() {
		err := toppings(version).Delete(t.Context(), "olive", metav1.DeleteOptions{})
		status := framework.RequireStatus(t, err, 403, metav1.StatusReasonForbidden)
		require.Equal(t, `admission webhook "toppings.validate.restaurant.programming-kubernetes.info" denied the request: `+
			`toppings.restaurant.programming-kubernetes.info "olive" is forbidden: it is on 4 pizzas`, status.Message)
	}
	err := toppings("v1").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=olive"})
	framework.RequireStatus(t, err, 403, metav1.StatusReasonForbidden)
	require.NoError(t, pizzas("v1", ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	eventually(t, func(ctx context.Context) error {
		return toppings("v1beta1").Delete(ctx, "olive", metav1.DeleteOptions{})
	})
}

// newStatus is a valid status with all fields.
func newStatus() map[string]any {
	return map[string]any{
		"replicas": int64(1), "cost": "2300m", "selector": "pizza=margherita", "observedGeneration": int64(1),
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "False", "reason": "Baking", "message": "", "lastTransitionTime": "2026-11-20T12:00:00Z", "observedGeneration": int64(1),
		}},
	}
}

func TestScale(t *testing.T) {
	t.Parallel()
	client := kubernetes.NewForConfigOrDie(framework.Config(cp)).Discovery()
	scales, err := scale.NewForConfig(framework.Config(cp), restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)),
		dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client))
	require.NoError(t, err)
	for _, version := range framework.Versions() {
		ns, resource := framework.Namespace(t, cp), gvr(version, "pizzas")
		created, err := pizzas(version, ns).Create(t.Context(), pizza(version, "a", nil), metav1.CreateOptions{})
		require.NoError(t, err)
		created.Object["status"] = newStatus()
		created, err = pizzas(version, ns).UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
		require.NoError(t, err)

		read, err := scales.Scales(ns).Get(t.Context(), resource.GroupResource(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, autoscalingv1.ScaleSpec{Replicas: 1}, read.Spec)
		require.Equal(t, autoscalingv1.ScaleStatus{Replicas: 1, Selector: "pizza=margherita"}, read.Status)
		read.Spec.Replicas = 5
		updated, err := scales.Scales(ns).Update(t.Context(), resource.GroupResource(), read, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 5, updated.Spec.Replicas)
		_, err = scales.Scales(ns).Patch(t.Context(), resource, "a", types.MergePatchType, []byte(`{"spec":{"replicas":1001}}`), metav1.PatchOptions{})
		require.Contains(t, framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid).Message, "spec.replicas: Invalid value: 1001: ")

		scaled, err := pizzas(version, ns).Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"toppings": framework.Toppings(version, "mozzarella", "tomato", "salami"), "replicas": int64(5)}, scaled.Object["spec"])
		require.Equal(t, created.Object["status"], scaled.Object["status"])
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	for name, replicas := range map[string]int64{"a": 1, "b": 2} {
		_, err := pizzas("v1alpha1", ns).Create(t.Context(), pizza("v1alpha1", name, map[string]any{"replicas": replicas}), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err := pizzas("v1beta1", ns).Patch(t.Context(), "b", types.MergePatchType, []byte(`{"status":{"cost":"2300m","replicas":1}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	for _, version := range framework.Versions() {
		for selector, want := range map[string][]string{
			"spec.replicas=1":                   {"a"},
			"spec.replicas=2":                   {"b"},
			"spec.replicas!=2":                  {"a"},
			"status.replicas=0":                 {"a"},
			"status.replicas=1":                 {"b"},
			"status.cost=2300m":                 {"b"},
			"spec.replicas=1,status.cost=2300m": nil,
			"metadata.name=a":                   {"a"},
			"metadata.namespace=other":          nil,
		} {
			list, err := pizzas(version, ns).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			require.NoError(t, err)
			require.Equal(t, want, namesOf(list), "%s in %s", selector, version)
		}
		_, err := pizzas(version, ns).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.toppings=tomato"})
		require.Contains(t, framework.RequireStatus(t, err, 400, metav1.StatusReasonBadRequest).Message, "field label not supported: spec.toppings")
	}
}

func namesOf(list *unstructured.UnstructuredList) []string {
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names
}

// kubectl returns what kubectl prints, which must succeed.
func kubectl(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := cp.Kubectl(t.Context(), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), errs.String())
	return out.String(), errs.String()
}

// table splits a table into its cells. All ages are the same.
func table(output string) [][]string {
	age := regexp.MustCompile(`^(\d+s|\dm(\d+s)?)$`)
	var all [][]string
	for line := range strings.Lines(output) {
		cells := strings.Fields(line)
		for i, cell := range cells {
			if age.MatchString(cell) {
				cells[i] = "<age>"
			}
		}
		all = append(all, cells)
	}
	return all
}

func TestColumns(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	_, err := pizzas("v1", ns).Create(t.Context(), pizza("v1", "margherita", map[string]any{"replicas": int64(3), "toppings": framework.Toppings("v1", "tomato×2")}), metav1.CreateOptions{})
	require.NoError(t, err)
	inNamespace := "--namespace=" + ns
	first := [][]string{{"NAME", "DESIRED", "BAKED", "COST", "AGE"}, {"margherita", "3", "0", "<age>"}}
	for _, resource := range []string{"pizzas", "pizza", "pz", "pizza/margherita", "pizzas.v1beta1.restaurant.programming-kubernetes.info"} {
		output, warnings := kubectl(t, "get", resource, inNamespace)
		require.Equal(t, first, table(output))
		require.Empty(t, warnings)
	}
	_, err = pizzas("v1", ns).Patch(t.Context(), "margherita", types.MergePatchType, []byte(`{"status":`+jsonOf(t, newStatus())+`}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)

	output, _ := kubectl(t, "get", "pizzas", "--output=wide", inNamespace)
	require.Equal(t, [][]string{
		{"NAME", "DESIRED", "BAKED", "COST", "AGE", "READY", "REASON", "TOPPINGS"},
		{"margherita", "3", "1", "2300m", "<age>", "False", "Baking", `[{"name":"tomato","quantity":2}]`},
	}, table(output))
	// It would fail for all users who may not list them.
	output, _ = kubectl(t, "get", "all", inNamespace)
	require.NotContains(t, output, "pizza.restaurant.programming-kubernetes.info/margherita")
	output, _ = kubectl(t, "get", "tp", "basil")
	require.Equal(t, [][]string{{"NAME", "COST", "AGE"}, {"basil", "1", "<age>"}}, table(output))
	output, _ = kubectl(t, "get", "restaurant", inNamespace)
	require.Contains(t, output, "topping.restaurant.programming-kubernetes.info/basil")
	require.Contains(t, output, "pizza.restaurant.programming-kubernetes.info/margherita")
}

func TestDeprecation(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	for resource, kind := range map[string]string{"pizzas": "Pizza", "toppings": "Topping"} {
		_, warnings := kubectl(t, "get", resource+".v1alpha1.restaurant.programming-kubernetes.info", "--namespace="+ns)
		require.Contains(t, warnings, "Warning: restaurant.programming-kubernetes.info/v1alpha1 "+kind+" is deprecated in v0.37+; use restaurant.programming-kubernetes.info/v1 "+kind+"\n")
	}
}

// Server-side apply merges toppings by their names.
func TestApply(t *testing.T) {
	t.Parallel()
	ns := framework.Namespace(t, cp)
	apply := func(manager, topping string) *unstructured.Unstructured {
		applied, err := pizzas("v1", ns).Apply(t.Context(), "a", pizza("v1", "a", map[string]any{"toppings": framework.Toppings("v1", topping)}), metav1.ApplyOptions{FieldManager: manager})
		require.NoError(t, err)
		return applied
	}
	apply("alice", "tomato")
	require.Equal(t, framework.Toppings("v1", "tomato", "basil"), apply("bob", "basil").Object["spec"].(map[string]any)["toppings"])
	require.Equal(t, framework.Toppings("v1", "basil", "salami"), apply("alice", "salami").Object["spec"].(map[string]any)["toppings"])
}
