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
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

const (
	// sectorSize divides the size of every database. This tells a file with a hash at its end
	// from one without, as in etcd's own tools.
	sectorSize = 512
	// connectTimeout bounds the wait for a server that has just started.
	connectTimeout = 30 * time.Second
)

// Snapshot describes a file that holds a database and its hash.
type Snapshot struct {
	// Revision is the revision of the last write.
	Revision int64 `json:"revision"`
	// Keys is how many keys there are.
	Keys int `json:"keys"`
	// Size is the database's, in bytes.
	Size int64 `json:"size"`
	// Hash is the database's SHA-256 in hexadecimal.
	Hash string `json:"hash"`
	// Version is the oldest version of etcd that reads the database. It is empty if the
	// server ended some seconds after its first start, before etcd had written it.
	Version string `json:"version"`
}

// Progress is told how many bytes are done, and the total, which is 0 if it is not known.
type Progress func(done, total int64)

// Save writes a snapshot of the database: from the server that runs on the directory or, if
// none does, from the directory itself. It has everything that was acknowledged before.
func (c Config) Save(ctx context.Context, out io.Writer, progress Progress) (err error) {
	if _, err := os.Stat(c.path(dataDir)); err != nil {
		return fmt.Errorf("there is no database of an embedded etcd in %s: name the server's data directory with --data-dir, and run this as the same user (%w)", c.Dir, err)
	}
	if err := c.checkReplaced(); err != nil {
		return err
	}
	lock, err := c.tryLock()
	switch {
	case errors.Is(err, fileutil.ErrLocked): // By the server, which is going to answer.
	case err != nil:
		return err
	default:
		// The last writes may be in the write-ahead log only: etcd itself has to add
		// them to the database.
		etcd, runErr := c.run(ctx, lock)
		if runErr != nil {
			return runErr
		}
		defer func() { err = errors.Join(err, etcd.Close()) }()
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return SaveFrom(ctx, client, out, progress)
}

// SaveFrom writes a snapshot of a running etcd, which may be another program's.
func SaveFrom(ctx context.Context, client *clientv3.Client, out io.Writer, progress Progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(connectTimeout, func() {
		cancel(fmt.Errorf("it has not answered within %s: see the log of the process that holds its data directory", connectTimeout))
	})
	defer silent.Stop()
	stream, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Snapshot(ctx, &etcdserverpb.SnapshotRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("asking etcd for a snapshot: %w", cmp.Or(context.Cause(ctx), err))
	}
	var done int64
	for {
		part, err := stream.Recv()
		silent.Stop()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receiving a snapshot from etcd: %w", cmp.Or(context.Cause(ctx), err))
		}
		if _, err := out.Write(part.Blob); err != nil {
			return fmt.Errorf("writing the snapshot: %w", err)
		}
		done += int64(len(part.Blob))
		progress(done, done+int64(part.RemainingBytes)) //nolint:gosec // G115: no database is that large.
	}
}

// WriteFile makes a file of the snapshot that save writes. The file is there when it is
// complete and verified, and replaces one of that name.
func WriteFile(path string, save func(io.Writer) error) (_ Snapshot, err error) {
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return Snapshot{}, fmt.Errorf("creating the snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part.Name()))
		}
	}()
	if err := errors.Join(save(part), part.Sync(), part.Close()); err != nil {
		return Snapshot{}, err
	}
	snapshot, err := ReadFile(part.Name(), func(int64, int64) {}, nil)
	if err != nil {
		return Snapshot{}, err
	}
	return snapshot, rename(part.Name(), path)
}

// ReadFile verifies a snapshot and describes it. It passes every stored value to visit, values of
// earlier revisions included, unless that is nil.
func ReadFile(path string, progress Progress, visit func(key string, value []byte) error) (Snapshot, error) {
	snapshot, err := readFile(path, progress, visit)
	if err != nil {
		return Snapshot{}, fmt.Errorf("the snapshot %s can't be used: it %w", path, err)
	}
	return snapshot, nil
}

// readFile verifies and describes a snapshot. The text of an error goes on from "it", the snapshot.
func readFile(path string, progress Progress, visit func(string, []byte) error) (Snapshot, error) {
	sum, err := verify(path, progress)
	if err != nil {
		return Snapshot{}, err
	}
	// The disk may have damaged the database before the hash was made.
	snapshot, err := readDatabase(path, visit)
	if err != nil {
		return Snapshot{}, fmt.Errorf("has a database that was damaged when it was saved: %w; use another one", err)
	}
	snapshot.Hash = sum
	return snapshot, nil
}

// verify returns the hash of the database in a snapshot, which must be the one at its end.
func verify(path string, progress Progress) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("can't be opened: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("can't be read: %w", err)
	}
	if info.Size()%sectorSize != sha256.Size {
		return "", errors.New("has no hash at its end: it is truncated, or not a file of \"snapshot save\"; use another one")
	}
	database, end := sha256.New(), make([]byte, sha256.Size)
	_, err = io.CopyN(&counter{database, progress, 0, info.Size()}, file, info.Size()-sha256.Size)
	if err == nil {
		_, err = io.ReadFull(file, end)
	}
	if err != nil {
		return "", fmt.Errorf("can't be read: %w", err)
	}
	sum := database.Sum(nil)
	if !bytes.Equal(sum, end) {
		return "", fmt.Errorf("is damaged: its database has the hash %x, and not %x as when it was saved; use another one", sum, end)
	}
	return hex.EncodeToString(sum), nil
}

// counter reports the progress of what is written.
type counter struct {
	io.Writer
	progress    Progress
	done, total int64
}

func (c *counter) Write(part []byte) (int, error) {
	n, err := c.Writer.Write(part)
	c.done += int64(n)
	c.progress(c.done, c.total)
	return n, err
}

// rename puts a complete file or directory in its place, where it survives a crash.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(to))
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
