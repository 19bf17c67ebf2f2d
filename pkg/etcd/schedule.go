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
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/klog/v2"
)

// DefaultSnapshotsKept are two weeks of one each night.
const DefaultSnapshotsKept = 14

// SnapshotSchedule says when a server saves snapshots of its own etcd.
type SnapshotSchedule struct {
	// Spec is an expression as of cron(5), in the time zone of the process, or "@every" and
	// a duration. If it is empty, no snapshots are saved.
	Spec string
	// Dir is a directory that exists.
	Dir SnapshotDirectory
	// Keep is how many snapshots there are at most; 0 keeps all.
	Keep int
}

// Validate returns all errors of the schedule.
func (s SnapshotSchedule) Validate() (errs []error) {
	if s.Spec == "" {
		if s.Dir != "" {
			errs = append(errs, errors.New("--snapshot-dir is for --snapshot-schedule: set that, too"))
		}
		return errs
	}
	if _, err := s.parse(); err != nil {
		errs = append(errs, fmt.Errorf(`--snapshot-schedule must be like "17 3 * * *", for every night at 3:17, or "@every 6h": %w`, err))
	}
	if info, err := os.Stat(string(s.Dir)); err != nil || !info.IsDir() {
		errs = append(errs, fmt.Errorf("--snapshot-dir must name a directory that exists, for --snapshot-schedule, and not %q", s.Dir))
	}
	if s.Keep < 0 {
		errs = append(errs, fmt.Errorf("--snapshot-keep must not be below 0, but is %d", s.Keep))
	}
	return errs
}

// parse refuses a time zone, as Kubernetes does for CronJobs. The parser ends the process if
// nothing follows it.
func (s SnapshotSchedule) parse() (cron.Schedule, error) {
	if strings.Contains(s.Spec, "TZ") {
		return nil, errors.New("it has a time zone: set that of the process by the environment variable TZ")
	}
	if every, found := strings.CutPrefix(s.Spec, "@every "); found {
		// The parser takes a part of a second for a second.
		if interval, err := time.ParseDuration(every); err == nil && interval < time.Second {
			return nil, fmt.Errorf("snapshots can't be saved every %s", interval)
		}
	}
	return cron.ParseStandard(s.Spec)
}

// SaveSnapshots saves the snapshots of the schedule until the context ends, and calls saved
// after each. Failures are logged.
func (c Config) SaveSnapshots(ctx context.Context, saved func(time.Time)) error {
	schedule, err := c.Snapshots.parse()
	if err != nil {
		return err
	}
	for {
		// Zero, if there is no such day: February 30th.
		next := schedule.Next(time.Now())
		if next.IsZero() {
			return fmt.Errorf("the time of --snapshot-schedule, %q, never comes", c.Snapshots.Spec)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(next)):
		}
		if err := c.saveSnapshot(ctx, saved); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Saving a snapshot failed; the next attempt is at the next time of --snapshot-schedule", "dir", c.Snapshots.Dir)
		}
	}
}

func (c Config) saveSnapshot(ctx context.Context, saved func(time.Time)) error {
	file := c.Snapshots.Dir.File(time.Now())
	snapshot, err := c.SaveFile(ctx, file, func(int64, int64) {})
	if err != nil {
		return err
	}
	klog.InfoS("Saved a snapshot", "file", file, "revision", snapshot.Revision, "size", snapshot.Size)
	// There is one now, even if older ones can't be deleted.
	saved(time.Now())
	if c.Snapshots.Keep > 0 {
		return c.Snapshots.Dir.Prune(c.Snapshots.Keep)
	}
	return nil
}
