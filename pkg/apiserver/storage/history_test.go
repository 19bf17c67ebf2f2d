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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// watched is a storage whose watches say nothing.
type watched struct {
	storage.Interface
	// revision is etcd's, or 0 if etcd does not answer. reads counts how often it was read.
	revision uint64
	reads    int
}

func (*watched) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return watch.NewFake(), nil
}

func (s *watched) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	s.reads++
	if s.revision == 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.revision, nil
}

// k8s.io/apiserver leaves a watch as it is that it can't encode, as in YAML. Its client is gone all the same.
func TestWatchesThatNobodyStopsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		close(h.known)
		store := &currentStorage{Interface: &watched{revision: 7}, history: h, group: "example.com"}
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

// A client that remembers a revision of another etcd, as after "register", watched without ever seeing a change.
func TestWatchesFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		close(h.known)
		etcd := &watched{revision: 100}
		store := &currentStorage{Interface: etcd, history: h, group: "example.com"}
		for _, test := range []struct {
			watch storage.ListOptions
			// now is etcd's revision, and reads how often the storage has read that until then.
			now     uint64
			expired bool
			reads   int
		}{
			{storage.ListOptions{ResourceVersion: "100"}, 100, false, 1},
			{storage.ListOptions{ResourceVersion: "99"}, 100, false, 1},
			{storage.ListOptions{ResourceVersion: "101"}, 100, true, 2},
			// Another replica has written.
			{storage.ListOptions{ResourceVersion: "101"}, 101, false, 3},
			{storage.ListOptions{ResourceVersion: "102"}, 0, false, 4},
			{storage.ListOptions{ResourceVersion: "102", SendInitialEvents: ptr.To(true)}, 101, false, 4},
			{storage.ListOptions{ResourceVersion: "0"}, 101, false, 4},
			{storage.ListOptions{}, 101, false, 4},
		} {
			etcd.revision = test.now
			w, err := store.Watch(t.Context(), "/", test.watch)
			require.NoError(t, err)
			synctest.Wait()
			select {
			case event := <-w.ResultChan():
				require.True(t, test.expired, test)
				require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(event.Object)), event.Object)
			default:
				require.False(t, test.expired, test)
			}
			require.Equal(t, test.reads, etcd.reads, test)
			w.Stop()
		}
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
