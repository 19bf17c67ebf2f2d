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
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Of a user, only so many waits may be long, whatever others do.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := newWaits(2)
		ended := 0
		wait := func(user string) *clientWait {
			return waits.awaitClient(user, func() { ended++ })
		}

		short := wait("anna")
		first, second := wait("anna"), wait("anna")
		time.Sleep(slowAfter / 2)
		require.False(t, short.over())
		time.Sleep(slowAfter)
		third, other := wait("anna"), wait("berta")
		time.Sleep(2 * slowAfter)
		synctest.Wait()
		require.Equal(t, 1, ended, "The third is ended.")
		require.True(t, third.over())
		require.False(t, first.over())

		next := wait("anna")
		time.Sleep(2 * slowAfter)
		synctest.Wait()
		for _, w := range []*clientWait{second, other, next} {
			require.False(t, w.over())
		}
		require.Equal(t, 1, ended)
		require.Empty(t, waits.accounts)
	})
}
