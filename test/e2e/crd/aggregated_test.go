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
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// The webhook does for the kinds of the API server what the server's own plugins do,
// which are turned off here.
func TestWebhookOfTheAPIServer(t *testing.T) {
	framework.Long(t, "it has a control plane of its own")
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{
		APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{
			Flags: []string{"--disable-admission-plugins=PizzaToppings,ToppingInUse", "--run-controllers=false"},
		}},
		ControllerManager: controlplane.ComponentConfig{Off: true},
	})
	require.NoError(t, fixture.Toppings("mozzarella", "tomato", "salami", "basil")(t.Context(), cp))
	config := cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	client := dynamic.NewForConfigOrDie(config)
	inDefault := func(version string) dynamic.ResourceInterface {
		return client.Resource(gvr(version, "pizzas")).Namespace(corev1.NamespaceDefault)
	}
	_, err := inDefault("v1").Create(t.Context(), pizza("v1", "plain", nil), metav1.CreateOptions{})
	framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)

	server, err := framework.NewWebhook(cp, "webhook")
	require.NoError(t, err)
	manifests, err := framework.Kustomize(t.Context(), cp, "artifacts/webhook")
	require.NoError(t, err)
	require.NoError(t, framework.Apply(t.Context(), cp, framework.CallAt(cp, server, manifests)))
	require.NoError(t, server.Start(t.Context()))
	// Configurations take effect in their own time.
	eventually(t, func(ctx context.Context) error {
		_, err := inDefault("v1").Create(ctx, pizza("v1", "plain", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	eventually(t, func(ctx context.Context) error {
		_, err := inDefault("v1").Create(ctx, pizza("v1", "strange", map[string]any{"toppings": framework.Toppings("v1", "tar")}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is created all the same")
		}
		return nil
	})

	for _, version := range framework.Versions() {
		name := "plain-" + version
		created, err := inDefault(version).Create(t.Context(), pizza(version, name, nil), metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, map[string]any{"replicas": int64(1), "toppings": framework.Toppings(version, "mozzarella", "tomato", "salami")}, created.Object["spec"])

		_, err = inDefault(version).Create(t.Context(), pizza(version, "strange", map[string]any{"toppings": framework.Toppings(version, "tar")}), metav1.CreateOptions{})
		status := framework.RequireStatus(t, err, 422, metav1.StatusReasonInvalid)
		require.Equal(t, `admission webhook "pizzas.validate.restaurant.programming-kubernetes.info" denied the request: `+
			`Pizza.restaurant.programming-kubernetes.info "strange" is invalid: spec.toppings[tar]: Not found: "tar"`, status.Message)
		require.Equal(t, []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueNotFound, Field: "spec.toppings[tar]", Message: `Not found: "tar"`}}, status.Details.Causes)

		eventually(t, func(ctx context.Context) error {
			// The webhook learns of a pizza a moment after it is created.
			err := client.Resource(gvr(version, "toppings")).Delete(ctx, "salami", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				return errors.New("it would be deleted")
			}
			if !strings.Contains(err.Error(), "it is on a pizza") {
				return err
			}
			return nil
		})
		err = client.Resource(gvr(version, "toppings")).Delete(t.Context(), "salami", metav1.DeleteOptions{})
		status = framework.RequireStatus(t, err, 403, metav1.StatusReasonForbidden)
		require.Equal(t, `admission webhook "toppings.validate.restaurant.programming-kubernetes.info" denied the request: `+
			`toppings.restaurant.programming-kubernetes.info "salami" is forbidden: it is on a pizza`, status.Message)
		require.NoError(t, inDefault(version).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	eventually(t, func(ctx context.Context) error {
		return client.Resource(gvr("v1", "toppings")).Delete(ctx, "salami", metav1.DeleteOptions{})
	})
}
