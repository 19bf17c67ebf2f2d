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

package migrate

import (
	"context"
	"time"

	"go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/migrate"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

const (
	// lookInterval is how often a server looks for migrations whose process has ended.
	lookInterval = 5 * time.Second
	// lookTimeout bounds that.
	lookTimeout = 10 * time.Second
)

// Recover recovers migrations whose processes have ended, until the context ends. Clients can then
// write again, and the definitions are followed.
func Recover(ctx context.Context, server apiserver.CompletedOptions, groups ...registry.Group) error {
	etcd, err := server.NewEtcdClient(server.Etcd.StorageConfig.Transport.ServerList...)
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }()
	names := (&options{server: &server.Options, groups: groups}).names()
	said := map[string]string{}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, group := range names {
			text := ""
			if err := recoverGroup(ctx, etcd, server, group, groups); err != nil {
				text = err.Error()
				if text != said[group] && ctx.Err() == nil {
					klog.ErrorS(err, "A migration whose process has ended can't be looked for, or can't be recovered", "group", group)
				}
			}
			said[group] = text
		}
	}, lookInterval)
	return nil
}

func recoverGroup(ctx context.Context, etcd *clientv3.Client, server apiserver.CompletedOptions, group string, groups []registry.Group) error {
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if abandoned, err := migrate.Abandoned(looking, etcd, stateKey(server, group)); err != nil || !abandoned {
		return err
	}
	// The definitions may have changed since the start of the server.
	o := &options{server: &server.Options, groups: groups, group: group}
	m, closeEtcd, err := o.migration(ctx, server, "", true, func(progress migrate.Progress) {
		klog.InfoS("Recovering a migration", "group", group, "progress", progress.Message)
	})
	if err != nil {
		return err
	}
	defer closeEtcd()
	return m.Recover(ctx)
}
