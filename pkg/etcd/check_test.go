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
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		if err != nil {
			t.Fatal(err)
		}
		revision = response.Header.Revision
	}
	if _, err := client.Compact(t.Context(), revision-120, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), "key-1", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	// Etcd stores with a value which revision it has, but not with a deletion: that the
	// last revision has changed can't be told of one.
	if _, err := client.Put(t.Context(), "last", string(SealValue("last", nil))); err != nil {
		t.Fatal(err)
	}
	waitForStorageVersion(t, etcd)
	closed(t, etcd)
	return config, filepath.Join(config.path(dataDir), databaseFile)
}

// all is the content of a database, with every revision.
type all struct {
	Inventory inventory
	Values    []string
}

func readAll(database []byte) (all, error) {
	var read all
	var err error
	read.Inventory, err = readDatabase(bytes.NewReader(database), int64(len(database)), func(key string, value []byte) error {
		read.Values = append(read.Values, key+"="+string(value))
		return nil
	})
	// Etcd does not start if it can't read that.
	read.Inventory.version = ""
	// Etcd counts for itself, and of a key whose earlier revisions are gone nobody else knows.
	for key := range read.Inventory.live {
		read.Inventory.live[key] = generation{}
	}
	return read, err
}

// unchecked matches bytes that etcd stores nothing to compare with: the key of a deletion, and
// the page where a bucket begins.
var unchecked = regexp.MustCompile(`(?s)t\n.(key-1\d?)|(?:cluster|key|members|members_removed|meta|lease|alarm|auth|authUsers|authRoles)(.\x00{7})\x00{8}`)

// TestAnyChangedByteIsFound changes bytes of a database, one after the other. Each change is
// found, or changes nothing that is read.
func TestAnyChangedByteIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("long: every byte of a database is changed")
	}
	_, path := writtenDatabase(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll(good)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Values) < 100 {
		t.Fatalf("there are only %d values", len(want.Values))
	}
	// One of the two pages with metadata is enough: the last commit of bbolt is also in the
	// write-ahead log. After the last page there is only space that bbolt has reserved.
	first := firstPage * os.Getpagesize()
	pages := int(want.Inventory.size) - first
	skip := map[int]bool{}
	for _, match := range unchecked.FindAllSubmatchIndex(good, -1) {
		for at := max(match[2], match[4]); at < max(match[3], match[5]); at++ {
			skip[at] = true
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		at, change := first+random.IntN(pages), byte(1+random.IntN(255))
		if skip[at] {
			continue
		}
		good[at] ^= change
		got, err := readAll(good)
		if err != nil {
			found++
		} else if diff := cmp.Diff(want, got, cmp.AllowUnexported(inventory{}, generation{}, deletion{})); diff != "" {
			t.Errorf("after a change of byte %d by %#x (-want +got):\n%s", at, change, diff)
		}
		good[at] ^= change
	}
	if found < 500 {
		t.Errorf("only %d changes were found", found)
	}
}

func TestDamagedDatabases(t *testing.T) {
	original, path := writtenDatabase(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := os.Getpagesize()
	for name, test := range map[string]struct {
		damage func([]byte) []byte
		want   string
	}{
		"cut off":            {func(b []byte) []byte { return b[:5*size] }, "it is truncated: pages 5 to "},
		"empty":              {func([]byte) []byte { return nil }, "pages 0 and 1 are damaged: neither has valid metadata"},
		"without metadata":   {func(b []byte) []byte { clear(b[:2*size]); return b }, "pages 0 and 1 are damaged: neither has valid metadata"},
		"zeroes in all else": {func(b []byte) []byte { clear(b[2*size:]); return b }, " is damaged: it says that it is page 0"},
		"a changed key": {func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("key-50"), []byte("key-59")) },
			" is damaged: revision "},
		"a changed bucket": {func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("members_removed"), []byte("members-removed"))
		},
			"it has a bucket \"members-removed\", which etcd does not write"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
			if err := os.CopyFS(config.Dir, os.DirFS(original.Dir)); err != nil {
				t.Fatal(err)
			}
			database := filepath.Join(config.path(dataDir), databaseFile)
			if err := os.WriteFile(database, test.damage(bytes.Clone(good)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, startErr := config.Start(t.Context())
			_, saveErr := config.SaveFile(t.Context(), filepath.Join(t.TempDir(), "snapshot"), noProgress)
			for _, err := range []error{startErr, saveErr} {
				if err == nil || !strings.HasPrefix(err.Error(), "the database "+database+" of the embedded etcd can't be used: ") ||
					!strings.Contains(err.Error(), test.want) || !strings.HasSuffix(err.Error(), "; "+restoreAdvice) {
					t.Errorf("got error %v, want %s", err, test.want)
				}
			}
		})
	}
}

// A compaction at the revision of a deletion keeps that, without what it deletes. Any later one
// has something to delete.
func TestACompactedDeletion(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota}
	etcd := start(t, config)
	client := newClient(t, config)
	if _, err := client.Put(t.Context(), "gone", string(SealValue("gone", nil))); err != nil {
		t.Fatal(err)
	}
	deleted, err := client.Delete(t.Context(), "gone")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	waitForStorageVersion(t, etcd)
	closed(t, etcd)
	database := filepath.Join(config.path(dataDir), databaseFile)
	read, err := readDatabaseFile(database, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (deletion{deleted.Header.Revision, "gone"}); read.unmatched != want {
		t.Errorf("the deletion is %v, not %v", read.unmatched, want)
	}
	content, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	// As if an earlier revision had been compacted. There may be pages that are free.
	for rest := content; ; {
		at := bytes.Index(rest, []byte(compactionKey))
		if at < 0 {
			break
		}
		rest = rest[at+len(compactionKey):]
		rest[7]--
	}
	want := fmt.Sprintf("revision %d deletes the key \"gone\", which does not exist", deleted.Header.Revision)
	if _, err := readDatabase(bytes.NewReader(content), int64(len(content)), nil); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestADamagedLog expects an error where etcd would exit.
func TestADamagedLog(t *testing.T) {
	config, _ := writtenDatabase(t)
	logs, err := filepath.Glob(filepath.Join(config.path(dataDir), walDir, "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	content, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, []byte("key-50"))] ^= 1
	if err := os.WriteFile(logs[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = config.Start(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "starting the embedded etcd in "+config.Dir+": ") || !strings.HasSuffix(err.Error(), "; if its files are damaged, "+restoreAdvice) {
		t.Errorf("got error %v", err)
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
				t.Errorf("got %q (%v), want %q (%v)", got, err, test.want, test.err)
			}
		})
	}
}
