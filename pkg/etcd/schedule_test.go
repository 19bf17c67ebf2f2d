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
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestScheduleOfSnapshots(t *testing.T) {
	config := Config{Dir: t.TempDir(), QuotaBytes: testQuota, Snapshots: SnapshotSchedule{
		Spec: "@every 1s",
		Dir:  SnapshotDirectory(t.TempDir()),
		Keep: 2,
	}}
	started, err := config.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = started.Close() }()
	// One that was killed the day before, and one that is being saved.
	killed, other := config.Snapshots.Dir.File(time.Now())+".1.part", config.Snapshots.Dir.File(time.Now())+".2.part"
	for _, part := range []string{killed, other} {
		if err := os.WriteFile(part, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yesterday := time.Now().Add(-partAge - time.Minute)
	if err := os.Chtimes(killed, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	saved := 0
	if err := config.SaveSnapshots(ctx, func(time.Time) {
		if saved++; saved == 3 {
			cancel()
		}
	}); err != nil || saved != 3 {
		t.Errorf("saved %d with the error %v, want 3", saved, err)
	}
	files, err := config.Snapshots.Dir.Files()
	if err != nil || len(files) != 2 {
		t.Fatalf("%v are kept (%v), want 2", files, err)
	}
	for _, file := range files {
		if _, err := ReadFile(file, noProgress); err != nil {
			t.Error(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(string(config.Snapshots.Dir), "*.part"))
	if err != nil || !slices.Equal(parts, []string{other}) {
		t.Errorf("%v are left (%v), want %s", parts, err, other)
	}
}

func TestNoTimeForSnapshots(t *testing.T) {
	config := Config{Snapshots: SnapshotSchedule{Spec: "0 0 30 2 *"}}
	err := config.SaveSnapshots(t.Context(), nil)
	if want := `the time of --snapshot-schedule, "0 0 30 2 *", never comes`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestValidateSnapshotSchedule(t *testing.T) {
	dir := SnapshotDirectory(t.TempDir())
	const (
		must = `--snapshot-schedule must be like "17 3 * * *", for every night at 3:17, or "@every 6h": `
		zone = "it has a time zone: set that of the process by the environment variable TZ"
	)
	for name, test := range map[string]struct {
		schedule SnapshotSchedule
		want     []string
	}{
		"none":        {SnapshotSchedule{Keep: DefaultSnapshotsKept}, nil},
		"every night": {SnapshotSchedule{"17 3 * * *", dir, 14}, nil},
		"no schedule": {SnapshotSchedule{Dir: dir}, []string{"--snapshot-dir is for --snapshot-schedule: set that, too"}},
		"no time, no directory, and less than none": {SnapshotSchedule{"at night", "missing", -1}, []string{
			`--snapshot-schedule must be like "17 3 * * *", for every night at 3:17, or "@every 6h": expected exactly 5 fields, found 2: [at night]`,
			`--snapshot-dir must name a directory that exists, for --snapshot-schedule, and not "missing"`,
			"--snapshot-keep must not be below 0, but is -1",
		}},
		"a time zone":          {SnapshotSchedule{"CRON_TZ=UTC 17 3 * * *", dir, 14}, []string{must + zone}},
		"nothing but a zone":   {SnapshotSchedule{"CRON_TZ=UTC", dir, 14}, []string{must + zone}},
		"nothing but TZ":       {SnapshotSchedule{"TZ=", dir, 14}, []string{must + zone}},
		"all the time":         {SnapshotSchedule{"@every 1ns", dir, 14}, []string{must + "snapshots can't be saved every 1ns"}},
		"more often than that": {SnapshotSchedule{"@every -1h", dir, 14}, []string{must + "snapshots can't be saved every -1h0m0s"}},
		"every second":         {SnapshotSchedule{"@every 1s", dir, 14}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range test.schedule.Validate() {
				got = append(got, err.Error())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
