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
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	snapshotPattern = "snapshot-*Z.db"
	snapshotLayout  = "snapshot-20060102T150405Z.db"
	// partPattern matches the parts that a killed WriteFile leaves behind. No snapshot takes
	// as long as partAge.
	partPattern = snapshotPattern + ".*.part"
	partAge     = 24 * time.Hour
)

// SnapshotDirectory has snapshots whose files are named after the time, so that the latest is
// the last.
type SnapshotDirectory string

// File returns the path of a snapshot that is saved now.
func (d SnapshotDirectory) File(now time.Time) string {
	return filepath.Join(string(d), now.UTC().Format(snapshotLayout))
}

// Files returns the paths of all snapshots, the latest one last.
func (d SnapshotDirectory) Files() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(string(d), snapshotPattern))
	slices.Sort(files)
	return files, err
}

// Prune deletes all but the latest snapshots, and old parts of incomplete ones.
func (d SnapshotDirectory) Prune(keep int) error {
	files, err := d.Files()
	if err != nil {
		return err
	}
	old := files[:max(0, len(files)-keep)]
	parts, err := filepath.Glob(filepath.Join(string(d), partPattern))
	if err != nil {
		return err
	}
	for _, part := range parts {
		if info, err := os.Stat(part); err == nil && time.Since(info.ModTime()) > partAge {
			old = append(old, part)
		}
	}
	var errs []error
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			errs = append(errs, fmt.Errorf("deleting an old snapshot: %w", err))
		}
	}
	return errors.Join(errs...)
}
