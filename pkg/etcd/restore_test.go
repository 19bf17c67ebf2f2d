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
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// entries returns the entries of a directory's parent.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	return files(t, filepath.Dir(dir))
}

// TestRestoreOnce restores over a directory that a server has used, over none, and over the
// remains of a killed restore.
func TestRestoreOnce(t *testing.T) {
	const revision = int64(1_700_000_000_000_000)
	path, want := saved(t)
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		kept    []string
	}{
		"a used directory": {func(t *testing.T, dir string) { closed(t, start(t, Config{Dir: dir, QuotaBytes: testQuota})) }, []string{dataDir, lockFile}},
		"no directory":     {func(*testing.T, string) {}, nil},
		"killed before the old directory was put aside": {func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(dir, "old"))
			mkdir(t, filepath.Join(dir+".restored", "rest"))
		}, []string{lockFile, "old"}},
		"killed before the new directory was in place": {func(t *testing.T, dir string) {
			mkdir(t, filepath.Join(fmt.Sprintf("%s.before-%d", dir, revision), "old"))
			mkdir(t, filepath.Join(dir+".restored", "rest"))
		}, []string{"old"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: testQuota}
			test.prepare(t, config.Dir)
			for again := range 2 {
				file, err := os.Open(path)
				require.NoError(t, err)
				_, restored, err := config.RestoreOnce(revision, file, 0, noProgress)
				if err != nil || restored != (again == 0) {
					require.Failf(t, "unexpected", "got %t, %v", restored, err)
				}
				etcd := start(t, config)
				client := newClient(t, config)
				if again == 0 {
					assert.Equal(t, want, content(t, client))
				}
				response, err := client.Put(t.Context(), "key-0", "later")
				require.NoError(t, err)
				assert.Equal(t, revision+1+int64(again), response.Header.Revision)
				closed(t, etcd)
			}
			kept := fmt.Sprintf("data.before-%d", revision)
			assert.Equal(t, []string{"data", kept}, entries(t, config.Dir))
			assert.Equal(t, test.kept, files(t, filepath.Join(filepath.Dir(config.Dir), kept)))
		})
	}
}

// TestRestoreOnceRefuses leaves everything as it is.
func TestRestoreOnceRefuses(t *testing.T) {
	path, _ := saved(t)
	snapshot, err := ReadFile(path, noProgress, nil)
	require.NoError(t, err)
	config := Config{Dir: filepath.Join(t.TempDir(), "data"), QuotaBytes: testQuota}
	cluster := "a=https://a.example.com:2380,b=https://b.example.com:2380"
	early := fmt.Sprintf("the revision %[1]d is not later than that of the snapshot, %[1]d: use the number of microseconds since 1970", snapshot.Revision)
	running := start(t, config)
	for name, test := range map[string]struct {
		restore func(*os.File) error
		want    string
	}{
		"the directory of a running server": {func(file *os.File) error {
			_, _, err := config.RestoreOnce(snapshot.Revision+1, file, 0, noProgress)
			return err
		}, "the data directory " + config.Dir + " is in use by a server: stop it first"},
		"an early revision": {func(file *os.File) error {
			_, _, err := Member{Dir: config.Dir + "/../a", Name: "a", InitialCluster: cluster}.RestoreOnce(snapshot.Revision, file, 0, noProgress)
			return err
		}, early},
		"a member of another cluster": {func(file *os.File) error {
			_, _, err := Member{Dir: config.Dir + "/../a", Name: "c", InitialCluster: cluster}.RestoreOnce(snapshot.Revision+1, file, 0, noProgress)
			return err
		}, `restoring the snapshot for the member c: the initial cluster "` + cluster + `" has no member "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Open(path)
			require.NoError(t, err)
			defer file.Close()
			require.EqualError(t, test.restore(file), test.want)
			assert.Equal(t, []string{"data"}, entries(t, config.Dir))
		})
	}
	closed(t, running)
}
