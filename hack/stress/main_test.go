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

package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		command string
		printed []string
		err     string
	}{
		"all rounds pass": {
			command: "echo x >>$0",
			printed: []string{"==> round 1 of 3: ok after ", "==> round 2 of 3: ok after ", "==> round 3 of 3: ok after "},
		},
		"one round fails, and those after it run": {
			command: "echo x >>$0; test $(wc -l <$0) != 2",
			printed: []string{"==> round 1 of 3: ok after ", "==> round 2 of 3: FAILED: exit status 1 after ", "==> round 3 of 3: ok after "},
			err:     "1 of 3 rounds failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), &out, 3, 2, []string{"sh", "-c", test.command, filepath.Join(t.TempDir(), "rounds")})
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			require.Len(t, lines, len(test.printed))
			for i, prefix := range test.printed {
				require.Contains(t, lines[i], prefix)
			}
		})
	}
}

func TestRunIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	reader := strings.Builder{}
	interrupt()
	require.EqualError(t, run(ctx, &reader, 3, 1, []string{"sleep", "1000"}), "round 1 was interrupted; of those before, 0 failed")
}

func TestRunNeedsACommand(t *testing.T) {
	require.Error(t, run(t.Context(), &strings.Builder{}, 1, 1, nil))
}
