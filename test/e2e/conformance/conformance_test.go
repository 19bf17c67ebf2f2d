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

// Package conformance examines the APIs of a real control plane by package conformance, and shows
// that its checks see.
package conformance

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance/broken"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

var cp *controlplane.ControlPlane

func TestMain(m *testing.M) {
	var config controlplane.Config
	config.APIServer.Flags = []string{"--run-controllers=false"}
	controlplane.Main(m, &cp, config, fixture.Toppings("mozzarella", "tomato", "salami", "basil"))
}

// pizzas are the options to examine pizzas.
func pizzas(t *testing.T) conformance.Options {
	t.Helper()
	pizza, err := runtime.DefaultUnstructuredConverter.ToUnstructured(framework.Pizza("example"))
	require.NoError(t, err)
	example := &unstructured.Unstructured{Object: pizza}
	example.SetGroupVersionKind(restaurantv1.SchemeGroupVersion.WithKind("Pizza"))
	return conformance.Options{
		GroupVersions: []schema.GroupVersion{restaurantv1.SchemeGroupVersion}, Resources: []string{"pizzas"},
		Examples: []*unstructured.Unstructured{example}, Level: conformance.Hostile,
	}
}

func TestPizzas(t *testing.T) { conformance.Test(t, cp.RESTConfig(), pizzas(t)) }

func TestConfigMaps(t *testing.T) {
	example := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"key": "value"}}}
	conformance.Test(t, cp.RESTConfig(), conformance.Options{
		GroupVersions: []schema.GroupVersion{{Version: "v1"}}, Resources: []string{"configmaps"},
		Examples: []*unstructured.Unstructured{example}, Level: conformance.Hostile,
	})
}

// TestBroken breaks one behaviour after the other: the check that is for it fails.
func TestBroken(t *testing.T) {
	transports := broken.Transports()
	for _, check := range conformance.Checks() {
		t.Run(check.ID, func(t *testing.T) {
			t.Parallel()
			transport, found := transports[check.ID]
			require.True(t, found, "no transport in package broken is for this check")
			config := rest.CopyConfig(cp.RESTConfig())
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport(next) })
			options := pizzas(t)
			options.Only = []string{check.ID}
			report, err := conformance.Run(t.Context(), config, options)
			require.NoError(t, err)
			require.Len(t, report.Results, 1)
			require.Equal(t, conformance.Failed, report.Results[0].Outcome, report.Results[0].Reason)
		})
	}
	for id := range transports {
		require.True(t, slices.ContainsFunc(conformance.Checks(), func(check conformance.Check) bool { return check.ID == id }), id)
	}
}
