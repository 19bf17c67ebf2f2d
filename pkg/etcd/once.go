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

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// Member is one member of an etcd that runs outside of the server.
type Member struct {
	// Dir is the member's data directory.
	Dir string
	// Name and InitialCluster are the flags --name and --initial-cluster of etcd.
	Name, InitialCluster string
}

// RestoreOnce replaces the directory by that of a snapshot. The old one is kept beside it, under a
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

// RestoreOnce is that of Config, for a member of a separate etcd. All members need the same snapshot
// and the same revision, and none of them may run before each has been restored.
func (m Member) RestoreOnce(revision int64, in io.Reader, total int64, progress Progress) (Snapshot, bool, error) {
	return once(m.Dir, revision, func(dir string) (_ Snapshot, err error) {
		file := dir + ".snapshot"
		// The remains of an interrupted run are useless.
		if err := os.RemoveAll(file); err != nil {
			return Snapshot{}, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(file)) }()
		snapshot, err := copyFile(in, file, total, progress)
		if err != nil {
			return Snapshot{}, err
		}
		ahead, err := lead(snapshot.Revision, revision)
		if err != nil {
			return Snapshot{}, err
		}
		// With another token, the members that were there before can't join these.
		if err := m.makeDir(dir, file, fmt.Sprintf("restored-%d", revision), ahead); err != nil {
			return Snapshot{}, fmt.Errorf("restoring the snapshot for the member %s: %w", m.Name, err)
		}
		return snapshot, nil
	})
}

// lead returns the number of writes that a revision is ahead of that of a snapshot.
func lead(snapshot, revision int64) (uint64, error) {
	if revision <= snapshot {
		return 0, fmt.Errorf("the revision %d is not later than that of the snapshot, %d: use the number of microseconds since 1970", revision, snapshot)
	}
	return uint64(revision - snapshot), nil //nolint:gosec // G115: it is later.
}

// once makes a new directory with restore, and puts it in the place of dir.
func once(dir string, revision int64, restore func(dir string) (Snapshot, error)) (Snapshot, bool, error) {
	before, work := fmt.Sprintf("%s.before-%d", dir, revision), dir+".restored"
	kept, err := exists(before)
	if err != nil {
		return Snapshot{}, false, err
	}
	if kept {
		if restored, err := exists(dir); err != nil || restored {
			return Snapshot{}, false, err
		}
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

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
