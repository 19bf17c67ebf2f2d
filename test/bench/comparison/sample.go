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
	"time"

	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Sample is one measurement: in one round, one contender did one thing for some clients.
type Sample struct {
	Round     int    `json:"round"`
	Contender string `json:"contender"`
	Verb      string `json:"verb"`
	Clients   int    `json:"clients"`
	Requests  int    `json:"requests"`
	// PerSecond is how many requests were answered in a second.
	PerSecond float64 `json:"perSecond"`
	// Median is the latency in milliseconds.
	Median float64 `json:"median"`
	// KubeAPIServer, Server and Etcd are the milliseconds of processor time for a request
	// in each process.
	KubeAPIServer float64 `json:"kubeAPIServer"`
	Server        float64 `json:"server"`
	Etcd          float64 `json:"etcd"`
}

// cpu is the processor time that the processes of a contender have used.
type cpu struct{ kubeAPIServer, server, etcd time.Duration }

func (b *bench) cpu(c *contender) (used cpu, err error) {
	for _, process := range []struct {
		*controlplane.Component
		used *time.Duration
	}{{b.cp.KubeAPIServer, &used.kubeAPIServer}, {c.server, &used.server}, {b.cp.Etcd, &used.etcd}} {
		if process.Component == nil {
			continue
		}
		if *process.used, err = machine.CPU(process.PID()); err != nil {
			return cpu{}, err
		}
	}
	return used, nil
}

// measure has clients do something, and says what it took. The caller fills in the fields
// that name it: Round and Verb.
func (b *bench) measure(ctx context.Context, c *contender, clients []client, requests int, do task) (Sample, error) {
	before, err := b.cpu(c)
	if err != nil {
		return Sample{}, err
	}
	durations, took, err := drive(ctx, clients, requests, do)
	if err != nil {
		return Sample{}, err
	}
	after, err := b.cpu(c)
	if err != nil {
		return Sample{}, err
	}
	each := func(d time.Duration) float64 { return milliseconds(d) / float64(requests) }
	return Sample{
		Contender: c.name, Clients: len(clients), Requests: requests,
		PerSecond:     float64(requests) / took.Seconds(),
		Median:        milliseconds(durations[len(durations)/2]),
		KubeAPIServer: each(after.kubeAPIServer - before.kubeAPIServer),
		Server:        each(after.server - before.server),
		Etcd:          each(after.etcd - before.etcd),
	}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
