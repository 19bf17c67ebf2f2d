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

package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/v3"
)

// reportInterval is how often the progress of reading many objects is reported.
const reportInterval = time.Second

// Progress says how far a migration is.
type Progress struct {
	// Message is a sentence without a full stop, or the name of a phase that begins.
	Message string `json:"message"`
	// Objects of Total have been read, and copied if they differed, in the present pass. Bytes is
	// their size. All three are zero if the message is not about objects.
	Objects int   `json:"objects,omitempty"`
	Total   int   `json:"total,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// SecondsLeft is how long the present pass is expected to last.
	SecondsLeft *int `json:"secondsLeft,omitempty"`
}

// progress reports a sentence.
func (m *Migration) progress(format string, args ...any) {
	m.config.Report(Progress{Message: fmt.Sprintf(format, args...)})
}

// meter measures a pass over all objects.
type meter struct {
	Progress
	report   func(Progress)
	now      func() time.Time
	started  time.Time
	reported time.Time
}

func newMeter(total int, report func(Progress), now func() time.Time) *meter {
	started := now()
	return &meter{Progress: Progress{Total: total}, report: report, now: now, started: started, reported: started}
}

// add counts an object. There may be more than there were at first.
func (m *meter) add(size int) {
	if m == nil {
		return
	}
	m.Objects++
	m.Bytes += int64(size)
	m.Total = max(m.Total, m.Objects)
	now := m.now()
	if now.Sub(m.reported) < reportInterval {
		return
	}
	m.reported = now
	left := int((now.Sub(m.started) * time.Duration(m.Total-m.Objects) / time.Duration(m.Objects)).Round(time.Second) / time.Second)
	m.SecondsLeft = &left
	m.Message = fmt.Sprintf("%d of %d objects, %.1f MB, %d s left", m.Objects, m.Total, float64(m.Bytes)/1e6, left)
	m.report(m.Progress)
}

// beginPass begins to measure a pass over all objects.
func (s *session) beginPass(ctx context.Context, moves []move) error {
	total := 0
	for _, move := range moves {
		_, count, err := s.revisionNow(ctx, move.from)
		if err != nil {
			return err
		}
		total += max(count, 0)
	}
	s.meter = newMeter(total, func(progress Progress) {
		s.config.Report(progress)
		s.saveProgress(ctx, progress)
	}, time.Now)
	return nil
}

// progressKey returns the key of the present pass's progress, which other processes read.
func (m *Migration) progressKey() string { return m.config.StateKey + ".progress" }

// saveProgress tells other processes how far this one is. It ignores errors: either the next report
// succeeds, or the next step fails for the same reason.
func (s *session) saveProgress(ctx context.Context, progress Progress) {
	if content, err := json.Marshal(progress); err == nil {
		_, _ = s.write(ctx, clientv3.OpPut(s.progressKey(), string(content)))
	}
}

// readProgress returns the progress that was saved after the state, or nil.
func (m *Migration) readProgress(ctx context.Context, revision int64) (*Progress, error) {
	response, err := m.config.Etcd.Get(ctx, m.progressKey())
	if err != nil {
		return nil, fmt.Errorf("reading the migration's progress from the server's etcd: %w", err)
	}
	if len(response.Kvs) == 0 || response.Kvs[0].ModRevision < revision {
		return nil, nil
	}
	progress := &Progress{}
	if err := json.Unmarshal(response.Kvs[0].Value, progress); err != nil {
		return nil, fmt.Errorf("the migration's progress, the key %s in the server's etcd, can't be read: %w", m.progressKey(), err)
	}
	return progress, nil
}

// forget deletes the state of a migration that has ended.
func (s *session) forget(ctx context.Context) error {
	response, err := s.write(ctx, clientv3.OpDelete(s.config.StateKey), clientv3.OpDelete(s.progressKey()))
	if errors.Is(err, errSuperseded) && stateIn(response) == nil {
		return nil // This process has deleted it, if an answer was lost.
	}
	return err
}
