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
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	// restoreDir holds a database that is not complete yet.
	restoreDir = "etcd.restore"
	// restoreLead is how far a restored database goes ahead of its snapshot's revision if the
	// clock is of no use.
	restoreLead = 1_000_000_000
	// connectTimeout bounds the wait for a server that has just started.
	connectTimeout = 30 * time.Second
)

// Snapshot describes a file that holds a database and its hash.
type Snapshot struct {
	// Revision is that of the last write.
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
		if exists, err := c.memberExists(); err != nil || !exists {
			return errors.Join(cmp.Or(err, fmt.Errorf("there is nothing to save in %s: its server was killed before it had served for the first time; start it again", c.Dir)), lock.Close())
		}
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
	verifier := newVerifier()
	for {
		part, err := stream.Recv()
		silent.Stop()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("receiving a snapshot from etcd: %w", cmp.Or(context.Cause(ctx), err))
		}
		if _, err := io.MultiWriter(verifier, out).Write(part.Blob); err != nil {
			return fmt.Errorf("writing the snapshot: %w", err)
		}
		progress(verifier.size, verifier.size+int64(part.RemainingBytes)) //nolint:gosec // G115: no database is that large.
	}
	if _, err := verifier.hash(); err != nil {
		return fmt.Errorf("the snapshot was damaged on its way: it %w", err)
	}
	return nil
}

// SaveFile saves a snapshot in a file, see WriteFile.
func (c Config) SaveFile(ctx context.Context, path string, progress Progress) (Snapshot, error) {
	return WriteFile(path, func(part io.Writer) error { return c.Save(ctx, part, progress) })
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
	snapshot, err := ReadFile(part.Name(), func(int64, int64) {})
	if err != nil {
		return Snapshot{}, err
	}
	return snapshot, rename(part.Name(), path)
}

// ReadFile verifies a snapshot and describes it.
func ReadFile(path string, progress Progress) (Snapshot, error) {
	return VisitFile(path, progress, nil)
}

// VisitFile is ReadFile, and passes every stored value to visit, those of earlier revisions
// included.
func VisitFile(path string, progress Progress, visit func(key string, value []byte) error) (Snapshot, error) {
	file, err := os.Open(path)
	if err != nil {
		return Snapshot{}, fmt.Errorf("opening the snapshot: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Snapshot{}, err
	}
	sum, err := verify(file, io.Discard, info.Size(), progress)
	if err != nil {
		return Snapshot{}, fmt.Errorf("the snapshot %s can't be used: it %w", path, err)
	}
	return describe(path, sum, visit)
}

// describe reads every object of a database with the right hash. The disk may have damaged
// the database before the hash was made.
func describe(path, sum string, visit func(string, []byte) error) (Snapshot, error) {
	read, err := readDatabaseFile(path, visit)
	if err != nil {
		return Snapshot{}, fmt.Errorf("the snapshot %s can't be used: its database was damaged when it was saved: %w; use another one", path, err)
	}
	return Snapshot{Revision: read.revision, Keys: len(read.live), Size: read.size, Hash: sum, Version: read.version}, nil
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
	work := c.path(restoreDir)
	// The remains of an interrupted run are useless.
	if err := os.RemoveAll(work); err != nil {
		return Snapshot{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.Mkdir(work, 0o700); err != nil {
		return Snapshot{}, err
	}

	file := filepath.Join(work, "snapshot")
	snapshot, err := copyFile(in, file, total, progress)
	if err != nil {
		return Snapshot{}, err
	}
	ahead, err := lead(snapshot.Revision, cmp.Or(revision, laterThanAll(snapshot.Revision, time.Now())))
	if err != nil {
		return Snapshot{}, err
	}
	if err := c.putMember(work, file, ahead); err != nil {
		return Snapshot{}, fmt.Errorf("restoring the snapshot: %w", err)
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

// checkEmpty refuses a directory with content of unknown origin.
func (c Config) checkEmpty() error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		// A new file system has a directory lost+found.
		if !slices.Contains([]string{lockFile, socketFile, newDir, restoreDir, "lost+found"}, entry.Name()) {
			return fmt.Errorf("the data directory %s is not empty, but has %q: choose a new directory with --data-dir, and then restart the server with that", c.Dir, entry.Name())
		}
	}
	return nil
}

// copyFile copies a snapshot into a file, verifies it and describes it.
func copyFile(in io.Reader, path string, total int64, progress Progress) (_ Snapshot, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Snapshot{}, err
	}
	sum, err := verify(in, file, total, progress)
	if err != nil {
		return Snapshot{}, errors.Join(fmt.Errorf("the snapshot can't be used: it %w", err), file.Close())
	}
	if err := file.Close(); err != nil {
		return Snapshot{}, err
	}
	return describe(path, sum, nil)
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

// verify copies a snapshot and returns the hash of its database. An error's text
// goes on from "it", the snapshot.
func verify(in io.Reader, out io.Writer, total int64, progress Progress) (sum string, err error) {
	verifier := newVerifier()
	buffer := make([]byte, 1<<20)
	for {
		n, err := in.Read(buffer)
		if _, err := io.MultiWriter(verifier, out).Write(buffer[:n]); err != nil {
			return "", fmt.Errorf("can't be copied: %w", err)
		}
		progress(verifier.size, total)
		if errors.Is(err, io.EOF) {
			return verifier.hash()
		}
		if err != nil {
			return "", fmt.Errorf("can't be read: %w", err)
		}
	}
}

// verifier hashes all that is written but the last bytes, which are the hash.
type verifier struct {
	database hash.Hash
	end      []byte
	size     int64
}

func newVerifier() *verifier { return &verifier{database: sha256.New()} }

// Write never fails.
func (v *verifier) Write(part []byte) (int, error) {
	v.size += int64(len(part))
	v.end = append(v.end, part...)
	if more := len(v.end) - sha256.Size; more > 0 {
		v.database.Write(v.end[:more])
		v.end = append(v.end[:0], v.end[more:]...)
	}
	return len(part), nil
}

// hash returns the hash of the database, which must be the one at the end.
func (v *verifier) hash() (string, error) {
	if v.size%sectorSize != sha256.Size {
		return "", errors.New("has no hash at its end: it is truncated, or not a file of \"snapshot save\"; use another one")
	}
	sum := v.database.Sum(nil)
	if !bytes.Equal(sum, v.end) {
		return "", fmt.Errorf("is damaged: its database has the hash %x, and not %x as when it was saved; use another one", sum, v.end)
	}
	return hex.EncodeToString(sum), nil
}
