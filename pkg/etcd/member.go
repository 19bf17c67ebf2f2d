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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/types"
	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// prepareMember makes the member if there is none. A kill at any moment leaves none, or
// one that is complete: etcd itself would leave one that waits for its own vote forever.
// Upstream fault 73.
func (c Config) prepareMember() error {
	if _, err := os.Stat(c.path(dataDir)); errors.Is(err, fs.ErrNotExist) {
		if err := c.makeMember(); err != nil {
			return fmt.Errorf("creating the embedded etcd in %s: %w", c.Dir, err)
		}
		return nil
	}
	// Without its log, etcd would ignore writes until there are as many as in the database.
	if _, err := os.Stat(c.path(walDir)); err != nil {
		return fmt.Errorf("the data directory %s has an etcd without a write-ahead log: put the log back, or %s (%w)", c.Dir, restoreAdvice, err)
	}
	return nil
}

// makeMember makes a member without any keys, as by the restore of an empty snapshot, which needs
// no election.
func (c Config) makeMember() (err error) {
	work, empty := c.path(newDir), c.path(newDir)+".db"
	// The remains of an interrupted run are useless.
	if err := errors.Join(os.RemoveAll(work), os.RemoveAll(empty)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work), os.RemoveAll(empty)) }()
	if err := survive(func() error {
		database := backend.NewDefaultBackend(silent(), empty)
		schema.CreateMetaBucket(database.BatchTx())
		return database.Close()
	}); err != nil {
		return err
	}
	if err := c.member().makeDir(work, empty, 0); err != nil {
		return err
	}
	return rename(work, c.path(dataDir))
}

// makeDir makes the data directory of a member from a database. Its revision goes ahead by this
// many, and counts as compacted. If that is 0, the database is a new one.
func (m Member) makeDir(out, database string, ahead uint64) error {
	members, err := types.NewURLsMap(m.InitialCluster)
	if err != nil {
		return fmt.Errorf("the initial cluster %q can't be used: %w", m.InitialCluster, err)
	}
	if len(members[m.Name]) == 0 {
		return fmt.Errorf("the initial cluster %q has no member %q", m.InitialCluster, m.Name)
	}
	if err := survive(func() error {
		return etcdsnapshot.NewV3(silent()).Restore(etcdsnapshot.RestoreConfig{
			SnapshotPath:   database,
			Name:           m.Name,
			OutputDataDir:  out,
			PeerURLs:       members[m.Name].StringSlice(),
			InitialCluster: m.InitialCluster,
			// With another token, the members that were there before can't join these.
			InitialClusterToken: fmt.Sprintf("restored-%d", ahead),
			SkipHashCheck:       ahead == 0,
			RevisionBump:        ahead,
			MarkCompacted:       ahead > 0,
		})
	}); err != nil {
		return err
	}
	// The files have been synced by their writers.
	return filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncDirectory(path)
	})
}
