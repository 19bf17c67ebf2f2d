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
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// restoreAdvice is the way out of a damaged database.
const restoreAdvice = `restore a snapshot into a new directory with "snapshot restore FILE --data-dir DIR", and start the server with that --data-dir`

const (
	// keyBucket has every revision of every key. versionKey, in metaBucket, is the oldest version
	// of etcd that can read the database.
	keyBucket  = "key"
	metaBucket = "meta"
	versionKey = "storageVersion"
	// lockTimeout is how long another process may hold the database.
	lockTimeout = time.Second
)

// readDatabase reads every page and every revision of a database that nobody writes. It passes
// every revision that is not a deletion to visit, unless that is nil.
//
// bbolt maps the file and trusts it: on a damaged page it panics, or reads beyond the end. In this
// goroutine both become an error. In bbolt's own check, which reads in others, they would end the
// process. So the order of the keys is checked here.
// Upstream fault 72.
func readDatabase(path string, visit func(key string, value []byte) error) (read Snapshot, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("it is damaged or truncated: bbolt fails with %q", fmt.Sprint(reason))
		}
	}()
	info, err := os.Stat(path)
	if err != nil {
		return Snapshot{}, err
	}
	database, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return Snapshot{}, fmt.Errorf("opening it with bbolt: %w", err)
	}
	defer func() { err = errors.Join(err, database.Close()) }()
	err = database.View(func(tx *bbolt.Tx) error {
		// A running etcd reserves space at the end of the file.
		if read.Size = tx.Size(); read.Size > info.Size() {
			return fmt.Errorf("it is truncated: it has %d of %d bytes", info.Size(), read.Size)
		}
		if err := checkDepth(path, int64(database.Info().PageSize), tx); err != nil {
			return fmt.Errorf("it is damaged: %w", err)
		}
		if err := read.addBuckets(tx, visit); err != nil {
			return fmt.Errorf("it is damaged: %w", err)
		}
		return nil
	})
	return read, err
}

// checkDepth returns an error if a page refers to one above it, or to one that is no page of keys, which bbolt would
// follow without end.
func checkDepth(path string, pageSize int64, tx *bbolt.Tx) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	const branch, leaf, header, element, maxDepth = 1, 2, 16, 16, 32 // of bbolt's format
	var check func(id uint64, depth int) error
	check = func(id uint64, depth int) error {
		page := make([]byte, header)
		if _, err := file.ReadAt(page, int64(id)*pageSize); err != nil { //nolint:gosec // G115: then there is no such page.
			return fmt.Errorf("page %d can't be read: %w", id, err)
		}
		switch flags := binary.NativeEndian.Uint16(page[8:]); flags {
		case leaf:
			return nil
		case branch:
		default:
			return fmt.Errorf("page %d has the flags %#x", id, flags)
		}
		if depth == maxDepth {
			return fmt.Errorf("page %d is in more than %d others", id, maxDepth)
		}
		page = make([]byte, int(binary.NativeEndian.Uint16(page[10:]))*element)
		if _, err := file.ReadAt(page, int64(id)*pageSize+header); err != nil { //nolint:gosec // G115: it has been read.
			return fmt.Errorf("page %d can't be read: %w", id, err)
		}
		for ; len(page) > 0; page = page[element:] {
			if err := check(binary.NativeEndian.Uint64(page[8:]), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if err := check(uint64(tx.Cursor().Bucket().RootPage()), 0); err != nil {
		return err
	}
	return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		if bucket.RootPage() != 0 {
			return check(uint64(bucket.RootPage()), 0)
		}
		// It is a leaf within another page.
		if bucket.Stats().InlineBucketInuse == 0 {
			return fmt.Errorf("the bucket %q is not a leaf", name)
		}
		return nil
	})
}

// addBuckets reads all values, and describes etcd's keys.
func (s *Snapshot) addBuckets(tx *bbolt.Tx, visit func(string, []byte) error) error {
	// A new database has no bucket of keys yet.
	if tx.Bucket([]byte(metaBucket)) == nil {
		return fmt.Errorf("it has no bucket %q", metaBucket)
	}
	live := sets.New[string]()
	err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		var last []byte
		return bucket.ForEach(func(key, value []byte) error {
			if value == nil {
				return fmt.Errorf("the bucket %q has another one in it", name)
			}
			if bytes.Compare(last, key) >= 0 { // A page may refer to one above it.
				return fmt.Errorf("the key %x of the bucket %q comes after %x", key, name, last)
			}
			if bucket.Get(key) == nil { // A page above it has another key.
				return fmt.Errorf("the key %x of the bucket %q can't be found", key, name)
			}
			last = key
			switch {
			case string(name) == metaBucket && string(key) == versionKey:
				s.Version = string(value)
			case string(name) == keyBucket:
				return s.addRevision(key, value, live, visit)
			}
			return nil
		})
	})
	s.Keys = live.Len()
	return err
}

// addRevision reads a revision of a key, and keeps track of the keys that exist.
func (s *Snapshot) addRevision(revision, value []byte, live sets.Set[string], visit func(string, []byte) error) error {
	const length = 8 + 1 + 8
	deleted := len(revision) == length+1 && revision[length] == 't'
	if (len(revision) != length && !deleted) || revision[8] != '_' {
		return fmt.Errorf("%x is not a revision", revision)
	}
	s.Revision = int64(binary.BigEndian.Uint64(revision)) //nolint:gosec // G115: etcd's revisions have 63 bits.
	if len(value) == 0 {
		return nil // A restored database begins with it.
	}
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(value, &kv); err != nil {
		return fmt.Errorf("revision %d can't be decoded: %w", s.Revision, err)
	}
	key := string(kv.GetKey())
	if deleted {
		live.Delete(key)
		return nil
	}
	live.Insert(key)
	if _, err := OpenValue(key, kv.GetValue()); err != nil {
		return fmt.Errorf("revision %d of the key %q: %w", s.Revision, key, err)
	}
	if visit == nil {
		return nil
	}
	return visit(key, kv.GetValue())
}

// checkDatabase reads the database of a member that does not run.
func (c Config) checkDatabase() error {
	path := c.path(databaseFile)
	klog.V(2).InfoS("Reading the whole database of the embedded etcd", "file", path)
	if _, err := readDatabase(path, nil); err != nil && !errors.Is(err, os.ErrNotExist) { // It may be in the write-ahead log only.
		return fmt.Errorf("the database %s of the embedded etcd can't be used: %w; %s", path, err, restoreAdvice)
	}
	return nil
}
