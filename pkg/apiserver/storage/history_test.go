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
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
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

// An aborted migration deletes the revision that it has set far ahead. Watches begin before it again.
func TestRevisionsThatAreDeleted(t *testing.T) {
	config := etcd.Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: 64 << 20}
	member, err := config.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, member.Close()) })
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	const key = "/history/example.com"
	begins := func(h *history) func() bool {
		return func() bool {
			h.lock.Lock()
			defer h.lock.Unlock()
			return h.check("example.com", 100) == nil
		}
	}
	h := newHistory()
	ctx, cancel := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() { read <- h.read(ctx, client, "/history/") }()
	<-h.known
	for range 2 {
		_, err = client.Put(t.Context(), key, "2000100")
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !begins(h)() }, time.Minute, 10*time.Millisecond)
		_, err = client.Delete(t.Context(), key)
		require.NoError(t, err)
		require.Eventually(t, begins(h), time.Minute, 10*time.Millisecond)
	}
	// A deletion that was missed is noticed, too.
	cancel()
	require.NoError(t, <-read)
	h.set("example.com", "2000100")
	go func() { read <- h.read(t.Context(), client, "/history/") }()
	require.Eventually(t, begins(h), time.Minute, 10*time.Millisecond)
}
