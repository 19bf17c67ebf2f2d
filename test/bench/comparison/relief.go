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

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Relief is the memory that each program needs for custom resources, which moving them to
// crd-apiserver takes off a cluster. The same objects are stored for kube-apiserver and for
// crd-apiserver.
type Relief struct {
	Objects int `json:"objects"`
	// KubeAPIServer, CRDAPIServer and Etcd are bytes of resident memory. Etcd has only
	// kube-apiserver's objects then.
	KubeAPIServer int64 `json:"kubeAPIServer"`
	CRDAPIServer  int64 `json:"crdAPIServer"`
	Etcd          int64 `json:"etcd"`
	// Database is the size of etcd's file in bytes, with the same.
	Database int64 `json:"database"`
}

// measureRelief starts the servers again without custom resources, and with as many as are asked
// for, which are copies of one in etcd.
func (b *bench) measureRelief(ctx context.Context, result *Result, s size) (err error) {
	if s.relief == 0 {
		return nil
	}
	stay, moved := b.contender(reference), b.contender("crd-apiserver")
	clients, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return err
	}
	for _, c := range []*contender{stay, moved} {
		if err := verbs[0].do(c, "stored")(ctx, clients[0], 0); err != nil {
			return err
		}
	}
	client, err := b.etcd()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	for _, objects := range []int{1, s.relief} {
		progress(fmt.Sprintf("Starting kube-apiserver and crd-apiserver with %d custom resources each", objects))
		if err := copyStored(ctx, client, "/registry/"+stay.group+"/"+stay.resource, 1, objects); err != nil {
			return err
		}
		relief := Relief{Objects: objects}
		if relief.Etcd, _, err = machine.Resident(b.cp.Etcd.PID()); err != nil {
			return err
		}
		status, err := client.Status(ctx, b.cp.Etcd.URL())
		if err != nil {
			return err
		}
		relief.Database = status.DbSize
		if err := copyStored(ctx, client, movedPrefix+"/"+moved.group+"/"+moved.resource, 1, objects); err != nil {
			return err
		}
		if relief.KubeAPIServer, err = b.residentWith(ctx, b.cp.KubeAPIServer, clients[0], stay); err != nil {
			return err
		}
		if relief.CRDAPIServer, err = b.residentWith(ctx, moved.server, clients[0], moved); err != nil {
			return err
		}
		result.Relief = append(result.Relief, relief)
	}
	return nil
}

// residentWith restarts a server, and returns its memory when it has filled the watch cache of a
// contender and has been left alone.
func (b *bench) residentWith(ctx context.Context, server *controlplane.Component, client client, c *contender) (int64, error) {
	if err := server.Restart(ctx); err != nil {
		return 0, err
	}
	if err := awaitCache(ctx, client, c); err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(2 * settle):
	}
	now, _, err := machine.Resident(server.PID())
	return now, err
}

func (b *bench) contender(name string) *contender {
	return b.contenders[slices.IndexFunc(b.contenders, func(c *contender) bool { return c.name == name })]
}
