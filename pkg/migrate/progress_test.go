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

package migrate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
)

// A pass reports how far it is and how long it is going to take, and no more than once a
// second.
func TestMeter(t *testing.T) {
	left := func(seconds int) *int { return &seconds }
	for name, test := range map[string]struct {
		total    int
		sizes    []int
		duration time.Duration
		want     []Progress
	}{
		"nothing": {total: 0},
		"fast":    {total: 4, sizes: []int{10, 10, 10, 10}, duration: 200 * time.Millisecond},
		"slow": {total: 4, sizes: []int{1_000_000, 500_000}, duration: 3 * time.Second, want: []Progress{
			{Message: "1 of 4 objects, 1.0 MB, 9 s left", Objects: 1, Total: 4, Bytes: 1_000_000, SecondsLeft: left(9)},
			{Message: "2 of 4 objects, 1.5 MB, 6 s left", Objects: 2, Total: 4, Bytes: 1_500_000, SecondsLeft: left(6)},
		}},
		"once a second": {total: 4, sizes: []int{1, 1, 1, 1}, duration: 500 * time.Millisecond, want: []Progress{
			{Message: "2 of 4 objects, 0.0 MB, 1 s left", Objects: 2, Total: 4, Bytes: 2, SecondsLeft: left(1)},
			{Message: "4 of 4 objects, 0.0 MB, 0 s left", Objects: 4, Total: 4, Bytes: 4, SecondsLeft: left(0)},
		}},
		"more than there were": {total: 0, sizes: []int{1}, duration: time.Second, want: []Progress{
			{Message: "1 of 1 objects, 0.0 MB, 0 s left", Objects: 1, Total: 1, Bytes: 1, SecondsLeft: left(0)},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []Progress
			now := time.Unix(0, 0)
			meter := newMeter(test.total, func(progress Progress) { reported = append(reported, progress) }, func() time.Time { return now })
			for _, size := range test.sizes {
				now = now.Add(test.duration)
				meter.add(size)
			}
			assert.Empty(t, cmp.Diff(test.want, reported))
		})
	}
}
