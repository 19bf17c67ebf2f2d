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
	"net/url"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
)

// embedded says that an etcd can run in this process.
const embedded = true

// defragThreshold is the free space in megabytes that makes the start defragment the database.
const defragThreshold = 64

// How soon the only member elects itself. The ratio of the two is the least that etcd
// accepts.
const (
	tickMilliseconds     = 20
	electionMilliseconds = 5 * tickMilliseconds
)

// Raft keeps written entries in memory for members that lag behind, and there are none. A start
// reads all entries since the last snapshot of its log. The defaults, 5000 and 10 000, are numbers
// of writes, whatever their size. A client that may write large objects would fill the memory.
const (
	catchUpEntries = 1
	snapshotCount  = 200
)

// maxRequestBytes is how large a write may be. A write that another etcd accepts is accepted here,
// too, with its checksum and with the conditions of its references.
const maxRequestBytes = embed.DefaultMaxRequestBytes + 16<<10

// Etcd is a running member.
type Etcd struct {
	*embed.Etcd
	config   Config
	lock     *fileutil.LockedFile
	logLevel zap.AtomicLevel
	// disk is the reason why writes are refused at the moment, or nil.
	disk *atomic.Pointer[error]
	// stop stops watching the directory.
	stop func()
}

// Start returns when the member serves. While another process holds the directory
// it waits, as long as the context allows: in a rolling restart that is the
// server's previous process.
func (c Config) Start(ctx context.Context) (*Etcd, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory of the embedded etcd (choose another with --data-dir): %w", err)
	}
	lock, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.checkReplaced(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := c.prepareMember(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	etcd, err := c.run(ctx, lock)
	if err != nil {
		return nil, err
	}
	if err := etcd.recoverSpace(ctx, c.QuotaBytes); err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	if err := c.markReplaced(); err != nil {
		return nil, errors.Join(err, etcd.Close())
	}
	etcd.watch()
	return etcd, nil
}

// run starts the member in a directory that is locked and returns when it serves. It
// owns the lock.
func (c Config) run(ctx context.Context, lock *fileutil.LockedFile) (*Etcd, error) {
	if err := c.checkDatabase(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	// An etcd that starts can't be told to stop.
	if err := context.Cause(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the embedded etcd in %s was not started: %w", c.Dir, err), lock.Close())
	}
	// An operator may have made the directory for more than one user, and a volume's group gets
	// permissions for everything in it. So etcd listens where no other user has access.
	// Upstream fault 70.
	if err := os.Chmod(c.path(dataDir), 0o700); err != nil { //nolint:gosec // G302: it is a directory.
		return nil, errors.Join(fmt.Errorf("closing the directory of the embedded etcd to others: %w", err), lock.Close())
	}
	logLevel := zap.NewAtomicLevelAt(zap.WarnLevel)
	disk := &atomic.Pointer[error]{}
	config := c.embedConfig(newLogger(logLevel, klog.Background()))
	config.GRPCAdditionalServerOptions = append(config.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(refuseWrites(disk)))
	var etcd *embed.Etcd
	err := survive(func() (err error) {
		etcd, err = embed.StartEtcd(config)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the embedded etcd in %s: %w; if its files are damaged, %s", c.Dir, err, restoreAdvice), lock.Close())
	}
	started := &Etcd{Etcd: etcd, config: c, lock: lock, logLevel: logLevel, disk: disk, stop: func() {}}
	if err := errors.Join(os.Chmod(c.path(listenFile), 0o600), os.Rename(c.path(listenFile), c.socket())); err != nil {
		return nil, errors.Join(fmt.Errorf("closing the socket of the embedded etcd to others: %w", err), started.abort())
	}
	select {
	case <-started.Server.ReadyNotify():
		return started, nil
	case err := <-started.Err():
		return nil, errors.Join(fmt.Errorf("starting the embedded etcd in %s: %w", c.Dir, err), started.abort())
	case <-ctx.Done():
		return nil, errors.Join(fmt.Errorf("the embedded etcd in %s did not become ready in time: %w", c.Dir, context.Cause(ctx)), started.abort())
	}
}

func (c Config) embedConfig(logger *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = c.path(dataDir)
	cfg.QuotaBackendBytes = c.QuotaBytes
	cfg.MaxRequestBytes = maxRequestBytes
	cfg.BootstrapDefragThresholdMegabytes = defragThreshold
	// There are no other voters to wait for.
	cfg.TickMs, cfg.ElectionMs = tickMilliseconds, electionMilliseconds
	cfg.SnapshotCatchUpEntries, cfg.SnapshotCount = catchUpEntries, snapshotCount

	peer, _ := url.Parse(memberURL)
	client := url.URL{Scheme: "unix", Path: c.path(listenFile)}
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{*peer}
	cfg.InitialCluster = c.member().InitialCluster
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.EnableGRPCGateway = false

	// The history that watches and paged lists need is compacted by the API
	// server (--etcd-compaction-interval). This is the safety net for when that
	// is turned off.
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = "1h"

	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg
}

// recoverSpace clears an alarm about space if there is space now, which etcd itself never does. The
// quota may be higher, or objects may have been deleted. Their space is free only after their
// history is compacted. The API server can't compact while it may not write, and no client watches
// yet that could miss the history.
// Upstream fault 71.
func (e *Etcd) recoverSpace(ctx context.Context, quota int64) error {
	for _, alarm := range e.Server.Alarms() {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		// A write that would have exceeded the quota has raised the alarm.
		if e.Server.Backend().Size()+maxRequestBytes >= quota {
			klog.InfoS("The database of the embedded etcd has reached its quota; compacting it")
			_, err := e.Server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: e.Server.KV().Rev(), Physical: true})
			if err != nil && !errors.Is(err, mvcc.ErrCompacted) {
				return fmt.Errorf("compacting the database of the embedded etcd: %w", err)
			}
			if err := e.Server.Backend().Defrag(); err != nil {
				return fmt.Errorf("defragmenting the database of the embedded etcd: %w", err)
			}
		}
		if e.Server.Backend().Size() >= quota {
			continue
		}
		if _, err := e.Server.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm}); err != nil {
			return fmt.Errorf("clearing the space alarm of the embedded etcd: %w", err)
		}
	}
	return nil
}

