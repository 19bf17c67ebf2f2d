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

// Package etcd runs a single etcd member inside the server's process, so
// that an API group can be served with nothing else installed.
//
// A program that is built with -tags=externaletcd has no such member, links none of the etcd
// server's packages, and takes --etcd-servers only.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"k8s.io/klog/v2"
)

// maxSocketPath is the length of a unix socket's path that every platform takes,
// sun_path of unix(7) and its counterparts without the closing zero.
const maxSocketPath = 103

// Names in the data directory.
const (
	lockFile   = "lock"
	socketFile = "etcd.sock"
	dataDir    = "etcd"
	// listenFile is the socket until it has its permissions. Its path is as long as
	// socketFile.
	listenFile = dataDir + "/sock"
	// newDir holds a member that is not complete yet.
	newDir = "etcd.new"
)

// Names in etcd's own directory.
const (
	walDir       = dataDir + "/member/wal"
	databaseFile = dataDir + "/member/snap/db"
)

// Etcd wants its only member to have a name and a URL; nothing listens there.
const (
	memberName = "embedded"
	memberURL  = "http://localhost:2380"
)

// DefaultQuotaBytes is etcd's own default, stated since it is a promise to the operator.
const DefaultQuotaBytes = 2 << 30

// Config says where the member keeps its data.
type Config struct {
	// Dir is a directory that belongs to the member alone.
	Dir string
	// QuotaBytes is the size of the database above which etcd raises an alarm
	// and refuses writes.
	QuotaBytes int64
}

// errExternal is the error of everything that needs an etcd in the process, if there is
// none.
var errExternal = errors.New("this program was built with -tags=externaletcd, and has no etcd inside: name an external one with --etcd-servers, or use another build of it")

// Validate returns all errors of the configuration.
func (c Config) Validate() []error {
	if !embedded {
		return []error{errExternal}
	}
	var errs []error
	switch {
	case c.Dir == "":
		errs = append(errs, errors.New("--data-dir must name a directory for the embedded etcd, or --etcd-servers an external etcd"))
	case len(c.socket()) > maxSocketPath:
		errs = append(errs, fmt.Errorf("--data-dir %q is too long by %d characters for the unix socket in it: choose a shorter path", c.Dir, len(c.socket())-maxSocketPath))
	}
	if c.QuotaBytes <= 0 {
		errs = append(errs, fmt.Errorf("--etcd-quota-backend-bytes must be above 0, not %d", c.QuotaBytes))
	}
	return errs
}

func (c Config) path(name string) string { return filepath.Join(c.Dir, name) }

func (c Config) socket() string { return c.path(socketFile) }

// Endpoint returns the address of the member for a client in this process. It is a unix
// socket that only the server's user may connect to, so that the data can't be reached
// around the API.
func (c Config) Endpoint() string { return "unix://" + c.socket() }

// CheckServed returns an error unless a server with the embedded etcd runs on the directory.
func (c Config) CheckServed() error {
	connection, err := net.Dial("unix", c.socket())
	if err != nil {
		return fmt.Errorf("no server with an embedded etcd runs on %s: start it, name its data directory with --data-dir, and run this as the same user (%w)", c.Dir, err)
	}
	return connection.Close()
}

func (c Config) acquire(ctx context.Context) (*fileutil.LockedFile, error) {
	for waiting := false; ; waiting = true {
		lock, err := c.tryLock()
		if !errors.Is(err, fileutil.ErrLocked) {
			return lock, err
		}
		if !waiting {
			klog.InfoS("The data directory is in use by another server; waiting until it stops. If it is not being replaced, choose another directory with --data-dir", "dir", c.Dir)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("the data directory %s is in use by another server: stop it or choose another directory with --data-dir", c.Dir)
		}
	}
}

// tryLock returns an error that is fileutil.ErrLocked if another process holds the
// directory.
func (c Config) tryLock() (*fileutil.LockedFile, error) {
	lock, err := fileutil.TryLockFile(c.path(lockFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory of the embedded etcd: %w", err)
	}
	return lock, nil
}
