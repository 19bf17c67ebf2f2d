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

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// Snapshots in a directory are named after the time, so that the latest is the last.
const (
	snapshotPattern = "snapshot-*Z.db"
	snapshotLayout  = "snapshot-20060102T150405Z.db"
)

// destination is the file for a path, which may be a directory of snapshots.
func destination(path string, keep int, now time.Time) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return filepath.Join(path, now.UTC().Format(snapshotLayout)), nil
	case keep > 0:
		return "", fmt.Errorf("--keep needs a directory of snapshots, which %s is not", path)
	}
	return path, nil
}

// latest is the file for a path, which may be a directory of snapshots.
func latest(path string) (string, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return path, nil //nolint:nilerr // Opening it reports that.
	}
	files, err := filepath.Glob(filepath.Join(path, snapshotPattern))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("there is no snapshot in %s", path)
	}
	return slices.Max(files), nil
}

// prune deletes all but the latest snapshots in a directory, and what saves that were killed before
// these have left.
func prune(dir string, keep int) error {
	kept, err := filepath.Glob(filepath.Join(dir, snapshotPattern))
	if err != nil || len(kept) <= keep {
		return err
	}
	slices.Sort(kept)
	files, err := filepath.Glob(filepath.Join(dir, snapshotPattern+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if file < kept[len(kept)-keep] {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}

// readObjects reads every stored value of a snapshot, and counts the objects of each resource.
func readObjects(file string, progress etcd.Progress, verify func(string, []byte) (string, error)) (etcd.Snapshot, map[string]int, error) {
	objects := map[string]int{}
	var errs []error
	snapshot, err := etcd.ReadFile(file, progress, func(key string, stored []byte) error {
		resource, err := verify(key, stored)
		if resource != "" {
			objects[resource]++
		}
		if err != nil && len(errs) < maxErrors {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		return nil
	})
	return snapshot, objects, errors.Join(append([]error{err}, errs...)...)
}

// maxErrors bounds how many objects are named that can't be served.
const maxErrors = 10

// try restores a snapshot and starts an etcd on it.
func try(ctx context.Context, file, dir string, want etcd.Snapshot) (err error) {
	work, err := os.MkdirTemp(dir, "trial")
	if err != nil {
		return fmt.Errorf("creating a temporary directory; choose where with --temporary-dir: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	config := etcd.Config{Dir: filepath.Join(work, "d"), QuotaBytes: etcd.DefaultQuotaBytes}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := config.Restore(in, 0, func(int64, int64) {}); err != nil {
		return err
	}
	started, err := config.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, started.Close()) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{config.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	all, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	if all.Count != int64(want.Keys) {
		return fmt.Errorf("the restored etcd has %d keys, and not %d", all.Count, want.Keys)
	}
	return nil
}
