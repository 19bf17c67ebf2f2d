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
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithRow(t *testing.T) {
	t.Parallel()
	table := func(rows string) string {
		return "# Text\n\n| Kubernetes | api |\n|---|---|\n" + rows + "\nMore text.\n"
	}
	for name, test := range map[string]struct{ before, row, after string }{
		"the first":         {"", "| v1.35.4 | ok |", "| v1.35.4 | ok |\n"},
		"before another":    {"| v1.35.4 | ok |\n", "| v1.34.4 | ok |", "| v1.34.4 | ok |\n| v1.35.4 | ok |\n"},
		"after another":     {"| v1.35.4 | ok |\n", "| v1.36.3 | ok |", "| v1.35.4 | ok |\n| v1.36.3 | ok |\n"},
		"of the same minor": {"| v1.34.4 | ok |\n| v1.35.4 | ok |\n", "| v1.34.5 | bad |", "| v1.34.5 | bad |\n| v1.35.4 | ok |\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := withRow(table(test.before), test.row)
			require.NoError(t, err)
			require.Equal(t, table(test.after), got)
		})
	}
	_, err := withRow("# Text\n", "| v1.34.4 | ok |")
	require.EqualError(t, err, `there is no table whose head begins with "| Kubernetes |"`)
	content, err := os.ReadFile(filepath.Join("..", "..", document))
	require.NoError(t, err)
	_, err = withRow(string(content), "| v1.34.4 | ok |")
	require.NoError(t, err)
}

func TestReadResults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"Action":"output","Package":"p/api","Output":"some text"}
{"Action":"pass","Package":"p/api","Test":"TestA/a"}
{"Action":"pass","Package":"p/api","Test":"TestA"}
{"Action":"pass","Package":"p/api"}
{"Action":"pass","Package":"p/admission","Test":"TestA"}
{"Action":"skip","Package":"p/admission","Test":"TestB"}
{"Action":"pass","Package":"p/admission"}
{"Action":"pass","Package":"p/doctor","Test":"TestA"}
{"Action":"fail","Package":"p/doctor"}
`), 0o600))
	results, err := readResults(file)
	require.NoError(t, err)
	for name, want := range map[string]string{"api": "2 passed", "admission": "1 passed, 1 skipped", "doctor": "1 of 2 failed", "other": "not run"} {
		require.Equal(t, want, results[name].String(), name)
	}
}
