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
		// takes names the clients that take one each.
		takes, want string
	}{
		"half for the first":            {6, "aaaa", "yyyn"},
		"half of the rest for the next": {12, "aaaaaaabbbbcc", "yyyyyynyyynyn"},
		"none of the last one":          {2, "ab", "yn"},
		"nothing":                       {0, "a", "n"},
		"given back":                    {6, "aaaAaa", "yyyyyn"},
	} {
		t.Run(name, func(t *testing.T) {
			shares := NewShares(test.total, test.total, 0)
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
	shares := NewShares(20, 20, 0)
	require.False(t, shares.Take("a", 11))
	require.True(t, shares.Take("a", 10))
	require.True(t, shares.Take("b", 5))
	require.False(t, shares.Take("a", 1))
	shares.Give("a", 10)
	shares.Give("b", 5)
	require.Equal(t, int64(20), shares.free)
	require.Empty(t, shares.taken, "Clients without a part are forgotten.")
}

// However many clients have all that they can get, the next one finds the least.
func TestNewcomers(t *testing.T) {
	shares := NewShares(300, 100, 2)
	var got []int
	for client := range 40 {
		for got = append(got, 0); shares.Take(strconv.Itoa(client), 1); {
			got[client]++
		}
	}
	require.Equal(t, []int{100, 100, 25, 2, 2, 2, 2, 2, 2, 2}, got[:10])
	require.Equal(t, 2, got[39])
}
