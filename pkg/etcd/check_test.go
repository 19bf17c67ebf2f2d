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
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// writtenDatabase returns a stopped member with a database of some pages. Keys in it were
// changed, deleted and compacted.
func writtenDatabase(t *testing.T) (config Config, database string) {
	t.Helper()
	config = Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	etcd := start(t, config)
	client := newClient(t, config)
	var revision int64
	for i := range 300 {
		key := fmt.Sprintf("key-%d", i%100)
		response, err := client.Put(t.Context(), key, string(SealValue(key, bytes.Repeat([]byte{byte(i)}, 100+i))))
		require.NoError(t, err)
		revision = response.Header.Revision
	}
	_, err := client.Compact(t.Context(), revision-120, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = client.Delete(t.Context(), "key-1", clientv3.WithPrefix())
	require.NoError(t, err)
	// Etcd stores with a value which revision it has, but not with a deletion: that the
	// last revision has changed can't be told of one.
	_, err = client.Put(t.Context(), "last", string(SealValue("last", nil)))
	require.NoError(t, err)
	waitForStorageVersion(t, etcd)
	closed(t, etcd)
	return config, config.path(databaseFile)
}

func TestDamagedDatabases(t *testing.T) {
	original, path := writtenDatabase(t)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	size := os.Getpagesize()
	for name, test := range map[string]struct {
		damage func([]byte) []byte
		want   string
	}{
		"cut off":            {func(b []byte) []byte { return b[:5*size] }, "it is truncated: it has "},
		"empty":              {func([]byte) []byte { return nil }, "opening it with bbolt: "},
		"without metadata":   {func(b []byte) []byte { clear(b[:2*size]); return b }, "opening it with bbolt: invalid database"},
		"zeroes in all else": {func(b []byte) []byte { clear(b[2*size:]); return b }, "it is damaged: page "},
		"noise in all else": {func(b []byte) []byte {
			for i := 2 * size; i < len(b); i += 64 {
				b[i] ^= 0xff
			}
			return b
		}, "it is damaged"},
		"a bucket that refers to itself": {func(b []byte) []byte {
			empty := "lease" + strings.Repeat("\x00", 3*8) // The page of the bucket, which has no number, is a leaf.
			return bytes.ReplaceAll(b, []byte(empty+"\x02"), []byte(empty+"\x01"))
		}, `it is damaged: the bucket "lease" is not a leaf`},
		"a changed key":   {func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("key-50"), []byte("key-59")) }, "its value is not what was written"},
		"a changed value": {func(b []byte) []byte { return bytes.ReplaceAll(b, []byte{200, 200, 200}, []byte{200, 201, 200}) }, "its value is not what was written"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			require.NoError(t, os.CopyFS(config.Dir, os.DirFS(original.Dir)))
			database := config.path(databaseFile)
			require.NoError(t, os.WriteFile(database, test.damage(bytes.Clone(good)), 0o600))
			_, startErr := config.Start(t.Context())
			_, saveErr := saveFile(t.Context(), config, filepath.Join(t.TempDir(), "snapshot"))
			for _, err := range []error{startErr, saveErr} {
				if err == nil || !strings.HasPrefix(err.Error(), "the database "+database+" of the embedded etcd can't be used: ") ||
					!strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), "; "+restoreAdvice) {
					assert.Failf(t, "unexpected", "got error %v, want %s", err, test.want)
				}
			}
		})
	}
}

// TestRandomDamage damages bytes and pages at random: whatever bbolt makes of it, the process goes on.
func TestRandomDamage(t *testing.T) {
	_, path := writtenDatabase(t)
	intact, err := readDatabase(path, nil)
	require.NoError(t, err)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	good = good[:intact.Size]
	size, found := os.Getpagesize(), 0
	pages := len(good) / size
	const attempts = 300
	for attempt := range attempts {
		random, damaged := rand.New(rand.NewPCG(uint64(attempt), 2)), bytes.Clone(good)
		switch attempt % 3 {
		case 0:
			damaged[random.IntN(len(damaged))] ^= byte(1 + random.IntN(255))
		case 1: // The header of a page, or its first elements.
			damaged[random.IntN(pages)*size+random.IntN(64)] ^= byte(1 + random.IntN(255))
		case 2:
			copy(damaged[random.IntN(pages)*size:][:size], good[random.IntN(pages)*size:])
		}
		file := filepath.Join(t.TempDir(), "db")
		require.NoError(t, os.WriteFile(file, damaged, 0o600))
		if _, err := readDatabase(file, nil); err != nil {
			found++
		}
	}
	// The rest changes nothing that is read.
	if found < attempts/2 {
		assert.Failf(t, "unexpected", "only %d of %d damages were found", found, attempts)
	}
}

// TestADamagedLog expects an error where etcd would exit.
func TestADamagedLog(t *testing.T) {
	config, _ := writtenDatabase(t)
	logs, err := filepath.Glob(filepath.Join(config.path(walDir), "*.wal"))
	if err != nil || len(logs) != 1 {
		require.Failf(t, "unexpected", "%v %v", logs, err)
	}
	content, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	content[bytes.Index(content, []byte("key-50"))] ^= 1
	require.NoError(t, os.WriteFile(logs[0], content, 0o600))
	_, err = config.Start(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "starting the embedded etcd in "+config.Dir+": ") || !strings.HasSuffix(err.Error(), "; if its files are damaged, "+restoreAdvice) {
		assert.Failf(t, "unexpected", "got error %v", err)
	}
}

func TestSealedValues(t *testing.T) {
	sealed := SealValue("key", []byte("value"))
	for name, test := range map[string]struct {
		key, stored string
		want        string
		err         error
	}{
		"sealed":                {"key", string(sealed), "value", nil},
		"of another key":        {"other", string(sealed), "", ErrDamagedValue},
		"changed":               {"key", string(flipped(sealed, len(sealed)-1)), "", ErrDamagedValue},
		"the sum is changed":    {"key", string(flipped(sealed, len(valuePrefix))), "", ErrDamagedValue},
		"the prefix is changed": {"key", string(flipped(sealed, 0)), "", ErrDamagedValue},
		"cut off":               {"key", string(sealed[:len(valuePrefix)+3]), "", ErrDamagedValue},
		"of an earlier server":  {"key", "k8s\x00value", "k8s\x00value", nil},
		"nothing":               {"key", "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := OpenValue(test.key, []byte(test.stored))
			if string(got) != test.want || err != test.err { //nolint:errorlint // Nothing wraps it.
				assert.Failf(t, "unexpected", "got %q (%v), want %q (%v)", got, err, test.want, test.err)
			}
		})
	}
}
