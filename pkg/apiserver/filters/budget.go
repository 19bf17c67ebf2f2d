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

package filters

import (
	"errors"
	"io"
	"math"
	"runtime/debug"
	"sync/atomic"
)

const (
	// decodeFactor is how many times the size of its text an object takes at most while
	// a body within the bounds is decoded, converted and validated.
	decodeFactor = 6
	// budgetRetrySeconds is when a client may hope that others have finished.
	budgetRetrySeconds = 1
	// readChunk is how much of a body is taken from the budget at once, so that a client
	// that sends it slowly keeps no more from others than it has sent.
	readChunk = 32 << 10
)

var errBudget = errors.New("the memory for bodies is used up")

// defaultBodyMemory is half of GOMEMLIMIT.
func defaultBodyMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 512 << 20
	}
	return limit / 2
}

// budget bounds the memory that bodies in work take together.
type budget struct {
	limit int64
	used  atomic.Int64
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

func (b *budget) share() *share { return &share{budget: b} }

// share is what one request has taken of a budget.
type share struct {
	*budget
	taken int64
}

// take tells whether there was enough. It does not wait for others: two that wait for
// each other, with a part of their bodies read, would do so forever.
func (s *share) take(bytes int64) bool {
	if s.used.Add(bytes) > s.limit {
		s.used.Add(-bytes)
		return false
	}
	s.taken += bytes
	return true
}

func (s *share) release() { s.used.Add(-s.taken) }

// read reads a body to its end, and takes from the budget what it costs to decode it.
func (s *share) read(body io.Reader) ([]byte, error) {
	var text []byte
	for chunk := make([]byte, readChunk); ; {
		n, err := body.Read(chunk)
		if !s.take(int64(n) * decodeFactor) {
			return nil, errBudget
		}
		text = append(text, chunk[:n]...)
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
