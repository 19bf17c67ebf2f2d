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

package kit_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

const sums = "hack/kit.sum"

// wroteEarlier makes a file what an earlier version has written.
func wroteEarlier(t *testing.T, dir, name, text string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(read(t, dir, sums)) {
		if strings.HasSuffix(line, "  "+name+"\n") {
			line = fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), name)
		}
		lines = append(lines, line)
	}
	write(t, dir, sums, strings.Join(lines, ""))
	write(t, dir, name, text)
}

// TestRefreshFiles has a module of an earlier version.
func TestRefreshFiles(t *testing.T) {
	dir := newModule(t)
	for _, file := range []string{"cmd/apiserver/main.go", "pkg/apis/bakery/register.go", "artifacts/deploy/base/namespace.yaml", "artifacts/deploy/base/kustomization.yaml"} {
		require.NoError(t, os.Remove(filepath.Join(dir, file)))
	}
	write(t, dir, "artifacts/deploy/base/namespace.yaml", "kind: Namespace\nmetadata:\n  name: ovens\n")
	first, err := kit.RefreshFiles(t.Context(), dir)
	require.NoError(t, err)
	require.Contains(t, first.Files, kit.File{Change: kit.Created, Path: sums})
	const unchanged, changed, both, deleted, unknown = "Dockerfile", ".golangci.yaml", "Makefile", ".dockerignore", ".gitignore"
	now := map[string]string{}
	for _, file := range []string{unchanged, changed, both, unknown} {
		now[file] = read(t, dir, file)
	}

	wroteEarlier(t, dir, unchanged, "FROM scratch\n")
	write(t, dir, changed, now[changed]+"# mine\n")
	wroteEarlier(t, dir, both, "all:\n")
	write(t, dir, both, "all: mine\n")
	require.NoError(t, os.Remove(filepath.Join(dir, deleted)))
	lines := strings.SplitAfter(read(t, dir, sums), "\n")
	write(t, dir, sums, strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.HasSuffix(line, "  "+unknown+"\n") }), ""))
	require.NoError(t, os.Remove(filepath.Join(dir, unknown)))

	result, err := kit.RefreshFiles(t.Context(), dir)
	require.NoError(t, err)
	require.ElementsMatch(t, []kit.File{
		{Change: kit.Changed, Path: unchanged},
		{Change: kit.Left, Path: both},
		{Change: kit.Created, Path: unknown},
		{Change: kit.Changed, Path: sums},
	}, result.Files)
	require.Equal(t, []string{"Compare Makefile, which you have changed, with what this version writes: kit init in an empty directory"}, result.Todo)
	require.Equal(t, now[unchanged], read(t, dir, unchanged))
	require.Equal(t, now[changed]+"# mine\n", read(t, dir, changed))
	require.Equal(t, "all: mine\n", read(t, dir, both))
	require.NoFileExists(t, filepath.Join(dir, deleted))

	again, err := kit.RefreshFiles(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, again.Files)
	require.Empty(t, again.Todo)
}

// With a checkout of the library in its place, or for the version in go.mod, nothing changes.
func TestUpgradeToNothingElse(t *testing.T) {
	dir := newModule(t)
	for name, test := range map[string]struct{ goMod, version string }{
		"of a checkout": {"module example.com/bakery\n\nreplace restaurant.programming-kubernetes.info/apiserver => ../apiserver\n", "latest"},
		"current":       {"module example.com/bakery\n", "current"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, dir, "go.mod", test.goMod)
			done, err := kit.UpgradeTo(t.Context(), dir, test.version, true, io.Discard, io.Discard)
			require.NoError(t, err)
			require.False(t, done)
			require.Equal(t, test.goMod, read(t, dir, "go.mod"))
		})
	}
}
