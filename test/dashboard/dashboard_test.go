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

// Package dashboard has a Prometheus scrape two servers that ordinary clients use, and asks it what
// the Grafana dashboard of artifacts/deploy/components/monitoring shows.
package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const (
	root     = "../../"
	interval = 5 // Seconds between two scrapes.
	user     = "editor"
)

// TestDashboard waits until each query of each panel has been answered with something.
func TestDashboard(t *testing.T) {
	config := controlplane.Config{Progress: func(message string) { t.Log(message) }}
	config.APIServer.Off = true
	config.ControllerManager.Off = true
	cp := controlplane.ForTest(t, config)
	require.NoError(t, cp.Install(t.Context()))
	require.NoError(t, cp.Apply(t.Context(), root+"artifacts/deploy/components/monitoring/rbac.yaml"))

	// The names are as long as a Deployment's pods have them, since legends consist of them.
	const etcd = "etcd-0"
	var servers []*controlplane.Component
	for _, pod := range []string{"apiserver-6d8f9c5b7d-4x2kq", "apiserver-6d8f9c5b7d-tz9hw"} {
		server, err := cp.NewAPIServer(pod, controlplane.ServerConfig{Etcd: etcd})
		require.NoError(t, err)
		servers = append(servers, server)
	}
	require.NoError(t, cp.Component(etcd).Start(t.Context()))
	for _, server := range servers {
		require.NoError(t, server.Start(t.Context()))
	}
	require.NoError(t, cp.Register(t.Context(), servers[0]))
	prometheus := startPrometheus(t, cp, cp.Component(etcd), servers)

	allow(t, cp)
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato", "basil"))
	// kube-apiserver leads to one of the servers only.
	editor, err := cp.RESTConfigFor(user)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	clients := errgroup.Group{}
	clients.Go(func() error {
		return use(ctx, versioned.NewForConfigOrDie(cp.RESTConfig()), editor, framework.ConfigFor(t, cp, servers[1], user))
	})
	defer func() {
		cancel()
		require.NoError(t, clients.Wait())
	}()
	waitForPanels(t, prometheus)
}

// startPrometheus starts a Prometheus with the labels that the ServiceMonitors cause, and returns
// its address.
func startPrometheus(t *testing.T, cp *controlplane.ControlPlane, etcd *controlplane.Component, servers []*controlplane.Component) string {
	t.Helper()
	account, err := cp.RESTConfigFor(serviceaccount.MakeUsername("monitoring", "prometheus-k8s"), serviceaccount.MakeGroupNames("monitoring")...)
	require.NoError(t, err)
	ofEtcd, err := cp.PKI.EtcdCA.Issue(controlplane.Certificate{User: "prometheus"})
	require.NoError(t, err)
	job := func(name string, cert, key []byte, components ...*controlplane.Component) any {
		var targets []any
		for _, component := range components {
			targets = append(targets, map[string]any{
				"targets": []string{strings.TrimPrefix(component.URL(), "https://")},
				"labels":  map[string]string{"namespace": "restaurant-system", "pod": component.Name(), "apiserver": "restaurant-apiserver"},
			})
		}
		return map[string]any{
			"job_name": name, "scheme": "https", "static_configs": targets,
			"tls_config": map[string]string{"ca": string(cp.PKI.ServingCA.CertPEM()), "cert": string(cert), "key": string(key)},
		}
	}
	config, err := json.Marshal(map[string]any{
		"global": map[string]string{"scrape_interval": fmt.Sprintf("%ds", interval), "scrape_timeout": fmt.Sprintf("%ds", interval)},
		"scrape_configs": []any{
			job("extension-apiserver", account.CertData, account.KeyData, servers...),
			job("extension-apiserver-etcd", ofEtcd.Cert, ofEtcd.Key, etcd),
		},
	})
	require.NoError(t, err)

	const name = "prometheus"
	port, err := cp.FreePort(name)
	require.NoError(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	prometheus, err := cp.NewProgram(name, controlplane.Program{
		Binary: name,
		Port:   port,
		Args: []string{
			"--config.file=" + framework.File(t, string(config)), // YAML is a superset of JSON.
			"--storage.tsdb.path=" + t.TempDir(),
			"--web.listen-address=" + address,
		},
		Check: controlplane.CheckURL(http.DefaultClient, "http://"+address+"/-/ready"),
	})
	require.NoError(t, err)
	require.NoError(t, prometheus.Start(t.Context()))
	return "http://" + address
}

// allow lets the user do in the namespace "default" what its users usually may.
func allow(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	for _, role := range []string{"restaurant:edit", "restaurant:view"} {
		_, err := framework.Kube(cp).RbacV1().RoleBindings(metav1.NamespaceDefault).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// use makes requests as clients do until the context ends. Some of them are refused.
func use(ctx context.Context, admin versioned.Interface, configs ...*rest.Config) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	for i, config := range configs {
		config.QPS = -1
		client := versioned.NewForConfigOrDie(config)
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				order(ctx, client, func(n int) string { return fmt.Sprintf("pizza-%d-%d", i, n) }, n)
			}
		})
		clients.Go(func() {
			for ctx.Err() == nil {
				follow(ctx, client)
			}
		})
	}
	for n := int64(1); ctx.Err() == nil; n++ {
		patch := fmt.Appendf(nil, `{"spec":{"cost":"%s"}}`, resource.NewQuantity(1+n%5, resource.DecimalSI))
		_, err := admin.RestaurantV1().Toppings().Patch(ctx, "tomato", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil {
			return err
		}
		framework.Pause(ctx, 15*time.Second)
	}
	return nil
}

// order is a round of a client. Refusals are not looked at: the dashboard shows them.
func order(ctx context.Context, client versioned.Interface, name func(n int) string, n int) {
	pizzas := client.RestaurantV1().Pizzas(metav1.NamespaceDefault)
	pizza := framework.Pizza(name(n))
	if n%20 == 0 {
		pizza.Spec.Toppings[0].Name = "pineapple" // 422: it does not exist.
	}
	_, _ = pizzas.Create(ctx, pizza, metav1.CreateOptions{})
	_, _ = pizzas.Patch(ctx, pizza.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"oven":"stone"}}}`), metav1.PatchOptions{})
	_, _ = pizzas.List(ctx, metav1.ListOptions{Limit: 20})
	if stored, err := pizzas.Get(ctx, name(n-1), metav1.GetOptions{}); err == nil { // or 404
		stored.Labels = nil
		_, _ = pizzas.Update(ctx, stored, metav1.UpdateOptions{}) // 409, if its status is updated meanwhile.
	}
	if keep := 30; n >= keep {
		_ = pizzas.Delete(ctx, name(n-keep), metav1.DeleteOptions{})
	}
	framework.Pause(ctx, 200*time.Millisecond)
}

// follow watches for a while.
func follow(ctx context.Context, client versioned.Interface) {
	seconds := int64(20)
	watcher, err := client.RestaurantV1().Pizzas(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds})
	if err != nil {
		framework.Pause(ctx, time.Second)
		return
	}
	defer watcher.Stop()
	for range watcher.ResultChan() {
	}
}
