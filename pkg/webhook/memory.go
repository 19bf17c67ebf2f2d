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

package webhook

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// A review takes bodyFactor times the size of its body while it is answered. Each element of its lists
// and objects takes elementBytes besides.
const bodyFactor, elementBytes = 6, 900

// bodyTime is how long a client may take to send a body, once there is memory for it. kube-apiserver has
// the body before it calls.
const bodyTime = 5 * time.Second

// reviewsPerProcessor is how many reviews of an IP address are worked on at once, by the number of
// processors. More would not be answered sooner, and others would wait for them.
const reviewsPerProcessor = 4

// memory bounds the memory of all reviews in work together.
type memory struct {
	// spare is for one review at a time that finds too little shared memory. Otherwise, reviews that
	// each have a part would wait for each other until they time out.
	spare *semaphore.Weighted
	// largest is how much a single review can take.
	largest int64
	// shared is the memory that reviews take as their bodies arrive.
	shared *limits.Shares
	// turns are those of IP addresses.
	turns *limits.Turns
}

func newMemory(bytes int64) *memory {
	return &memory{
		shared: limits.NewShares(bytes / 2), spare: semaphore.NewWeighted(1), largest: bytes / 2,
		turns: limits.NewTurns(reviewsPerProcessor * runtime.GOMAXPROCS(0)),
	}
}

// enter waits until a review of an address may begin.
func (m *memory) enter(ctx context.Context, address string) (*reservation, error) {
	end, err := m.turns.Take(ctx, address)
	if err != nil {
		return nil, errMemory
	}
	return &reservation{memory: m, ctx: ctx, address: address, end: end}, nil
}

// maxBody is how long a body may be. It leaves a quarter for elements.
func (m *memory) maxBody(limit int64) int64 { return min(limit, m.largest/4*3/bodyFactor) }

// maxElements is how many elements a body of that length may have.
func (m *memory) maxElements(length int) int {
	return int((m.largest - int64(length)*bodyFactor) / elementBytes)
}

// reservation is the memory that one review has taken.
type reservation struct {
	*memory
	ctx     context.Context
	address string
	// end ends the turn.
	end  func()
	body io.Reader
	// begin gives the client bodyTime.
	begin func()
	taken int64
	// spared reservations have all that a review can take.
	spared bool
}

// Read reads the body, and takes memory for the bytes that have arrived, whatever length was announced.
func (r *reservation) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err := r.take(int64(n) * bodyFactor); err != nil {
		return n, err
	}
	return n, err
}

// takeElements takes memory for the elements of a body.
func (r *reservation) takeElements(body []byte) error {
	// Commas in strings count as well.
	elements := min(bytes.Count(body, []byte{','})+1, r.maxElements(len(body)))
	return r.take(int64(elements) * elementBytes)
}

// take waits for memory.
func (r *reservation) take(bytes int64) error {
	switch {
	case r.spared:
	case r.shared.Take(r.address, bytes):
		r.taken += bytes
	default:
		if err := r.spare.Acquire(r.ctx, 1); err != nil {
			return errMemory
		}
		r.spared = true
		r.begin()
	}
	return nil
}

func (r *reservation) release() {
	r.shared.Give(r.address, r.taken)
	r.end()
	if r.spared {
		r.spare.Release(1)
	}
}
