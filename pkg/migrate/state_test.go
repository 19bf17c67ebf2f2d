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
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// newMigration has an etcd of its own.
func newMigration(t *testing.T, options ...grpc.DialOption) *Migration {
	t.Helper()
	config := etcd.Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: 64 << 20}
	member, err := config.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, member.Close())
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}, DialOptions: options})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return &Migration{config: Config{Group: "example.com", Etcd: client, StateKey: "/state", Report: func(progress Progress) { t.Log(progress.Message) }}}
}

func anyState(State) error { return nil }

// A process that continues a migration keeps all others from writing.
func TestClaim(t *testing.T) {
	first := newMigration(t)
	second := &Migration{config: first.config}
	_, err := first.Status(t.Context())
	require.ErrorIs(t, err, ErrNone)
	require.ErrorIs(t, first.resume(t.Context(), anyState), ErrNone)
	require.NoError(t, first.begin(t.Context(), Copying))
	require.ErrorIs(t, second.begin(t.Context(), Copying), errSuperseded)
	_, err = first.write(t.Context(), clientv3.OpPut("/key", "first"))
	assert.NoError(t, err)
	assert.NoError(t, first.enter(t.Context(), Freezing))

	refusal := errors.New("refused")
	require.ErrorIs(t, second.resume(t.Context(), func(State) error { return refusal }), refusal)
	_, err = first.write(t.Context(), clientv3.OpPut("/key", "still first"))
	require.NoError(t, err, "a claim that is refused must not change anything")
	require.NoError(t, second.resume(t.Context(), anyState))
	assert.Equal(t, Freezing, second.state.Phase)
	_, err = first.write(t.Context(), clientv3.OpPut("/key", "late"))
	require.ErrorIs(t, err, errSuperseded)
	require.ErrorIs(t, first.enter(t.Context(), Switching), errSuperseded)
	got, err := first.config.Etcd.Get(t.Context(), "/key")
	require.NoError(t, err)
	assert.Equal(t, "still first", string(got.Kvs[0].Value), "the first process may no longer write")
}

// A process recognizes its own write if the answer was lost.
func TestLostAnswers(t *testing.T) {
	lost := 0
	m := newMigration(t, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, answer, conn, options...)
		if strings.HasSuffix(method, "/Txn") {
			if lost++; lost%2 == 1 {
				return status.Error(codes.Unavailable, "the answer is lost")
			}
		}
		return err
	}))
	require.NoError(t, m.begin(t.Context(), Copying))
	require.NoError(t, m.enter(t.Context(), Freezing))
	_, err := m.write(t.Context(), clientv3.OpPut("/key", "a"))
	require.NoError(t, err)
	other := &Migration{config: m.config}
	require.NoError(t, other.resume(t.Context(), anyState))
	require.ErrorIs(t, m.save(t.Context()), errSuperseded)
	require.NoError(t, other.enter(t.Context(), Switching))
	require.NoError(t, other.forget(t.Context()))
	require.ErrorIs(t, other.save(t.Context()), errSuperseded)
	require.Positive(t, lost)
}

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
			synctest.Test(t, func(t *testing.T) {
				var reported []Progress
				meter := meter{Progress: Progress{Total: test.total}, started: time.Now(), reported: time.Now()}
				for _, size := range test.sizes {
					time.Sleep(test.duration)
					if meter.add(size) {
						reported = append(reported, meter.Progress)
					}
				}
				assert.Empty(t, cmp.Diff(test.want, reported))
			})
		})
	}
}
