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

package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
)

// eventually waits until a condition returns no error.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	}); err != nil {
		require.Failf(t, "unexpected", "%v: %v", err, last)
	}
}

// put returns an error unless a write fails with the wanted error.
func put(t *testing.T, client *clientv3.Client, want error) func() error {
	t.Helper()
	return func() error {
		if _, err := client.Put(t.Context(), "key", "value"); !errors.Is(err, want) {
			return errors.Join(errors.New("a write has another result than expected"), err)
		}
		return nil
	}
}

// Writes are refused while the disk is nearly full, until there is more space than at the beginning of that.
func TestNearlyFullDisk(t *testing.T) {
	const refused = "the disk of the embedded etcd, with /data, has only %d MiB left, and nothing is written until there are 160 MiB: enlarge the volume, or delete what else is on it"
	for _, test := range []struct {
		free int64
		full bool
		want string
	}{
		{diskReserve, false, ""},
		{diskReserve - 1, false, fmt.Sprintf(refused, 127)},
		{diskReserve, true, fmt.Sprintf(refused, 128)},
		{diskEnough - 1, true, fmt.Sprintf(refused, 159)},
		{diskEnough, true, ""},
	} {
		err := Config{Dir: "/data"}.checkSpace(test.free, test.full)
		if test.want == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, test.want)
		}
	}
}

// A server whose files were deleted has nothing that would survive its end: it says so, and
// acknowledges no more writes.
func TestDeletedDirectory(t *testing.T) {
	for name, remove := range map[string]func(Config) error{
		"all":          func(c Config) error { return os.RemoveAll(c.Dir) },
		"the database": func(c Config) error { return os.Remove(c.path("etcd/member/snap/db")) },
		"what was replaced": func(c Config) error {
			return errors.Join(os.Remove(c.path(lockFile)), os.WriteFile(c.path(lockFile), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			etcd := start(t, config)
			client := newClient(t, config)
			eventually(t, put(t, client, nil))
			require.NoError(t, remove(config))
			eventually(t, put(t, client, rpctypes.ErrNoSpace))
			require.ErrorContains(t, etcd.CheckAlarms(), "the data directory "+config.Dir+" of the embedded etcd was deleted while the server runs (")
			if response, err := client.Get(t.Context(), "key"); err != nil || len(response.Kvs) != 1 {
				assert.Failf(t, "unexpected", "got %v and the error %v", response, err)
			}
			_, err := client.Delete(t.Context(), "key")
			require.NoError(t, err)
			closed(t, etcd)
		})
	}
}
