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
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// However much clients have taken, the next one finds some.
func TestShares(t *testing.T) {
	for name, test := range map[string]struct {
		total int64
		// takes are those of one each, by the names of the clients.
		takes, want string
	}{
		"half for the first":            {6, "aaaa", "yyyn"},
		"half of the rest for the next": {12, "aaaaaaabbbbcc", "yyyyyynyyynyn"},
		"none of the last one":          {2, "ab", "yn"},
		"nothing":                       {0, "a", "n"},
		"given back":                    {6, "aaaAaa", "yyyyyn"},
	} {
		t.Run(name, func(t *testing.T) {
			shares := NewShares(test.total)
			var got strings.Builder
			for _, client := range test.takes {
				switch {
				case client == 'A':
					shares.Give("a", 1)
					got.WriteByte('y')
				case shares.Take(string(client), 1):
					got.WriteByte('y')
				default:
					got.WriteByte('n')
				}
			}
			require.Equal(t, test.want, got.String())
		})
	}
}

func TestSharesGivenBack(t *testing.T) {
	shares := NewShares(20)
	require.False(t, shares.Take("a", 11))
	require.True(t, shares.Take("a", 10))
	require.True(t, shares.Take("b", 5))
	require.False(t, shares.Take("a", 1))
	shares.Give("a", 10)
	shares.Give("b", 5)
	require.Equal(t, int64(20), shares.free)
	require.Empty(t, shares.taken, "Clients without a part are forgotten.")
}

// However many clients have all that they can get of it, the next one finds enough for some requests.
func TestNewcomers(t *testing.T) {
	bounds := DefaultBounds()
	bounds.RequestMemory = 256 << 20
	const step = 64 << 10
	for name, test := range map[string]struct {
		// takes returns a function that takes another part for a client.
		takes func() func(client string) bool
		// clients have taken all that they can before the next one finds want parts. All find no more than total.
		clients, want, total int
	}{
		"slow requests": {func() func(string) bool {
			waits := newWaits(bounds)
			return func(client string) bool { return waits.Take(client, 1) }
		}, 14, 1, 3 * bounds.WaitsPerUser},
		"direct requests": {func() func(string) bool {
			inFlight := newInFlight(int64(bounds.RequestsInFlight))
			return func(client string) bool { return inFlight.enter(sender{account{user: client}, true}) == "" }
		}, 48, 4, 751},
		"forwarded requests": {func() func(string) bool {
			inFlight := newInFlight(int64(bounds.RequestsInFlight))
			return func(client string) bool { return inFlight.enter(sender{account{user: client}, false}) == "" }
		}, 48, 4, 876},
		"memory": {func() func(string) bool {
			memory := newBudget(bounds.RequestMemory)
			return func(client string) bool { return memory.reserve(account{user: client}).take(step) }
		}, 48, 8, 224 << 20 / step},
		"history": {func() func(string) bool {
			history := newBudget(bounds.RequestMemory).history
			return func(client string) bool { return history.Take(client, step) }
		}, 48, 8, 128 << 20 / step},
		"watches": {func() func(string) bool {
			watches := NewWatches(bounds)
			return func(client string) bool { _, ok := watches.take(account{user: client}, 1); return ok }
		}, 40, 8, int(bounds.RequestMemory / watchPart / watchBytes)},
	} {
		t.Run(name, func(t *testing.T) {
			take, all := test.takes(), 0
			takeMost := func(client int) (got int) {
				for take(strconv.Itoa(client)) {
					got++
				}
				all += got
				return got
			}
			for client := range 1000 {
				if got := takeMost(client); client <= test.clients {
					require.GreaterOrEqual(t, got, test.want, "client %d", client)
				}
			}
			require.LessOrEqual(t, all, test.total)
		})
	}
}

// The exception from "past requests refuse nobody else": what several accounts have taken for HistoryTime leaves a
// newcomer the least alone.
func TestPastOfSeveralAccounts(t *testing.T) {
	const limit, least, step = 256 << 20, 512 << 10, 64 << 10
	for name, test := range map[string]struct {
		// take keeps memory for HistoryTime.
		take     func(b *budget, user string, bytes int64) bool
		accounts int
	}{
		"changes of large objects": {func(b *budget, user string, bytes int64) bool { return b.history.Take(user, bytes) }, 3},
		"writes whose time is over": {func(b *budget, user string, bytes int64) bool {
			write := b.reserve(account{user: user})
			defer write.release(true)
			return write.take(bytes)
		}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBudget(limit)
			for user := range test.accounts {
				for test.take(b, strconv.Itoa(user), step) {
				}
			}
			require.False(t, test.take(b, "newcomer", least+1))
			require.True(t, test.take(b, "newcomer", least))
		})
	}
}
