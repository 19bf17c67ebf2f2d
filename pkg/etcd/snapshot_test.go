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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/sets"
)

func noProgress(int64, int64) {}

// saved returns a snapshot file with a few keys, and its content.
func saved(t *testing.T) (path string, keys map[string]string) {
	t.Helper()
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	etcd := start(t, config)
	defer closed(t, etcd)
	client := newClient(t, config)
	for i := range 10 {
		_, err := client.Put(t.Context(), fmt.Sprintf("key-%d", i), strings.Repeat("x", i))
		require.NoError(t, err)
	}
	_, err := client.Delete(t.Context(), "key-3")
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "snapshot")
	_, err = saveFile(t.Context(), config, path)
	require.NoError(t, err)
	return path, content(t, client)
}

func content(t *testing.T, client *clientv3.Client) map[string]string {
	t.Helper()
	response, err := client.Get(t.Context(), "key", clientv3.WithPrefix())
	require.NoError(t, err)
	keys := map[string]string{}
	for _, kv := range response.Kvs {
		keys[string(kv.Key)] = string(kv.Value)
	}
	return keys
}

func saveFile(ctx context.Context, config Config, path string) (Snapshot, error) {
	return WriteFile(path, func(part io.Writer) error { return config.Save(ctx, part, noProgress) })
}

func restore(config Config, path string) (Snapshot, error) {
	file, err := os.Open(path)
	if err != nil {
		return Snapshot{}, err
	}
	defer file.Close()
	return config.Restore(file, 0, noProgress)
}

func TestASnapshotHasWhatWasAcknowledged(t *testing.T) {
	const writes = 50
	for name, test := range map[string]struct {
		// early does not wait until etcd has written its version, which it does not log
		// before, and up to some seconds after it serves.
		early   bool
		prepare func(t *testing.T, config Config, stop func()) Config
	}{
		"of a running server": {prepare: func(_ *testing.T, config Config, _ func()) Config { return config }},
		"of a stopped server": {prepare: func(_ *testing.T, config Config, stop func()) Config {
			stop()
			return config
		}},
		"of a server that was stopped at once": {early: true, prepare: func(_ *testing.T, config Config, stop func()) Config {
			stop()
			return config
		}},
		// The last writes are in the write-ahead log only.
		"of a server that was killed at once": {early: true, prepare: func(t *testing.T, config Config, _ func()) Config {
			killed := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			require.NoError(t, os.CopyFS(killed.path(dataDir), os.DirFS(config.path(dataDir))))
			return killed
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			etcd := start(t, config)
			stop := sync.OnceFunc(func() { closed(t, etcd) })
			defer stop()
			client := newClient(t, config)
			want := map[string]string{}
			var revision int64
			for i := range writes {
				key := fmt.Sprintf("key-%d", i)
				response, err := client.Put(t.Context(), key, "value")
				require.NoError(t, err)
				want[key], revision = "value", response.Header.Revision
			}
			if !test.early {
				waitForStorageVersion(t, etcd)
			}
			config = test.prepare(t, config, stop)
			path := filepath.Join(t.TempDir(), "snapshot")
			snapshot, err := saveFile(t.Context(), config, path)
			require.NoError(t, err)
			if snapshot.Revision != revision || snapshot.Keys != writes {
				assert.Failf(t, "unexpected", "got %+v, want revision %d, %d keys", snapshot, revision, writes)
			}
			if snapshot.Version != storageVersion && (!test.early || snapshot.Version != "") {
				assert.Failf(t, "unexpected", "got version %q, want %s", snapshot.Version, storageVersion)
			}

			restored := Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: testQuota}
			_, err = restore(restored, path)
			require.NoError(t, err)
			defer closed(t, start(t, restored))
			assert.Equal(t, want, content(t, newClient(t, restored)))
		})
	}
}

// storageVersion is the version that etcd writes into a database.
const storageVersion = "3.7.0"

