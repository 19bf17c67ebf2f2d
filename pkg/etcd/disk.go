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
	"os"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// A member that can't write to its disk ends the process, and can't start again either. So
// writes are refused while there is still some space. It is for the log, which etcd
// allocates 64 MB at a time, for the copies of a commit, and for deletions.
const (
	diskReserve = 128 << 20
	// diskEnough is more, so that the two states do not alternate.
	diskEnough    = diskReserve + diskReserve/4
	watchInterval = 100 * time.Millisecond
)

// watchDirectory refuses writes while the disk is nearly full or the directory is gone,
// until the context ends.
func (e *Etcd) watchDirectory(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		before := e.disk.Load()
		problem := e.checkDirectory(before != nil)
		if problem == nil {
			e.disk.Store(nil)
		} else {
			e.disk.Store(&problem)
		}
		if (before == nil) != (problem == nil) {
			klog.InfoS("The embedded etcd has changed whether it accepts writes", "dir", e.config.Dir, "accepted", problem == nil, "reason", problem)
		}
	}, watchInterval)
}

// refuseWrites refuses writes while there is a reason, before they get into etcd's log. An
// alarm of etcd would refuse them too, but only after it has logged them.
func refuseWrites(reason *atomic.Pointer[error]) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if reason.Load() != nil && writes(request) {
			return nil, rpctypes.ErrGRPCNoSpace
		}
		return handler(ctx, request)
	}
}

// writes reports whether a request makes the database larger. Deletions are always possible.
func writes(request any) bool {
	switch request := request.(type) {
	case *etcdserverpb.PutRequest, *etcdserverpb.LeaseGrantRequest:
		return true
	case *etcdserverpb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(request.GetSuccess(), request.GetFailure()), func(operation *etcdserverpb.RequestOp) bool {
			return operation.GetRequestPut() != nil || operation.GetRequestTxn() != nil
		})
	}
	return false
}

// checkDirectory returns an error if nothing must be written.
func (e *Etcd) checkDirectory(full bool) error {
	held, err := e.lock.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(e.config.path(lockFile))
	if err == nil && !os.SameFile(held, named) {
		err = errors.New("it has been replaced")
	}
	if err == nil {
		_, err = os.Stat(e.config.path(databaseFile))
	}
	if err != nil {
		return fmt.Errorf("the data directory %s of the embedded etcd was deleted while the server runs (%w), and nothing is written any more: save what can still be read, with \"kubectl get --output=yaml\", and then %s", e.config.Dir, err, restoreAdvice)
	}
	free, err := freeBytes(e.config.Dir)
	if err != nil {
		return nil //nolint:nilerr // A file system that does not say.
	}
	return e.config.checkSpace(free, full)
}

// checkSpace returns an error if there is not enough space on the disk. full says that there was not enough before.
func (c Config) checkSpace(free int64, full bool) error {
	if free >= diskEnough || free >= diskReserve && !full {
		return nil
	}
	return fmt.Errorf("the disk of the embedded etcd, with %s, has only %d MiB left, and nothing is written until there are %d MiB: enlarge the volume, or delete what else is on it", c.Dir, free>>20, diskEnough>>20)
}
