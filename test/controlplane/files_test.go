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

package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteFileReplacesAsAWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, writeFile(path, []byte("a longer first content"), 0o644))
	require.NoError(t, writeFile(path, []byte("second"), 0o600))

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "second", string(data))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	// A failed write leaves nothing behind.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	require.Error(t, writeFile(filepath.Join(dir, "directory"), nil, 0o600))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for name, test := range map[string]struct {
		content, want string
	}{
		"empty":               {"", ""},
		"fewer lines":         {"a\nb\n", "a\nb"},
		"as many lines":       {"a\nb\nc\n", "a\nb\nc"},
		"more lines":          {"a\nb\nc\nd\n", "b\nc\nd"},
		"unfinished line":     {"a\nb\nc\nd", "b\nc\nd"},
		"longer than is read": {strings.Repeat("x\n", 1<<20) + "y\n", "x\nx\ny"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
			require.Equal(t, test.want, tail(path, 3))
		})
	}
	require.Contains(t, tail(path+".missing", 3), "no such file")
}
