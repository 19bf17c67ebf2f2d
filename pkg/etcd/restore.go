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
	"io"
	"os"
	"slices"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

const (
	// restoreDir holds a member that is not complete yet.
	restoreDir = "etcd.restore"
	// restoreLead is how far a restored database goes ahead of its snapshot's revision if the
	// clock is of no use.
	restoreLead = 1_000_000_000
)

// Member is one member of an etcd that runs outside of the server.
type Member struct {
	// Dir is the member's data directory.
	Dir string
	// Name and InitialCluster are the flags --name and --initial-cluster of etcd.
	Name, InitialCluster string
}

// member is the only one of the embedded etcd.
func (c Config) member() Member {
	return Member{c.path(dataDir), memberName, memberName + "=" + memberURL}
}

// Restore puts a snapshot into the directory, which must be empty. The total is the
// snapshot's size, or 0 if that is not known.
//
// Clients remember the last revision that they have seen, and expect all later ones to be
// news. If the database went back to the snapshot's revision, they would take other objects
// for those that they know. They would also miss all writes until the old revision is
// reached. So the database goes ahead of all revisions that there ever were, and these count
// as compacted. The clients are told that their revision is gone, and read everything again.
func (c Config) Restore(in io.Reader, total int64, progress Progress) (Snapshot, error) {
	return c.restore(0, in, total, progress)
}

// restore is Restore that goes ahead to a revision, unless that is 0.
func (c Config) restore(revision int64, in io.Reader, total int64, progress Progress) (_ Snapshot, err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return Snapshot{}, fmt.Errorf("creating the data directory of the embedded etcd (choose another with --data-dir): %w", err)
	}
	lock, err := c.tryLock()
	if errors.Is(err, fileutil.ErrLocked) {
		return Snapshot{}, fmt.Errorf("the data directory %s is in use by a server: choose a new directory with --data-dir, and then restart the server with that", c.Dir)
	}
	if err != nil {
		return Snapshot{}, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := c.checkEmpty(); err != nil {
		return Snapshot{}, err
	}
	snapshot, err := c.member().build(c.path(restoreDir), revision, in, total, progress)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshot, rename(c.path(restoreDir), c.path(dataDir))
}

// checkEmpty refuses a directory with content of unknown origin.
func (c Config) checkEmpty() error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		// A new file system has a directory lost+found.
		if !slices.Contains([]string{lockFile, socketFile, newDir, restoreDir, restoreDir + snapshotSuffix, "lost+found"}, entry.Name()) {
			return fmt.Errorf("the data directory %s is not empty, but has %q: choose a new directory with --data-dir, and then restart the server with that", c.Dir, entry.Name())
		}
	}
	return nil
}

// snapshotSuffix ends the name of the copy of a snapshot beside a member that is not complete yet.
const snapshotSuffix = ".snapshot"

// build makes a member's directory of a snapshot.
func (m Member) build(dir string, revision int64, in io.Reader, total int64, progress Progress) (_ Snapshot, err error) {
	copied := dir + snapshotSuffix
	// The remains of an interrupted run are useless.
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(copied)); err != nil {
		return Snapshot{}, err
	}
	defer func() {
		err = errors.Join(err, os.RemoveAll(copied))
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	file, err := os.OpenFile(copied, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Snapshot{}, err
	}
	_, err = io.Copy(&counter{file, progress, 0, total}, in)
	if err := errors.Join(err, file.Close()); err != nil {
		return Snapshot{}, fmt.Errorf("copying the snapshot: %w", err)
	}
	snapshot, err := readFile(copied, func(int64, int64) {}, nil)
	if err != nil {
		return Snapshot{}, fmt.Errorf("the snapshot can't be used: it %w", err)
	}
	if revision == 0 {
		revision = laterThanAll(snapshot.Revision, time.Now())
	}
	if revision <= snapshot.Revision {
		return Snapshot{}, fmt.Errorf("the revision %d is not later than that of the snapshot, %d: use the number of microseconds since 1970", revision, snapshot.Revision)
	}
	if err := m.makeDir(dir, copied, uint64(revision-snapshot.Revision)); err != nil { //nolint:gosec // G115: it is later.
		return Snapshot{}, fmt.Errorf("restoring the snapshot for the member %s: %w", m.Name, err)
	}
	return snapshot, nil
}

// laterThanAll returns a revision that no write has had, even if the same snapshot was
// restored before. It is the number of microseconds since 1970, as no etcd takes a million
// writes in each second.
func laterThanAll(revision int64, now time.Time) int64 {
	if later := now.UnixMicro(); later > revision {
		return later
	}
	return revision + restoreLead
}

// RestoreOnce replaces the directory by the content of a snapshot. The old one is kept beside it, under a
// name that ends with the revision. The restored database goes on with this revision.
//
// Once it has succeeded, the next call with the same revision returns false and changes nothing. So
// a pod can begin with it each time it is started. After a kill, the next call starts over.
func (c Config) RestoreOnce(revision int64, in io.Reader, total int64, progress Progress) (Snapshot, bool, error) {
	lock, err := c.tryLock()
	switch {
	case errors.Is(err, fileutil.ErrLocked):
		return Snapshot{}, false, fmt.Errorf("the data directory %s is in use by a server: stop it first", c.Dir)
	case err == nil:
		defer lock.Close()
	case !errors.Is(err, os.ErrNotExist):
		return Snapshot{}, false, err
	}
	return once(c.Dir, revision, func(dir string) (Snapshot, error) {
		restored := c
		restored.Dir = dir
		return restored.restore(revision, in, total, progress)
	})
}

// RestoreOnce does what Config.RestoreOnce does, for a member of a separate etcd. All members need the same snapshot
// and the same revision, and none of them may run before each has been restored.
func (m Member) RestoreOnce(revision int64, in io.Reader, total int64, progress Progress) (Snapshot, bool, error) {
	return once(m.Dir, revision, func(dir string) (Snapshot, error) { return m.build(dir, revision, in, total, progress) })
}

// once makes a new directory with restore, and puts it in the place of dir.
func once(dir string, revision int64, restore func(dir string) (Snapshot, error)) (Snapshot, bool, error) {
	before, work := fmt.Sprintf("%s.before-%d", dir, revision), dir+".restored"
	kept := fileutil.Exist(before)
	if kept && fileutil.Exist(dir) {
		return Snapshot{}, false, nil
	}
	// The remains of an interrupted run are useless.
	if err := os.RemoveAll(work); err != nil {
		return Snapshot{}, false, err
	}
	snapshot, err := restore(work)
	if err != nil {
		return Snapshot{}, false, errors.Join(err, os.RemoveAll(work))
	}
	if !kept {
		err := os.Rename(dir, before)
		if errors.Is(err, os.ErrNotExist) {
			err = os.Mkdir(before, 0o700)
		}
		if err != nil {
			return Snapshot{}, false, err
		}
	}
	return snapshot, true, rename(work, dir)
}
