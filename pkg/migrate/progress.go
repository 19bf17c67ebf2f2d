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
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reportInterval is how often the progress of reading many objects is reported.
const reportInterval = time.Second

// Progress says how far a migration is.
type Progress struct {
	// Message is a sentence without a full stop: the name of a phase when that begins.
	Message string `json:"message"`
	// Objects of Total have been read and, if they differed, copied since the present pass
	// began. Bytes is the size of these. They are zero for what is not about objects.
	Objects int   `json:"objects,omitempty"`
	Total   int   `json:"total,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// SecondsLeft is how long the present pass is expected to last.
	SecondsLeft *int `json:"secondsLeft,omitempty"`
}

// progress reports a sentence.
func (m *Migration) progress(format string, args ...any) {
	m.Report(Progress{Message: fmt.Sprintf(format, args...)})
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
func (m *Migration) beginPass(ctx context.Context, moves []move) error {
	total := 0
	for _, move := range moves {
		list, err := m.dynamic.Resource(move.from).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return fmt.Errorf("counting the %s: %w", move.GroupResource, err)
		}
		total += len(list.Items)
		if more := list.GetRemainingItemCount(); more != nil {
			total += int(*more)
		}
	}
	m.meter = newMeter(total, m.Report, time.Now)
	return nil
}
