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
	"math"
	"runtime/debug"

	"golang.org/x/sync/semaphore"
)

// bodyFactor is how many times the size of its body a review takes while it is answered, and
// elementBytes how much each element of its lists and objects takes besides.
const bodyFactor, elementBytes = 6, 900

// memory bounds what the reviews in work take together.
type memory struct {
	// shared is taken as bodies arrive, by all reviews.
	shared *semaphore.Weighted
	// spare is for one review at a time that finds too little in shared. Otherwise, reviews that
	// each have a part would wait for each other until they time out.
	spare *semaphore.Weighted
	// largest is how much a single review can take.
	largest int64
}

// reviewMemory is half of GOMEMLIMIT: the other half is for informers.
func reviewMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = 512 << 20
	}
	return limit / 2
}

func newMemory(bytes int64) *memory {
	return &memory{semaphore.NewWeighted(bytes / 2), semaphore.NewWeighted(1), bytes / 2}
}

// maxBody is how long a body may be. It leaves a quarter for elements.
func (m *memory) maxBody(limit int64) int64 { return min(limit, m.largest/4*3/bodyFactor) }

// maxElements is how many elements a body of that length may have.
func (m *memory) maxElements(length int) int {
	return int((m.largest - int64(length)*bodyFactor) / elementBytes)
}

// reservation is what one review has taken.
type reservation struct {
	*memory
	ctx   context.Context
	body  io.Reader
	taken int64
	// spared reservations have all that a review can take.
	spared bool
}

// Read reads the body, and takes memory for what has arrived, whatever length was announced.
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
	case r.shared.TryAcquire(bytes):
		r.taken += bytes
	default:
		if err := r.spare.Acquire(r.ctx, 1); err != nil {
			return errMemory
		}
		r.spared = true
	}
	return nil
}

func (r *reservation) release() {
	r.shared.Release(r.taken)
	if r.spared {
		r.spare.Release(1)
	}
}
