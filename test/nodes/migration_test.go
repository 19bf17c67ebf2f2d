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

package nodes

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// testCustomResources moves custom resources to crd-apiserver's etcd and back, while clients use
// them and they own other objects. It also restores crd-apiserver, which runs from an overlay.
func (o *operations) testCustomResources(t *testing.T, overlay string) {
	t.Helper()
	before, err := framework.Inventory(t.Context(), o.cluster.ControlPlane)
	require.NoError(t, err)
	helm := framework.GoTool(t, root, "helm", "helm")
	t.Cleanup(func() {
		if t.Failed() {
			o.explain(t)
			return
		}
		output, err := o.Try(context.Background(), `kubectl delete -k crd-apiserver
kubectl delete crd pizzas.restaurant.programming-kubernetes.info toppings.restaurant.programming-kubernetes.info
kubectl delete role,rolebinding cook
`+helm+` uninstall webhook --namespace restaurant-system
kubectl delete namespace restaurant-system`)
		require.NoError(t, err, output)
		o.requireInventory(t, before)
	})
	webhook := Read(t, filepath.Join(root, "docs", "webhook.md"))
	o.Run(t, With(t, webhook.Commands(t, "Running the webhook", "kubectl apply"), "make chart VERSION=v0.37.0\n", "", "helm install", helm+" install", "_output/chart/restaurant-apiserver", o.chart(t, "restaurant-apiserver")))
	o.customResources(t)
	margherita := o.asUser(t, identity)
	uid, _, _ := strings.Cut(margherita, " ")
	o.Run(t, `kubectl create --filename=- <<EOF
{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-margherita", "ownerReferences": [
	{"apiVersion": "restaurant.programming-kubernetes.info/v1", "kind": "Pizza", "name": "margherita", "uid": "`+uid+`"}]}}
EOF`)

	page := Read(t, filepath.Join(root, "docs", "crd-apiserver", "*.md"))
	const apply = "kubectl apply -k crd-apiserver"
	kustomization := With(t, page.YAML(t, "Install", "kind: Kustomization"), "argoproj.io,workflows.example.com", "restaurant.programming-kubernetes.info",
		"overlays/standalone", "overlays/"+overlay)
	file := filepath.Join(o.Dir, "crd-apiserver", "kustomization.yaml")
	write(t, file, kustomization)
	o.Run(t, page.Commands(t, "Install", apply))
	load := o.load(t)
	const section = "In a pod"
	write(t, file, kustomization+page.YAML(t, section, "components"))
	commands := page.Commands(t, section, apply)
	_, function, _ := strings.Cut(commands, "\n")
	function, _, _ = strings.Cut(function, "\n")
	require.Contains(t, function, "migrate()")
	t.Log(o.Run(t, commands))
	require.Contains(t, o.Run(t, "kubectl get apiservices"), "crd-apiserver/crd-apiserver")
	require.Equal(t, margherita, o.asUser(t, identity))
	o.requireVersions(t)
	result := load.Stop()
	t.Logf("there: %s", result)
	require.Zero(t, result.Failed)
	o.restoreCustomResources(t, overlay, page, file, kustomization+page.YAML(t, section, "components"))
	require.Equal(t, margherita, o.asUser(t, identity))
	load = o.load(t)
	t.Log(o.Run(t, function+"\n"+page.Commands(t, "The way back", "migrate plan --back")))
	require.NotContains(t, o.Run(t, "kubectl get apiservices"), "crd-apiserver/crd-apiserver")
	require.Equal(t, margherita, o.asUser(t, identity))
	result = load.Stop()
	t.Logf("back: %s", result)
	require.Zero(t, result.Failed)
	o.Run(t, page.Commands(t, section, "kubectl delete clusterrolebinding crd-apiserver"))
	write(t, file, kustomization)

	// The garbage collector knows the pizza by the same UID.
	o.Run(t, "kubectl get configmap of-margherita")
	o.asUser(t, "kubectl delete pizza margherita")
	o.Run(t, "kubectl wait --for=delete --timeout=2m configmap/of-margherita")
}

// testHelmOfCustomResources installs and uninstalls crd-apiserver by its chart. In between, the doctor
// examines it.
func (o *operations) testHelmOfCustomResources(t *testing.T) {
	before, err := framework.Inventory(t.Context(), o.cluster.ControlPlane)
	require.NoError(t, err)
	helm := framework.GoTool(t, root, "helm", "helm")
	t.Cleanup(func() {
		if t.Failed() {
			o.explain(t)
			return
		}
		output, err := o.Try(context.Background(), helm+" uninstall crd-apiserver --namespace crd-apiserver && kubectl delete namespace crd-apiserver")
		require.NoError(t, err, output)
		o.requireInventory(t, before)
	})
	const section = "Install"
	page := Read(t, filepath.Join(root, "docs", "crd-apiserver", "*.md"))
	o.Run(t, With(t, page.Commands(t, section, "kubectl create namespace"), "make chart VERSION=v0.37.0\n", "", "helm install", helm+" install", "_output/chart/crd-apiserver", o.chart(t, "crd-apiserver")))
	o.Run(t, "kubectl rollout status --namespace crd-apiserver --timeout=10m deployment/crd-apiserver")
	require.Contains(t, o.Run(t, With(t, page.Commands(t, section, "helm test"), "helm test", helm+" test")), "permissions", "The findings are not printed.")
}

