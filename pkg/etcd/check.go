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
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// restoreAdvice is the way out of a damaged database.
const restoreAdvice = `restore a snapshot into a new directory with "snapshot restore FILE --data-dir DIR", and start the server with that --data-dir`

// keyBucket has every revision of every key. versionKey, in metaBucket, is the oldest version
// of etcd that can read the database.
const (
	keyBucket  = "key"
	metaBucket = "meta"
	versionKey = "storageVersion"
	// compactionKey is the revision of the last compaction, which may not have come to its end.
	compactionKey = "scheduledCompactRev"
)

// buckets returns the buckets that etcd writes.
func buckets() []string {
	return []string{keyBucket, metaBucket, "lease", "alarm", "cluster", "members", "members_removed", "auth", "authUsers", "authRoles"}
}

// inventory is the content of a database.
type inventory struct {
	// size excludes the space that a running etcd has reserved at the end of the file.
	size int64
	// version is empty until etcd has written it.
	version string
	// revision is that of the last write.
	revision int64
	// live has the generation of each key that exists.
	live map[string]generation
	// unmatched is the last deletion of a key that does not exist.
	unmatched deletion
}

type deletion struct {
	revision int64
	key      string
}

// generation is the life of a key, from its creation to its deletion.
type generation struct{ created, version int64 }

// readDatabase reads every page and every revision of a database that nobody writes. It returns
// an error for damage instead of crashing. It passes every revision that is not a deletion to
// visit, unless that is nil.
func readDatabase(file io.ReaderAt, size int64, visit func(key string, value []byte) error) (inventory, error) {
	tree, err := openTree(file, size)
	if err != nil {
		return inventory{}, err
	}
	read := inventory{size: int64(tree.end) * tree.pageSize, live: map[string]generation{}} //nolint:gosec // G115: within the file.
	var compacted int64
	tree.walk(func(bucket string, key, value []byte) error {
		switch {
		case bucket == keyBucket:
			return read.add(key, value, visit)
		case bucket == metaBucket && string(key) == versionKey:
			read.version = string(value)
		case bucket == metaBucket && string(key) == compactionKey && len(value) >= 8:
			compacted = int64(binary.BigEndian.Uint64(value)) //nolint:gosec // G115: a damaged one is less than any revision.
		}
		return nil
	})
	if err := tree.err(); err != nil {
		return inventory{}, err
	}
	// A compaction first removes the revisions before a deletion, and keeps a deletion at
	// exactly its own revision.
	if read.unmatched.revision > compacted {
		return inventory{}, fmt.Errorf("revision %d deletes the key %q, which does not exist", read.unmatched.revision, read.unmatched.key)
	}
	for _, name := range tree.buckets {
		if !slices.Contains(buckets(), name) {
			return inventory{}, fmt.Errorf("it has a bucket %q, which etcd does not write", name)
		}
	}
	return read, nil
}

// add checks a revision against those before it, and remembers it.
func (c *inventory) add(revision, value []byte, visit func(string, []byte) error) error {
	const length = 8 + 1 + 8
	deleted := len(revision) == length+1 && revision[length] == 't'
	if (len(revision) != length && !deleted) || revision[8] != '_' {
		return fmt.Errorf("%x is not a revision", revision)
	}
	main := int64(binary.BigEndian.Uint64(revision)) //nolint:gosec // G115: a damaged one is not what the value says.
	if main < 1 {
		return fmt.Errorf("%d is not a revision", main)
	}
	c.revision = max(c.revision, main)
	if len(value) == 0 {
		return nil // A restored database begins with it.
	}
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(value, &kv); err != nil {
		return fmt.Errorf("revision %d can't be decoded: %w", main, err)
	}
	if len(kv.ProtoReflect().GetUnknown()) > 0 || proto.Size(&kv) != len(value) { // A field is there twice.
		return fmt.Errorf("revision %d has fields that etcd does not write", main)
	}
	key := string(kv.GetKey())
	before, exists := c.live[key]
	if deleted {
		if !exists {
			c.unmatched = deletion{main, key}
		}
		delete(c.live, key)
		return nil
	}
	now := generation{kv.GetCreateRevision(), kv.GetVersion()}
	switch {
	case kv.GetModRevision() != main:
		return fmt.Errorf("the key %q has revision %d instead of %d", key, kv.GetModRevision(), main)
	// Nothing is known of compacted revisions.
	case exists && now != generation{before.created, before.version + 1},
		now.version == 1 && now.created != main, now.version < 1, now.created < 1, now.created > main:
		return fmt.Errorf("revision %d of the key %q does not follow the one before it", main, key)
	}
	c.live[key] = now
	if _, err := OpenValue(key, kv.GetValue()); err != nil {
		return fmt.Errorf("revision %d of the key %q: %w", main, key, err)
	}
	if visit == nil {
		return nil
	}
	return visit(key, kv.GetValue())
}

// readDatabase reads the database of a member that does not run.
func (c Config) readDatabase() (inventory, error) {
	path := filepath.Join(c.path(dataDir), databaseFile)
	read, err := readDatabaseFile(path, nil)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return inventory{}, nil // All there is, is in the write-ahead log.
	case err != nil:
		return inventory{}, fmt.Errorf("the database %s of the embedded etcd can't be used: %w; %s", path, err, restoreAdvice)
	}
	return read, nil
}

// readDatabaseFile reads a file with a database.
func readDatabaseFile(path string, visit func(string, []byte) error) (inventory, error) {
	file, err := os.Open(path)
	if err != nil {
		return inventory{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return inventory{}, err
	}
	return readDatabase(file, info.Size(), visit)
}
