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
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// atOnce is how many runs there are side by side. Most checks wait.
const atOnce = 8

// withoutDeployments keeps a controller from changing the objects of a check.
const withoutDeployments = "--controllers=*,-deployment-controller"

var cp *controlplane.ControlPlane

func TestMain(m *testing.M) {
	var config controlplane.Config
	auditPolicy, err := filepath.Abs("../api/testdata/audit-policy.yaml")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config.APIServer.Flags = []string{"--run-controllers=false", "--audit-policy-file=" + auditPolicy, "--audit-log-path=" + framework.AuditLog}
	config.ControllerManager.Flags = []string{withoutDeployments}
	controlplane.Main(m, &cp, config, fixture.Toppings("mozzarella", "tomato", "salami", "basil"), framework.LookServed, defineKinds, restartControllers, waitForOpenAPI)
}

// restartControllers ends watches of the controllers that began before crd-apiserver served the
// group: kube-apiserver goes on with them, but has none of the objects.
func restartControllers(ctx context.Context, cp *controlplane.ControlPlane) error {
	return cp.ControllerManager.Restart(ctx)
}

// options are the options to examine the group versions of examples.
func options(t *testing.T, examples ...string) conformance.Options {
	t.Helper()
	options := conformance.Options{Level: conformance.Hostile, WebhookAddress: "127.0.0.1:0"}
	for _, example := range examples {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(example), &object.Object))
		options.Examples = append(options.Examples, object)
		version := object.GroupVersionKind().GroupVersion()
		if !slices.Contains(options.GroupVersions, version) {
			options.GroupVersions = append(options.GroupVersions, version)
		}
		if version.Group == restaurant.GroupName {
			options.AuditLog = filepath.Join(cp.APIServer.Dir(), framework.AuditLog)
		}
	}
	return options
}

// of narrows options to a resource.
func of(resource string, options conformance.Options) conformance.Options {
	options.Resources = []string{resource}
	return options
}

// pizzas are the options to examine pizzas.
func pizzas(t *testing.T) conformance.Options {
	t.Helper()
	return of("pizzas", options(t, `
apiVersion: restaurant.programming-kubernetes.info/v1
kind: Pizza
spec: {toppings: [{name: tomato}]}`))
}

const group = "apiVersion: restaurant.programming-kubernetes.info/"

// TestRestaurant examines all kinds of the restaurant.
func TestRestaurant(t *testing.T) {
	t.Parallel()
	conformance.Test(t, cp.RESTConfig(), options(t,
		// The check of scale must not depend on the number.
		group+"v1\nkind: Pizza\nspec: {replicas: 3, toppings: [{name: tomato}]}",
		group+"v1\nkind: Topping\nspec: {cost: 1500m}",
		group+"v1\nkind: PriceReview\nspec: {toppings: [{name: tomato}]}",
	))
}

// TestOlderVersions examines the kinds of the restaurant in their other versions.
func TestOlderVersions(t *testing.T) {
	framework.Long(t, "TestRestaurant examines the version v1")
	conformance.Test(t, cp.RESTConfig(), options(t,
		group+"v1beta1\nkind: Pizza\nspec: {toppings: [{name: tomato}]}",
		group+"v1alpha1\nkind: Pizza\nspec: {toppings: [tomato]}",
		group+"v1beta1\nkind: Topping\nspec: {cost: 1500m}",
		group+"v1alpha1\nkind: Topping\nspec: {cost: 1500m}",
	))
}

// TestCustomResources examines what kube-apiserver makes of a CustomResourceDefinition.
func TestCustomResources(t *testing.T) {
	framework.Long(t, "kube-apiserver is not ours")
	conformance.Test(t, cp.RESTConfig(), options(t, widget(definedGroup)))
}

// TestCRDServer examines what crd-apiserver makes of the same definition.
func TestCRDServer(t *testing.T) {
	t.Parallel()
	conformance.Test(t, cp.RESTConfig(), options(t, widget(servedGroup)))
}

// TestForgottenHistory shows that a version is asked for that etcd has forgotten.
func TestForgottenHistory(t *testing.T) {
	etcd := framework.EtcdClient(t, cp, cp.Component("etcd"))
	answer, err := etcd.Get(t.Context(), "none")
	require.NoError(t, err)
	_, err = etcd.Compact(t.Context(), answer.Header.Revision)
	require.NoError(t, err)
	options := options(t, widget(definedGroup))
	options.Only = []string{"watch/expired", "resourceVersion/expired"}
	report, err := conformance.Run(t.Context(), cp.RESTConfig(), options)
	require.NoError(t, err)
	require.Len(t, report.Having(conformance.Passed), len(options.Only), "%v", report.Results)
}

// TestBroken breaks one behaviour after the other: the check that is for it fails.
func TestBroken(t *testing.T) {
	t.Parallel()
	transports, checks := transports(), conformance.Checks()
	require.Len(t, transports, len(checks), "there is one transport for each check")
	reports := make([]*conformance.Report, len(checks))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, check := range checks {
		require.Contains(t, transports, check.ID, "no transport is for this check")
		options := pizzas(t)
		options.Only = []string{check.ID}
		group.Go(func() (err error) {
			reports[i], err = examineBroken(t, transports[check.ID], options)
			return err
		})
	}
	require.NoError(t, group.Wait())
	for i, check := range checks {
		t.Run(check.ID, func(t *testing.T) {
			require.Len(t, reports[i].Results, 1)
			require.Equal(t, conformance.Failed, reports[i].Results[0].Outcome, reports[i].Results[0].Reason)
		})
	}
}

// examineBroken runs checks through a transport.
func examineBroken(t *testing.T, transport Transport, options conformance.Options) (*conformance.Report, error) {
	t.Helper()
	config := rest.CopyConfig(cp.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport(next) })
	return conformance.Run(t.Context(), config, options)
}