// waitForStorageVersion waits until etcd has written it.
func waitForStorageVersion(t *testing.T, etcd *Etcd) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		version := etcd.Server.StorageVersion()
		if version != nil && version.String() == storageVersion {
			return
		}
		if time.Now().After(deadline) {
			require.Failf(t, "unexpected", "etcd has written no storage version but %v", version)
		}
	}
}

// TestARestoredDatabaseIsLater shows that a client that has seen more than the
// snapshot has is told so, also when the same snapshot was restored before.
func TestARestoredDatabaseIsLater(t *testing.T) {
	path, want := saved(t)
	var seen int64
	for range 2 {
		config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
		_, err := restore(config, path)
		require.NoError(t, err)
		etcd := start(t, config)
		client := newClient(t, config)
		assert.Equal(t, want, content(t, client))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		watch := <-client.Watch(ctx, "key", clientv3.WithPrefix(), clientv3.WithRev(seen+1))
		cancel()
		if err := watch.Err(); !errors.Is(err, rpctypes.ErrCompacted) {
			assert.Failf(t, "unexpected", "a watch from revision %d on ends with %v, want %v", seen+1, err, rpctypes.ErrCompacted)
		}
		for i := range 10 {
			response, err := client.Put(t.Context(), fmt.Sprintf("key-%d", i), "lost")
			require.NoError(t, err)
			if response.Header.Revision <= seen {
				assert.Failf(t, "unexpected", "revision %d comes after %d", response.Header.Revision, seen)
			}
			seen = response.Header.Revision
		}
		closed(t, etcd)
	}
}

func TestLaterThanAll(t *testing.T) {
	now := time.UnixMicro(1_700_000_000_000_000)
	for name, test := range map[string]struct{ revision, want int64 }{
		"a snapshot of an old database":     {7, 1_700_000_000_000_000},
		"one of a restored database":        {1_699_999_999_000_000, 1_700_000_000_000_000},
		"one of a database from the future": {1_700_000_000_000_001, 1_700_001_000_000_001},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, laterThanAll(test.revision, now))
		})
	}
}

// TestBadSnapshots gives each to all readers of snapshots.
func TestBadSnapshots(t *testing.T) {
	path, _ := saved(t)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	snapshot, err := ReadFile(path, noProgress, nil)
	require.NoError(t, err)
	const noHash = `it has no hash at its end: it is truncated, or not a file of "snapshot save"; use another one`
	for name, test := range map[string]struct {
		content []byte
		want    string
	}{
		"nothing":           {nil, noHash},
		"without the hash":  {good[:len(good)-32], noHash},
		"cut off":           {good[:len(good)/2+7], noHash},
		"one byte more":     {append(bytes.Clone(good), 0), noHash},
		"text":              {[]byte(strings.Repeat("text", 136)), "it is damaged: its database has the hash "},
		"a byte is changed": {flipped(good, len(good)/2), "it is damaged: its database has the hash "},
		"the hash is changed": {flipped(good, len(good)-1), "it is damaged: its database has the hash " + snapshot.Hash +
			fmt.Sprintf(", and not %s%02x as when it was saved; use another one", snapshot.Hash[:62], good[len(good)-1]^1)},
		"cut off at a sector": {good[:len(good)-sectorSize], "it is damaged: its database has the hash "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot")
			require.NoError(t, os.WriteFile(path, test.content, 0o600))
			_, err = ReadFile(path, noProgress, nil)
			require.ErrorContains(t, err, "the snapshot "+path+" can't be used: "+test.want)
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			_, err = restore(config, path)
			require.ErrorContains(t, err, "the snapshot can't be used: "+test.want)
			assert.Equal(t, []string{lockFile}, files(t, config.Dir))
		})
	}
}

