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
		told  time.Time
		total int64
		want  string
	}{
		"of a task of known size":   {time.Time{}, 4 * mebibyte, "Saving: 0.0 MiB of 4.0 MiB (0 %)\nSaving: 4.0 MiB of 4.0 MiB (100 %)\n"},
		"of a task of unknown size": {time.Time{}, 0, "Saving: 0.0 MiB\nSaving: 4.0 MiB\n"},
		"of a short task":           {time.Now(), 0, "Saving: 4.0 MiB\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			progress := progress{out: &out, doing: "Saving", told: test.told}
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