// testTypes moves custom resources to the server of types in Go and back, while they are used.
func (o *operations) testTypes(t *testing.T) {
	before, err := framework.Inventory(t.Context(), o.cluster.ControlPlane)
	require.NoError(t, err)
	webhook, migration := Read(t, filepath.Join(root, "docs", "webhook.md")), Read(t, filepath.Join(root, "docs", "migrate-to-go.md"))
	const section, apply = "In a pod", "kubectl apply -k restaurant"
	o.kustomize(t, o.monitored(t))
	o.addComponent(t, "deploy/components/webhook")
	installed := With(t, o.kustomization, "images:\n", "images:\n  - name: webhook\n    newName: registry.example.com/restaurant/webhook\n    newTag: "+oldVersion+"\n")
	t.Cleanup(func() {
		if t.Failed() {
			o.explain(t)
			return
		}
		o.kustomize(t, installed)
		output, err := o.Try(context.Background(), o.page.Commands(t, "Uninstall", "kubectl delete -k")+`
kubectl delete crd pizzas.restaurant.programming-kubernetes.info toppings.restaurant.programming-kubernetes.info
kubectl delete role,rolebinding cook`)
		require.NoError(t, err, output)
		o.requireInventory(t, before)
	})
	definitions, _, _ := strings.Cut(webhook.Commands(t, "Running the webhook", "kubectl apply"), "\n")
	o.Run(t, definitions)
	components := strings.TrimPrefix(migration.YAML(t, section, "components/unregistered"), "# restaurant/kustomization.yaml\n")
	o.kustomize(t, With(t, installed, "components:\n", components))
	o.Run(t, apply)
	o.customResources(t)
	margherita := o.asUser(t, identity)

	load := o.load(t)
	commands := migration.Commands(t, section, apply)
	t.Log(o.Run(t, commands))
	requireAnsweredBy := func(server string) {
		t.Helper()
		require.Contains(t, o.Run(t, "kubectl get apiservice v1.restaurant.programming-kubernetes.info"), server)
		require.Equal(t, margherita, o.asUser(t, identity))
		o.requireVersions(t)
	}
	requireAnsweredBy("restaurant-system/apiserver")
	o.kustomize(t, installed)
	o.Run(t, apply)
	revoke := migration.Commands(t, section, "kubectl delete clusterrolebinding restaurant")
	o.Run(t, revoke)
	o.rolledOut(t)
	requireAnsweredBy("restaurant-system/apiserver")
	result := load.Stop()
	t.Logf("there: %s", result)
	require.Zero(t, result.Failed)

	load = o.load(t)
	o.addComponent(t, "deploy/components/migrate")
	beforehand, _, found := strings.Cut(commands, "migrate plan ")
	require.True(t, found)
	t.Log(o.Run(t, beforehand+"migrate plan --back --raise-revision\nmigrate back --raise-revision\nmigrate finish --dry-run\nmigrate finish"))
	requireAnsweredBy("Local")
	result = load.Stop()
	t.Logf("back: %s", result)
	require.Zero(t, result.Failed)
	o.Run(t, revoke)
}

// identity prints the UID, the time of creation and the spec of a pizza.
const identity = "kubectl get pizza margherita --output=jsonpath='{.metadata.uid} {.metadata.creationTimestamp} {.spec}'"

// customResources creates toppings and pizzas of the definitions, and lets the user write pizzas.
func (o *operations) customResources(t *testing.T) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		// It fails until the definitions trust the conversion webhook.
		_, err := o.Try(t.Context(), "kubectl apply --filename=artifacts/examples/1-toppings.yaml --filename=artifacts/examples/2-pizzas.yaml")
		return err
	})
	o.Run(t, "kubectl create role cook --verb='*' --resource=pizzas.restaurant.programming-kubernetes.info\nkubectl create rolebinding cook --role=cook --user="+user)
	o.pizzas(t)
	o.requireVersions(t)
}

// requireVersions reads a pizza in a version that needs conversion.
func (o *operations) requireVersions(t *testing.T) {
	t.Helper()
	// The output begins with a warning that the version is deprecated.
	require.Contains(t, o.asUser(t, "kubectl get pizzas.v1alpha1.restaurant.programming-kubernetes.info extra-cheese --output=jsonpath='{.spec.toppings}'"),
		`["tomato","mozzarella","mozzarella","mozzarella"]`)
}
