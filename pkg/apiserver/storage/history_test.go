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

package storage

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// watched is a storage whose watches say nothing.
type watched struct{ storage.Interface }

func (watched) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

// The library leaves a watch as it is that it can't encode, as in YAML. Its client is gone all the same.
func TestWatchesThatNobodyStopsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		close(h.known)
		store := &movedStorage{watched{}, h, "example.com"}
		ctx, cancel := context.WithCancel(t.Context())
		var last watch.Interface
		for _, revision := range []string{"", "0", "7"} {
			var err error
			last, err = store.Watch(ctx, "/", storage.ListOptions{ResourceVersion: revision})
			require.NoError(t, err)
		}
		require.Len(t, h.watches, 3)
		last.Stop()
		synctest.Wait()
		require.Len(t, h.watches, 2, "after one was stopped")
		cancel()
		synctest.Wait()
		require.Empty(t, h.watches, "nobody has a watch any more")
	})
}
