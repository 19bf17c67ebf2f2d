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

import "sync"

// Shares are parts of something that clients share. A client may have as much of it as it leaves to others: however
// many clients there are, the next one finds some.
type Shares struct {
	// most is how much a client may have at most. The part kept is for clients that have no more than the least.
	least, most, kept int64

	mu    sync.Mutex
	free  int64
	taken map[string]int64
}

// NewShares returns Shares of a total.
func NewShares(total int64) *Shares {
	return &Shares{most: total, free: total, taken: map[string]int64{}}
}

// NewBoundShares returns Shares of three times what a client may have at most, with a least.
func NewBoundShares(least, most int64) *Shares {
	shares := NewShares(3 * most).WithLeast(min(least, most))
	shares.most = most
	return shares
}

// newcomers is how many clients get the least after others have all that they can. All ServiceAccounts of a namespace
// are one client, so an attacker needs as many namespaces or addresses.
const newcomers = 50

// WithLeast keeps the least for newcomers, but no more than a quarter of the total. Otherwise, clients that each take
// half of the rest would soon leave nothing.
func (s *Shares) WithLeast(least int64) *Shares {
	s.least, s.kept = least, min(newcomers*least, s.free/4)
	return s
}

// Take gives a part to a client, or tells that it would have more than it leaves.
func (s *Shares) Take(client string, part int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.free - part
	may := s.least
	if left >= s.kept {
		may = max(may, min(s.most, left))
	}
	if left < 0 || s.taken[client]+part > may {
		return false
	}
	s.move(client, part)
	return true
}

// Give takes a part back from a client.
func (s *Shares) Give(client string, part int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move(client, -part)
}

func (s *Shares) move(client string, part int64) {
	s.free -= part
	if s.taken[client] += part; s.taken[client] == 0 {
		delete(s.taken, client)
	}
}
