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
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// client is one of several that work at the same time, each with a connection of its own, as
// the clients of a cluster are.
type client struct {
	http *http.Client
	host string
}

func newClients(config *rest.Config, number int) ([]client, error) {
	clients := make([]client, number)
	for i := range clients {
		config := rest.CopyConfig(config)
		// Clients with equal configurations would share one connection.
		config.Dial = new(net.Dialer).DialContext
		connection, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		clients[i] = client{connection, config.Host}
	}
	return clients, nil
}

// accept is a media type, and empty for JSON.
func (c client) do(ctx context.Context, method, path, accept string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.host+path, bodyReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusConflict {
		return nil, fmt.Errorf("%s %s: %w: %s", method, path, errConflict, answer)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, nil
}

// errConflict is the answer to an update of what has changed meanwhile.
var errConflict = errors.New("409 Conflict")

// task is the nth request of a workload.
type task func(ctx context.Context, c client, n int) error

// drive has the clients work on tasks until the given number is done, and returns how long
// each took, sorted, and how long all took.
func drive(ctx context.Context, clients []client, number int, do task) ([]time.Duration, time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	durations := make([]time.Duration, number)
	var next atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	for _, c := range clients {
		running.Go(func() {
			for n := int(next.Add(1)) - 1; n < number && ctx.Err() == nil; n = int(next.Add(1)) - 1 {
				began := time.Now()
				if err := do(ctx, c, n); err != nil {
					cancel(err)
					return
				}
				durations[n] = time.Since(began)
			}
		})
	}
	running.Wait()
	took := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return nil, 0, err
	}
	slices.Sort(durations)
	return durations, took, nil
}
