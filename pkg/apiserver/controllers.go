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

package apiserver

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// controllers run in one of all replicas at a time.
type controllers struct {
	runtimes map[string]registry.Runtime
	elector  *leaderelection.LeaderElector
	election componentbaseconfig.LeaderElectionConfiguration
	// leading is held while the controllers run. A leader that lost its lease and got it
	// back does not start them again before they have stopped.
	leading sync.Mutex
}

// newControllers prepares the election of the replica that runs the controllers.
func newControllers(runtimes map[string]registry.Runtime, election componentbaseconfig.LeaderElectionConfiguration, cluster *rest.Config) (*controllers, error) {
	c := &controllers{runtimes: runtimes, election: election}
	if !election.LeaderElect {
		return c, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(cluster)
	config.UserAgent += "/leader-election"
	// A request that takes longer leaves no time for another before the lease is lost.
	config.Timeout = max(election.RenewDeadline.Duration/2, time.Second)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lock, err := resourcelock.New(election.ResourceLock, election.ResourceNamespace, election.ResourceName,
		client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())})
	if err != nil {
		return nil, fmt.Errorf("--leader-elect-resource-lock: %w", err)
	}
	c.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name:          election.ResourceName,
		Lock:          lock,
		LeaseDuration: election.LeaseDuration.Duration,
		RenewDeadline: election.RenewDeadline.Duration,
		RetryPeriod:   election.RetryPeriod.Duration,
		// The server detects conflicts with the writes of controllers that are still
		// stopping.
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: c.lead,
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { klog.InfoS("The controllers have a leader", "identity", identity) },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--leader-elect-lease-duration, --leader-elect-renew-deadline or --leader-elect-retry-period: %w", err)
	}
	return c, nil
}

// install makes the server start the controllers, and stop them before itself, since they
// are its clients. Its readiness does not depend on the leader.
func (c *controllers) install(server *genericapiserver.GenericAPIServer) error {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	if err := server.AddPreShutdownHook("stop-controllers", func() error {
		cancel()
		running.Wait()
		return nil
	}); err != nil {
		return err
	}
	return server.AddPostStartHook("start-controllers", func(hook genericapiserver.PostStartHookContext) error {
		// WaitForCacheSync waits only for started informers, and hooks run in no order.
		for _, group := range c.runtimes {
			group.Informers.Start(hook.Done())
		}
		context.AfterFunc(hook, cancel)
		running.Go(func() { c.run(ctx) })
		return nil
	})
}

// run runs the controllers while this replica leads.
func (c *controllers) run(ctx context.Context) {
	if c.elector == nil {
		c.lead(ctx)
		return
	}
	// A replica that loses the lease keeps serving and stands for election again.
	wait.UntilWithContext(ctx, c.elector.Run, c.election.RetryPeriod.Duration)
	c.leading.Lock()   // It is free when the controllers have stopped.
	c.leading.Unlock() //nolint:gocritic,staticcheck // Nothing is to be done then.
}

// lead runs the controllers until the context ends.
func (c *controllers) lead(ctx context.Context) {
	c.leading.Lock()
	defer c.leading.Unlock()
	// client-go calls it in a goroutine, which may begin after run has returned.
	if ctx.Err() != nil {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, group := range c.runtimes {
		group.Informers.WaitForCacheSync(ctx.Done())
		for _, controller := range group.Controllers {
			running.Go(func() { controller.Run(ctx) })
		}
	}
}
