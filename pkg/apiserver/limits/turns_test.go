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
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A client waits for its own requests alone, and nothing of it is kept after the last one.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(2)
		var ends []func()
		for _, client := range []string{"first", "first", "second"} {
			end, err := turns.Take(t.Context(), client)
			require.NoError(t, err)
			ends = append(ends, end)
		}
		ctx, leave := context.WithCancel(t.Context())
		results := make(chan error)
		go func() {
			_, err := turns.Take(ctx, "first")
			results <- err
		}()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-results, context.Canceled)
		go func() {
			end, err := turns.Take(t.Context(), "first")
			end()
			results <- err
		}()
		synctest.Wait()
		require.Equal(t, 3, turns.clients["first"].requests)
		ends[0]()
		require.NoError(t, <-results)
		ends[1]()
		ends[2]()
		require.Empty(t, turns.clients)
	})
}
