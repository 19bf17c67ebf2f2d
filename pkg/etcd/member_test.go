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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// killedBeforeItsFirstCommit makes the files of an etcd that has not yet committed that it
// is a member.
func killedBeforeItsFirstCommit(t *testing.T, config Config) {
	t.Helper()
	mkdir(t, config.path(dataDir))
	log, err := wal.Create(zap.NewNop(), config.path(walDir), []byte{8, 1})
	require.NoError(t, err)
	require.NoError(t, log.Close())
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(path, 0o700))
}

// TestAFirstStartAfterAKill starts with the remains of an interrupted first start.
func TestAFirstStartAfterAKill(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, Config){
		"nothing but the directory": func(t *testing.T, config Config) { mkdir(t, config.Dir) },
		"a member that is half made": func(t *testing.T, config Config) {
			mkdir(t, filepath.Join(config.path(newDir), "member", "wal"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			prepare(t, config)
			closed(t, start(t, config))
			defer closed(t, start(t, config))
			_, err := newClient(t, config).Put(t.Context(), "key", "value")
			assert.NoError(t, err)
		})
	}
}

// TestAStartEndsWithItsContext starts a member that never becomes ready.
func TestAStartEndsWithItsContext(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	killedBeforeItsFirstCommit(t, config)
	lock, err := config.tryLock()
	require.NoError(t, err)
	told := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Second, func() { cancel(told) })
	if _, err := config.run(ctx, lock); !errors.Is(err, told) {
		assert.Failf(t, "unexpected", "got error %v, want %v", err, told)
	}
}

// TestADatabaseWithoutItsLog must not be taken for a first start.
func TestADatabaseWithoutItsLog(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	etcd := start(t, config)
	_, err := newClient(t, config).Put(t.Context(), "key", "value")
	require.NoError(t, err)
	closed(t, etcd)
	require.NoError(t, os.RemoveAll(config.path(walDir)))
	_, err = config.Start(t.Context())
	assert.ErrorContains(t, err, "the data directory "+config.Dir+" has an etcd without a write-ahead log: put the log back, or ")
}
