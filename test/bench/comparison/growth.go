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
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Growth is what a server costs that has stored objects, which it keeps in its watch cache.
type Growth struct {
	Objects int `json:"objects"`
	// Ready is how many seconds after its start the server is ready. CPU is how many of
	// processor time it has used until then.
	Ready float64 `json:"ready"`
	CPU   float64 `json:"cpu"`
	// Cached is how many seconds after that its watch cache has all objects.
	Cached float64 `json:"cached"`
	// Resident and Peak are the bytes of its memory, a moment later.
	Resident int64 `json:"resident"`
	Peak     int64 `json:"peak"`
	// Create and DeleteTopping are the milliseconds of processor time that each takes the
	// server.
	Create        float64 `json:"create"`
	DeleteTopping float64 `json:"deleteTopping"`
	// List is how many bytes of memory the server needs more while it sends all objects, and
	// ListSeconds how long that takes.
	List        int64   `json:"list"`
	ListSeconds float64 `json:"listSeconds"`
}

const (
	growthPrefix = "/growth"
	// settle is how long a server that has started is left alone.
	settle = 5 * time.Second
	// attempts is how many requests are measured with each number of objects.
	attempts = 200
)

// measureGrowth starts a server of its own with more and more pizzas, which are copies of one
// in etcd.
func (b *bench) measureGrowth(ctx context.Context, result *Result, s size) (err error) {
	if len(s.growth) == 0 {
		return nil
	}
	server, err := b.cp.NewAPIServer("growth", controlplane.ServerConfig{Etcd: b.cp.Etcd.Name(), ComponentConfig: controlplane.ComponentConfig{
		Flags: []string{withoutControllers, "--etcd-prefix=" + growthPrefix},
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	clients, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return err
	}
	clients[0].host = server.URL()
	c := &contender{name: "growth", group: restaurant.GroupName, version: "v1", resource: "pizzas", kind: "Pizza", content: pizzaContent, server: server, revision: map[string]string{}}
	toppings := &contender{name: "growth", group: restaurant.GroupName, version: "v1", resource: "toppings", clusterScoped: true, kind: "Topping", content: `"spec":{"cost":"1"}`, server: server, revision: map[string]string{}}
	if err := server.Start(ctx); err != nil {
		return err
	}
	if err := verbs[0].do(toppings, "mozzarella")(ctx, clients[0], 0); err != nil {
		return err
	}
	c.content = `"spec":{"toppings":[{"name":"mozzarella-000000"}]}`
	if err := verbs[0].do(c, "stored")(ctx, clients[0], 0); err != nil {
		return err
	}
	client, err := b.etcd()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	stored := 1
	for _, objects := range s.growth {
		progress(fmt.Sprintf("Starting the server with %d pizzas", objects))
		if err := server.Stop(); err != nil {
			return err
		}
		if err := copyStored(ctx, client, growthPrefix+"/"+c.group+"/"+c.resource, stored, objects); err != nil {
			return err
		}
		stored = max(stored, objects)
		growth, err := b.grown(ctx, clients, c, toppings)
		if err != nil {
			return err
		}
		growth.Objects = objects
		result.Growth = append(result.Growth, growth)
	}
	return nil
}

func (b *bench) grown(ctx context.Context, clients []client, pizzas, toppings *contender) (Growth, error) {
	began := time.Now()
	if err := pizzas.server.Start(ctx); err != nil {
		return Growth{}, err
	}
	growth := Growth{Ready: time.Since(began).Seconds()}
	used, err := machine.CPU(pizzas.server.PID())
	if err != nil {
		return Growth{}, err
	}
	growth.CPU = used.Seconds()
	ready := time.Now()
	if err := awaitCache(ctx, clients[0], pizzas); err != nil {
		return Growth{}, err
	}
	growth.Cached = time.Since(ready).Seconds()
	select {
	case <-ctx.Done():
		return Growth{}, ctx.Err()
	case <-time.After(settle):
	}
	if growth.Resident, growth.Peak, err = machine.Resident(pizzas.server.PID()); err != nil {
		return Growth{}, err
	}
	for _, step := range []struct {
		of   *contender
		verb verb
		to   *float64
	}{{pizzas, verbs[0], &growth.Create}, {pizzas, verbs[3], nil}, {toppings, verbs[0], nil}, {toppings, verbs[3], &growth.DeleteTopping}} {
		sample, err := b.measure(ctx, step.of, clients, attempts, step.verb.do(step.of, "grown"))
		if err != nil {
			return Growth{}, err
		}
		if step.to != nil {
			*step.to = sample.Server
		}
	}
	err = growth.list(ctx, clients[0], pizzas)
	return growth, err
}

// awaitCache returns when a server's watch cache has all objects of a contender.
func awaitCache(ctx context.Context, client client, c *contender) error {
	query := "?resourceVersion=0&labelSelector=of=none"
	if c.name == uncached {
		query = "?limit=1"
	}
	return retry(ctx, 10*time.Minute, func() error {
		_, err := client.do(ctx, http.MethodGet, c.path(c.version)+query, "", nil)
		return err
	})
}

// list measures a list of all objects in JSON.
func (g *Growth) list(ctx context.Context, client client, c *contender) error {
	if err := machine.ForgetPeak(c.server.PID()); err != nil {
		return err
	}
	before, _, err := machine.Resident(c.server.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.list(c.version, "", 0)(ctx, client); err != nil {
		return err
	}
	g.ListSeconds = time.Since(began).Seconds()
	_, peak, err := machine.Resident(c.server.PID())
	g.List = peak - before
	return err
}

// copyStored makes as many objects of the first one that is stored under a prefix. Their names
// are equally long, so that the length of the value does not change, which its encoding knows.
func copyStored(ctx context.Context, client *clientv3.Client, prefix string, from, to int) error {
	key := func(n int) string { return prefix + "/" + namespace + "/" + object("stored", n) }
	first, err := client.Get(ctx, key(0))
	if err != nil {
		return err
	}
	if len(first.Kvs) == 0 {
		return fmt.Errorf("etcd does not have %s", key(0))
	}
	value, err := etcd.OpenValue(key(0), first.Kvs[0].Value)
	if err != nil {
		return err
	}
	sealed := etcd.ValueIsSealed(first.Kvs[0].Value)
	const batch = 100
	revision := int64(0)
	for n := from; n < to; n += batch {
		var puts []clientv3.Op
		for i := n; i < min(n+batch, to); i++ {
			renamed := bytes.ReplaceAll(value, []byte(object("stored", 0)), []byte(object("stored", i)))
			if sealed {
				renamed = etcd.SealValue(key(i), renamed)
			}
			puts = append(puts, clientv3.OpPut(key(i), string(renamed)))
		}
		response, err := client.Txn(ctx).Then(puts...).Commit()
		if err != nil {
			return err
		}
		revision = response.Header.Revision
	}
	if revision == 0 {
		return nil
	}
	// A server would begin its history in the midst of the copies.
	_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	return err
}

func (b *bench) etcd() (*clientv3.Client, error) {
	config, err := b.cp.EtcdTLS()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: []string{b.cp.Etcd.URL()}, Logger: zap.NewNop(), TLS: config})
}
