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

package limits

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Turns let each client have a number of requests in work at once. Its others wait for these.
type Turns struct {
	each int64

	mu sync.Mutex
	// clients have requests that wait or are in work.
	clients map[string]*turns
}

type turns struct {
	*semaphore.Weighted
	requests int
}

// NewTurns returns Turns, where each is the number of requests of a client that are in work at once.
func NewTurns(each int) *Turns { return &Turns{each: int64(each), clients: map[string]*turns{}} }

// Take waits until it is the turn of a request. The returned function ends the turn.
func (t *Turns) Take(ctx context.Context, client string) (end func(), err error) {
	t.mu.Lock()
	of := t.clients[client]
	if of == nil {
		of = &turns{Weighted: semaphore.NewWeighted(t.each)}
		t.clients[client] = of
	}
	of.requests++
	t.mu.Unlock()
	if err := of.Acquire(ctx, 1); err != nil {
		t.leave(client, of)
		return nil, err
	}
	return func() {
		of.Release(1)
		t.leave(client, of)
	}, nil
}

func (t *Turns) leave(client string, of *turns) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of.requests--; of.requests == 0 {
		delete(t.clients, client)
	}
}
