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

package doctor

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		results []Result
		want    string
	}{
		"two": {
			[]Result{
				{"", "short", Finding{Status: OK, Cause: "all is well"}},
				{"", "of some length", Finding{Status: Failure, Cause: "two lines\n\tof another", Since: "2026-11-26T15:04:05Z", Fix: "fix it", Command: "kubectl get x"}},
			},
			"ok       short           all is well\n" +
				"failure  of some length  two lines of another (since 2026-11-26T15:04:05Z)\n" +
				"         fix: fix it\n" +
				"           kubectl get x\n",
		},
		"two servers": {
			[]Result{{"Service a/b: v1.c", "x", Finding{Status: OK, Cause: "fine"}}, {"Service a/d: v1.e", "x", Finding{Status: OK, Cause: "fine"}}},
			"\nService a/b: v1.c\nok       x  fine\n\nService a/d: v1.e\nok       x  fine\n",
		},
		// A server can't clear the screen, write to the clipboard, or hide a part of a line.
		"what controls a terminal": {
			[]Result{{"s\x1b[2J", "x\x07", Finding{Status: Failure, Cause: "a\x1b[2J\u009b1m\u202eb\x7f", Fix: "c\x1b]52;c;eA==\x07", Command: "kubectl get \x1b[32m\nrm"}}},
			"\ns\\x1b[2J\nfailure  x\\a  a\\x1b[2J\\u009b1m\\u202eb\\x7f\n         fix: c\\x1b]52;c;eA==\\a\n           kubectl get \\x1b[32m\\nrm\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			require.NoError(t, Print(&out, test.results))
			require.Equal(t, test.want, out.String())
		})
	}
	require.Equal(t, "1 failure, 0 warnings, 2 skipped, 1 ok", Summary([]Result{
		{Finding: Finding{Status: OK}}, {Finding: Finding{Status: Skipped}}, {Finding: Finding{Status: Failure}}, {Finding: Finding{Status: Skipped}},
	}))
}

// A shell takes each argument for what it is.
func TestKubectl(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		argument, want string
	}{
		{"v1.example.com", "kubectl v1.example.com"},
		{`--patch={"spec":{"a":1}}`, `kubectl --patch='{"spec":{"a":1}}'`},
		{"x'; touch /tmp/x; echo '", `kubectl 'x'\''; touch /tmp/x; echo '\'''`},
		{"NO_PROXY=localhost;touch 2;echo ,10.96.0.1", "kubectl 'NO_PROXY=localhost;touch 2;echo ,10.96.0.1'"},
		{"--raw=$(touch x)`touch y`", "kubectl --raw='$(touch x)`touch y`'"},
		{"a b=~/*", "kubectl 'a b=~/*'"},
		{"", "kubectl ''"},
		{"two\nlines", ""},
		{"\x1b[2J", ""},
	} {
		got := kubectl(test.argument)
		require.Equal(t, test.want, got)
		if got == "" {
			continue
		}
		output, err := exec.CommandContext(t.Context(), "sh", "-c", `kubectl() { printf %s "$1"; }; `+got).CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Equal(t, test.argument, string(output))
	}
}
