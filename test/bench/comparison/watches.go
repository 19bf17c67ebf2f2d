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
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
)

// Watch is what many watches of one kind cost a contender.
type Watch struct {
	Contender string `json:"contender"`
	Watches   int    `json:"watches"`
	Writes    int    `json:"writes"`
	// Seconds is how long the writes took, and Behind how long after the last of them every
	// watch had seen them all.
	Seconds float64 `json:"seconds"`
	Behind  float64 `json:"behind"`
	// KubeAPIServer and Server are the microseconds of processor time for one event at one
	// watch, the writes included.
	KubeAPIServer float64 `json:"kubeAPIServer"`
	Server        float64 `json:"server"`
	// KubeAPIServerMemory and ServerMemory are the bytes that each watch has let the
	// processes grow by.
	KubeAPIServerMemory int64 `json:"kubeAPIServerMemory"`
	ServerMemory        int64 `json:"serverMemory"`
}

const (
	// events is how many events all watches see together, of objects that are changed
	// writesPerSecond times.
	events          = 1_000_000
	writesPerSecond = 100
	// watchesPerConnection is fewer than a server lets one have.
	watchesPerConnection = 100
)

func (b *bench) measureWatches(ctx context.Context, result *Result, s size) error {
	if s.watches == 0 {
		return nil
	}
	for _, c := range b.contenders {
		if c.server != nil && c.server != b.cp.APIServer {
			continue // It is watched as custom resources are.
		}
		progress(fmt.Sprintf("Watching %s %d times", c.name, s.watches))
		watch, err := b.watch(ctx, b.user, c, s.watches, max(1, events/s.watches))
		if err != nil {
			return fmt.Errorf("%s: watch: %w", c.name, err)
		}
		result.Watches = append(result.Watches, watch)
	}
	return nil
}

func (b *bench) watch(ctx context.Context, config *rest.Config, c *contender, number, writes int) (Watch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writer, err := newClients(config, 1)
	if err != nil {
		return Watch{}, err
	}
	clients, err := newClients(config, (number+watchesPerConnection-1)/watchesPerConnection)
	if err != nil {
		return Watch{}, err
	}
	create, remove := verbs[0].do(c, "watched"), verbs[3].do(c, "watched")
	if err := create(ctx, writer[0], 0); err != nil {
		return Watch{}, err
	}
	kubeAPIServer, server, err := b.memory(c)
	if err != nil {
		return Watch{}, err
	}
	name := object("watched", 0)
	from := c.revision[name]
	var seen atomic.Int64
	var opened, watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	failed := make(chan error, number)
	for i := range number {
		opened.Add(1)
		watching.Go(func() {
			if err := clients[i%len(clients)].watch(ctx, c.path(c.version)+"?watch=true&resourceVersion="+from, opened.Done, &seen); err != nil {
				failed <- err
			}
		})
	}
	opened.Wait()
	watch := Watch{Contender: c.name, Watches: number, Writes: writes}
	if watch.KubeAPIServerMemory, watch.ServerMemory, err = b.memory(c); err != nil {
		return Watch{}, err
	}
	watch.KubeAPIServerMemory = (watch.KubeAPIServerMemory - kubeAPIServer) / int64(number)
	watch.ServerMemory = (watch.ServerMemory - server) / int64(number)

	before, err := b.cpu(c)
	if err != nil {
		return Watch{}, err
	}
	began := time.Now()
	pace := time.NewTicker(time.Second / writesPerSecond)
	defer pace.Stop()
	for n := range writes {
		answer, err := writer[0].do(ctx, http.MethodPut, c.path(c.version)+"/"+name, "", c.object(name, n+2))
		if err != nil {
			return Watch{}, err
		}
		if err := c.remember(name, answer); err != nil {
			return Watch{}, err
		}
		<-pace.C
	}
	watch.Seconds = time.Since(began).Seconds()
	written := time.Now()
	for seen.Load() < int64(number*writes) {
		select {
		case err := <-failed:
			return Watch{}, err
		case <-ctx.Done():
			return Watch{}, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	watch.Behind = time.Since(written).Seconds()
	after, err := b.cpu(c)
	if err != nil {
		return Watch{}, err
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(number*writes) }
	watch.KubeAPIServer, watch.Server = each(after.kubeAPIServer-before.kubeAPIServer), each(after.server-before.server)
	return watch, remove(ctx, writer[0], 0)
}

// memory returns how much memory kube-apiserver and the contender's server have.
func (b *bench) memory(c *contender) (kubeAPIServer, server int64, err error) {
	if kubeAPIServer, _, err = machine.Resident(b.cp.KubeAPIServer.PID()); err != nil || c.server == nil {
		return kubeAPIServer, 0, err
	}
	server, _, err = machine.Resident(c.server.PID())
	return kubeAPIServer, server, err
}

// watch counts events, one to a line, until the context is done.
func (c client) watch(ctx context.Context, path string, opened func(), seen *atomic.Int64) error {
	response, err := c.openWatch(ctx, path)
	opened()
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for lines := bufio.NewReader(response.Body); ; {
		if _, err := lines.ReadSlice('\n'); err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if ctx.Err() != nil {
				return nil
			}
			return err
		} else if err == nil {
			seen.Add(1)
		}
	}
}

// openWatch opens a watch, again and again while there are too many that begin.
func (c client) openWatch(ctx context.Context, path string) (*http.Response, error) {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, http.NoBody)
		if err != nil {
			return nil, err
		}
		response, err := c.http.Do(request)
		if err != nil || response.StatusCode == http.StatusOK {
			return response, err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusTooManyRequests {
			return nil, errors.New(response.Status)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
