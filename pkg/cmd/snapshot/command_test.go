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
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	const mebibyte = 1 << 20
	for name, test := range map[string]struct {
		progress progress
		total    int64
		want     string
	}{
		"of a long task on a terminal": {progress{terminal: true}, 4 * mebibyte,
			"\rSaving: 0.0 MiB of 4.0 MiB (0 %)\x1b[K\rSaving: 1.0 MiB of 4.0 MiB (25 %)\x1b[K\rSaving: 4.0 MiB of 4.0 MiB (100 %)\x1b[K\n"},
		"of a short task on a terminal": {progress{terminal: true, interval: time.Hour}, 4 * mebibyte,
			"\rSaving: 0.0 MiB of 4.0 MiB (0 %)\x1b[K\rSaving: 4.0 MiB of 4.0 MiB (100 %)\x1b[K\n"},
		"of a long task in a log": {progress{}, 4 * mebibyte,
			"Saving: 0.0 MiB of 4.0 MiB (0 %)\nSaving: 1.0 MiB of 4.0 MiB (25 %)\nSaving: 4.0 MiB of 4.0 MiB (100 %)\n"},
		"of a short task in a log": {progress{interval: time.Hour}, 4 * mebibyte,
			"Saving: 0.0 MiB of 4.0 MiB (0 %)\nSaving: 4.0 MiB of 4.0 MiB (100 %)\n"},
		"of a task of unknown size": {progress{}, 0,
			"Saving: 0.0 MiB\nSaving: 1.0 MiB\nSaving: 4.0 MiB\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			progress := test.progress
			progress.out, progress.doing = &out, "Saving"
			for _, done := range []int64{0, mebibyte, 4 * mebibyte} {
				progress.tell(done, test.total)
			}
			progress.end()
			if out.String() != test.want {
				t.Errorf("got %q, want %q", out.String(), test.want)
			}
		})
	}
	t.Run("of nothing", func(t *testing.T) {
		var out strings.Builder
		newProgress(&out, "Saving").end()
		if out.String() != "" {
			t.Errorf("got %q, want nothing", out.String())
		}
	})
}
