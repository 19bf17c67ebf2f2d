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
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

const (
	// creators is how many clients work at a time.
	creators = 16
	// rounds is how often they take turns.
	rounds = 5
)

// measureThroughput returns how many pizzas clients create in a second at the server itself.
// It also returns how many values of that size they put into the same etcd without a server.
func measureThroughput(ctx context.Context, cp *controlplane.ControlPlane, config controlplane.ServerConfig, requests int) (_ []figure, err error) {
	config.Etcd = "etcd"
	// Controllers would go on working after the answer.
	config.Flags = append(slices.Clone(config.Flags), "--run-controllers=false")
	server, err := startServer(ctx, cp, "bench-throughput", config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	etcdTLS, err := cp.EtcdTLS()
	if err != nil {
		return nil, err
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{cp.Etcd.URL()}, Logger: zap.NewNop(), TLS: etcdTLS})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()

	var creations, puts, ratios []float64
	for round := range rounds + 1 {
		progress(fmt.Sprintf("Creating pizzas, and putting them into etcd, %d of %d", round, rounds))
		created, err := perSecond(ctx, requests, server.createPizza(fmt.Sprintf("throughput-%d", round), nil))
		if err != nil {
			return nil, err
		}
		value, err := storedPizza(ctx, etcd)
		if err != nil {
			return nil, err
		}
		put, err := perSecond(ctx, requests, func(ctx context.Context, n int) error {
			_, err := etcd.Put(ctx, fmt.Sprintf("/bench/%d-%d", round, n), value)
			return err
		})
		if err != nil {
			return nil, err
		}
		if round > 0 { // The first warms up.
			creations, puts, ratios = append(creations, created), append(puts, put), append(ratios, created/put)
		}
	}
	return []figure{
		{what: fmt.Sprintf("create pizzas, %d clients", creators), value: rates(creations)},
		{what: "put as many bytes into etcd, without a server", value: rates(puts)},
		{what: "the former divided by the latter", value: fmt.Sprintf("%.2f", median(ratios)), goal: "> 0.2"},
	}, nil
}

// storedPizza returns the bytes of a pizza in etcd.
func storedPizza(ctx context.Context, etcd *clientv3.Client) (string, error) {
	const pizzas = "/registry/restaurant.programming-kubernetes.info/pizzas/"
	stored, err := etcd.Get(ctx, pizzas, clientv3.WithPrefix(), clientv3.WithLimit(1))
	if err != nil {
		return "", err
	}
	if len(stored.Kvs) == 0 {
		return "", fmt.Errorf("etcd has no pizza below %s", pizzas)
	}
	return string(stored.Kvs[0].Value), nil
}

// perSecond does something a number of times, and returns how often in a second.
func perSecond(ctx context.Context, times int, do func(ctx context.Context, n int) error) (float64, error) {
	began := time.Now()
	err := together(ctx, times, do)
	return float64(times) / time.Since(began).Seconds(), err
}

// together does something a number of times, by many at a time.
func together(ctx context.Context, times int, do func(ctx context.Context, n int) error) error {
	errs := make(chan error, creators)
	var running sync.WaitGroup
	for creator := range creators {
		running.Go(func() {
			for n := creator; n < times; n += creators {
				if err := do(ctx, n); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(errs)
	return <-errs
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// rates formats the median and the extremes.
func rates(perSecond []float64) string {
	return fmt.Sprintf("%.0f/s (%.0f to %.0f, %d rounds)", median(perSecond), slices.Min(perSecond), slices.Max(perSecond), len(perSecond))
}
