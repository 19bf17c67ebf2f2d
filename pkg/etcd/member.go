//go:build !externaletcd

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
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/types"
	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// prepareMember makes the member if there is none. A kill at any moment leaves none, or
// one that is complete: etcd itself would leave one that waits for its own vote forever.
// Upstream fault 73.
func (c Config) prepareMember() error {
	exists, err := c.memberExists()
	if err != nil || exists {
		return err
	}
	// The remains of an interrupted run are useless.
	work := c.path(newDir)
	if err := errors.Join(os.RemoveAll(work), os.RemoveAll(c.path(dataDir))); err != nil {
		return fmt.Errorf("removing the incomplete member of an embedded etcd whose first start was interrupted: %w", err)
	}
	if err := c.makeMember(work); err != nil {
		return fmt.Errorf("creating the embedded etcd in %s: %w", c.Dir, errors.Join(err, os.RemoveAll(work)))
	}
	return nil
}

// memberExists returns false if the member has not committed anything, not even its own
// membership. No write can have been acknowledged then.
func (c Config) memberExists() (bool, error) {
	dir := filepath.Join(c.path(dataDir), walDir)
	if _, err := os.Stat(c.path(dataDir)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		return false, err
	}
	// The second file begins when the first is full.
	if len(logs) > 1 {
		return true, nil
	}
	if len(logs) == 1 {
		committed, err := survive(context.Background(), zap.NewNop(), func(logger *zap.Logger) (uint64, error) {
			state, err := wal.Verify(logger, dir, &walpb.Snapshot{})
			return state.GetCommit(), err
		})
		// etcd itself knows better how to handle a damaged log.
		if err != nil || committed > 0 {
			return true, nil //nolint:nilerr // See above.
		}
	}
	found, err := c.readDatabase()
	if err != nil {
		return false, err
	}
	if len(found.live) > 0 {
		return false, fmt.Errorf("the data directory %s has a database, but no write-ahead log that belongs to it in %s: put the log back, or %s", c.Dir, dir, restoreAdvice)
	}
	return false, nil
}

// makeMember makes a member without any keys aside, and then puts it in its place. It is
// made as by the restore of an empty snapshot, which needs no election.
func (c Config) makeMember(work string) error {
	if err := os.Mkdir(work, 0o700); err != nil {
		return err
	}
	empty := filepath.Join(work, "empty")
	_, err := survive(context.Background(), zap.NewNop(), func(logger *zap.Logger) (any, error) {
		database := backend.NewDefaultBackend(logger, empty)
		schema.CreateMetaBucket(database.BatchTx())
		return nil, database.Close()
	})
	if err != nil {
		return err
	}
	if err := c.putMember(work, empty, 0); err != nil {
		return err
	}
	if err := os.RemoveAll(work); err != nil {
		klog.InfoS("The directory of an earlier step can't be removed; remove it", "dir", work, "err", err)
	}
	return nil
}

// putMember makes a member of a database in a directory, and then puts it in its place. Its
// revision goes ahead by this many, and counts as compacted. If that is 0, the database is a
// new one.
func (c Config) putMember(work, database string, ahead uint64) error {
	member := c.embedConfig(zap.NewNop())
	out := filepath.Join(work, dataDir)
	own := Member{Name: member.Name, InitialCluster: member.InitialCluster}
	if err := own.makeDir(out, database, member.InitialClusterToken, ahead); err != nil {
		return err
	}
	return rename(out, c.path(dataDir))
}

// makeDir makes the data directory of a member, see putMember.
func (m Member) makeDir(out, database, token string, ahead uint64) error {
	members, err := types.NewURLsMap(m.InitialCluster)
	if err != nil {
		return fmt.Errorf("the initial cluster %q can't be used: %w", m.InitialCluster, err)
	}
	if len(members[m.Name]) == 0 {
		return fmt.Errorf("the initial cluster %q has no member %q", m.InitialCluster, m.Name)
	}
	config := etcdsnapshot.RestoreConfig{
		SnapshotPath:        database,
		Name:                m.Name,
		OutputDataDir:       out,
		PeerURLs:            members[m.Name].StringSlice(),
		InitialCluster:      m.InitialCluster,
		InitialClusterToken: token,
		SkipHashCheck:       ahead == 0,
		RevisionBump:        ahead,
		MarkCompacted:       ahead > 0,
	}
	_, err = survive(context.Background(), zap.NewNop(), func(logger *zap.Logger) (any, error) {
		return nil, etcdsnapshot.NewV3(logger).Restore(config)
	})
	if err != nil {
		return err
	}
	return syncDirectories(out)
}

// syncDirectories makes a directory tree survive a crash. The files have been synced by their
// writers.
func syncDirectories(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncDirectory(path)
	})
}