// watch looks after the directory until the member is closed.
func (e *Etcd) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { e.watchDirectory(ctx) })
	e.stop = func() {
		cancel()
		watching.Wait()
	}
}

// CheckAlarms returns an error while etcd accepts no writes. The cause is an alarm, a nearly full
// disk, or a lost directory.
func (e *Etcd) CheckAlarms() error {
	if problem := e.disk.Load(); problem != nil {
		return *problem
	}
	for _, alarm := range e.Server.Alarms() {
		switch alarm.Alarm {
		case etcdserverpb.AlarmType_NOSPACE:
			return errors.New("the database of the embedded etcd has reached its quota: delete objects and restart the server, which gives their space free, or restart it with a higher --etcd-quota-backend-bytes")
		case etcdserverpb.AlarmType_CORRUPT:
			return errors.New("the database of the embedded etcd is corrupt: restore a backup into a new --data-dir")
		}
	}
	return nil
}

// Close stops the member and releases the directory.
func (e *Etcd) Close() error {
	// etcd logs its own shutdown as errors.
	e.logLevel.SetLevel(zap.DPanicLevel)
	e.stop()
	e.Etcd.Close()
	// Etcd removes the socket where it was made.
	return errors.Join(os.RemoveAll(e.config.socket()), e.lock.Close())
}

// abort stops a member that does not serve yet. Close alone would wait until it serves.
// Upstream fault 74.
func (e *Etcd) abort() error {
	e.logLevel.SetLevel(zap.DPanicLevel)
	e.Server.HardStop()
	return e.Close()
}
