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

// Package limits bounds what a request may cost, and what all requests may take together: memory, the time of slow
// clients, and watches.
package limits

import (
	"net/netip"
	"sync"
)

// Shares is a per-client quota over a common pool. A client may hold no more of it than is left for others: however
// many clients there are, the next one finds some.
type Shares struct {
	// most is how much a client may have. The part kept is for clients that have no more than the least.
	least, most, kept int64

	mu    sync.Mutex
	free  int64
	taken map[string]int64
}

// newcomers is how many clients get the least after others have all that they can.
const newcomers = 50

// NewShares returns Shares of a total. A client may have the most, if that leaves as much to others, and the least in any
// case, as long as there is something.
func NewShares(total, most, least int64) *Shares {
	return &Shares{least: least, most: most, kept: min(newcomers*least, total/4), free: total, taken: map[string]int64{}}
}

// Take gives a part to a client, or reports false if it would have more than it may.
func (s *Shares) Take(client string, part int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, may := s.free-part, s.least
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

// prefixIPv6 is the length of the prefix of an IPv6 address that a single client is given.
const prefixIPv6 = 64

// ClientAddress returns the part of a remote address that one client has alone: an IPv4 address, or
// a prefix of an IPv6 address.
func ClientAddress(remote string) string {
	port, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	address := port.Addr().Unmap()
	if address.Is4() {
		return address.String()
	}
	prefix, _ := address.WithZone("").Prefix(prefixIPv6) // No IPv6 address is shorter.
	return prefix.String()
}
