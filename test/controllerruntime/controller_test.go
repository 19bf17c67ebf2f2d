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

// Package controllerruntime shows that a group's controller can be written with
// controller-runtime. It is a module of its own, since only its test needs that.
package controllerruntime

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
	workshopv1 "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop/v1"
)

// The manager is a client of the server that it runs in.
type controller struct {
	loopback *rest.Config
}

// Run makes the manager each time this replica gets the Lease: a manager starts only once.
func (c controller) Run(ctx context.Context) {
	if err := c.run(ctx); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "The controller of machines has ended")
	}
}

func (c controller) run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := workshopv1.AddToScheme(scheme); err != nil {
		return err
	}
	again := true
	mgr, err := manager.New(c.loopback, manager.Options{
		Scheme: scheme,
		Logger: klog.FromContext(ctx),
		// The server has a Lease, metrics and health checks already.
		LeaderElection: false,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return err
	}
	machines := mgr.GetClient()
	reconciler := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		var machine workshopv1.Machine
		if err := machines.Get(ctx, request.NamespacedName, &machine); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		machine.Status.Replicas = *machine.Spec.Replicas
		return reconcile.Result{}, machines.Status().Update(ctx, &machine)
	})
	if err := builder.ControllerManagedBy(mgr).For(&workshopv1.Machine{}).Complete(reconciler); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func TestController(t *testing.T) {
	group := workshop.Group()
	group.Runtime = func(clients registry.Clients) (registry.Runtime, error) {
		// The manager has informers of its own, which run where the controller runs.
		none, err := kubernetes.NewForConfig(clients.Cluster)
		if err != nil {
			return registry.Runtime{}, err
		}
		return registry.Runtime{
			Informers:   informers.NewSharedInformerFactory(none, 0),
			Controllers: []registry.Controller{controller{clients.Loopback}},
		}, nil
	}
	cp := controlplane.ForTest(t, controlplane.Config{
		Manifests:         "../../artifacts/deploy/base",
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})
	running, err := cp.NewAPIServer("workshop", controlplane.ServerConfig{
		Kubeconfig:      cp.Kubeconfig(),
		ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--storage-media-type=application/json", "--leader-elect=false"}},
		Run: func(ctx context.Context, flags []string) error {
			cmd := server.NewCommand(ctx, "workshop", group)
			cmd.SetArgs(flags)
			return cmd.ExecuteContext(ctx)
		},
	})
	require.NoError(t, err)
	require.NoError(t, running.Start(t.Context()))
	scheme := runtime.NewScheme()
	require.NoError(t, workshopv1.AddToScheme(scheme))
	admin := cp.RESTConfig()
	admin.Host = running.URL()
	machines, err := client.New(admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	replicas := int32(3)
	machine := &workshopv1.Machine{Spec: workshopv1.MachineSpec{Replicas: &replicas}}
	machine.Namespace, machine.Name = "default", "lathe"
	require.NoError(t, machines.Create(t.Context(), machine))
	require.Eventually(t, func() bool {
		require.NoError(t, machines.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "lathe"}, machine))
		return machine.Status.Replicas == replicas
	}, 3*time.Minute, 50*time.Millisecond)
}