func flipped(content []byte, at int) []byte {
	content = bytes.Clone(content)
	content[at] ^= 1
	return content
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestRestoreRefusesADirectory(t *testing.T) {
	path, _ := saved(t)
	const fix = ": choose a new directory with --data-dir, and then restart the server with that"
	for name, test := range map[string]struct {
		prepare func(*testing.T, Config)
		want    string
	}{
		"of a running server": {func(t *testing.T, config Config) {
			etcd := start(t, config)
			t.Cleanup(func() { closed(t, etcd) })
		}, "the data directory %s is in use by a server" + fix},
		"of a stopped server": {func(t *testing.T, config Config) { closed(t, start(t, config)) },
			"the data directory %s is not empty, but has \"etcd\"" + fix},
		"of somebody else": {func(t *testing.T, config Config) {
			require.NoError(t, os.WriteFile(filepath.Join(config.Dir, "letters"), nil, 0o600))
		}, "the data directory %s is not empty, but has \"letters\"" + fix},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			test.prepare(t, config)
			before := append(files(t, config.Dir), lockFile)
			_, err := restore(config, path)
			require.EqualError(t, err, fmt.Sprintf(test.want, config.Dir))
			assert.Equal(t, sets.New(before...), sets.New(files(t, config.Dir)...))
		})
	}
}

// TestRestoreIntoAUsedVolume restores where a new file system, a killed server or an
// interrupted restore has left something.
func TestRestoreIntoAUsedVolume(t *testing.T) {
	path, want := saved(t)
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	for _, directory := range []string{"lost+found", filepath.Join(restoreDir, "member")} {
		require.NoError(t, os.MkdirAll(config.path(directory), 0o700))
	}
	for _, file := range []string{socketFile, lockFile} {
		require.NoError(t, os.WriteFile(config.path(file), nil, 0o600))
	}
	_, err := restore(config, path)
	require.NoError(t, err)
	defer closed(t, start(t, config))
	assert.Equal(t, want, content(t, newClient(t, config)))
}

// TestAFailedSaveLeavesTheOldFile saves where nothing can be read, and where
// nothing can be written.
func TestAFailedSaveLeavesTheOldFile(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	_, err := saveFile(t.Context(), config, path)
	require.ErrorContains(t, err, "there is no database of an embedded etcd in "+config.Dir+": name the server's data directory with --data-dir, and run this as the same user (")

	require.ErrorContains(t, config.CheckServed(), "no server with an embedded etcd runs on "+config.Dir+": start it, name its data directory with --data-dir, and run this as the same user (")
	defer closed(t, start(t, config))
	require.NoError(t, config.CheckServed())
	err = config.Save(t.Context(), failingWriter{}, noProgress)
	require.EqualError(t, err, "writing the snapshot: the disk is full")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := saveFile(canceled, config, path); !errors.Is(err, context.Canceled) {
		assert.Failf(t, "unexpected", "got error %v, want %v", err, context.Canceled)
	}
	assert.Equal(t, []string{"snapshot"}, files(t, dir))
	if content, err := os.ReadFile(path); err != nil || string(content) != "old" {
		assert.Failf(t, "unexpected", "the file has changed to %q (%v)", content, err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// TestProgress expects that all bytes are accounted for, in order.
func TestProgress(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	defer closed(t, start(t, config))
	var file bytes.Buffer
	var last, total int64
	progress := func(done, of int64) {
		if done < last {
			assert.Failf(t, "unexpected", "%d bytes come after %d", done, last)
		}
		last, total = done, of
	}
	require.NoError(t, config.Save(t.Context(), &file, progress))
	if size := int64(file.Len()); last != size || total != size {
		assert.Failf(t, "unexpected", "saving ends at %d of %d, want %d", last, total, size)
	}
	last = 0
	restored := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	_, err := restored.Restore(io.MultiReader(&file), 12345, progress)
	require.NoError(t, err)
	if last%sectorSize != 32 || total != 12345 {
		assert.Failf(t, "unexpected", "restoring ends at %d of %d", last, total)
	}
}
