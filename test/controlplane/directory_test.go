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
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClaimedDirectoryIsRefusedToOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "directory")
	first, err := claimDirectory(dir)
	require.NoError(t, err)

	want := fmt.Sprintf("a control plane already runs on the directory %s: end it with Ctrl-C in its terminal or \"kill %d\", or name another directory",
		dir, os.Getpid())
	_, err = claimDirectory(dir)
	require.EqualError(t, err, want)
	require.EqualError(t, RemoveDirectory(dir), want)

	require.NoError(t, first.release())
	require.NoError(t, first.release())
	second, err := claimDirectory(dir)
	require.NoError(t, err)
	require.NoError(t, second.release())
}

func TestForeignDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	thesis := filepath.Join(dir, "thesis.tex")
	require.NoError(t, os.WriteFile(thesis, []byte("years of work"), 0o600))

	_, err := claimDirectory(dir)
	require.ErrorContains(t, err, `holds "thesis.tex" and other files, but not those of a control plane`)
	require.Error(t, RemoveDirectory(dir))
	require.FileExists(t, thesis)

	_, err = claimDirectory(thesis)
	require.ErrorContains(t, err, "not a directory")
	require.ErrorContains(t, err, "make it a directory that user")
}

func TestRemoveDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "directory")
	require.NoError(t, RemoveDirectory(dir), "a missing directory needs no removal")
	f, err := claimDirectory(dir)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "etcd", "data"), 0o700))
	require.NoError(t, f.release())
	require.NoError(t, RemoveDirectory(dir))
	require.NoDirExists(t, dir)
}

func TestLeftoverProcessIsEnded(t *testing.T) {
	for name, command := range map[string]string{
		"obedient": "echo ready; exec sleep 1000",
		"stubborn": "trap '' TERM; echo ready; while true; do sleep 1; done",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "etcd.lock")
			lock, _, err := takeLock(path)
			require.NoError(t, err)
			cmd := exec.Command("sh", "-c", command)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			leftover, err := startProcess(cmd, lock)
			require.NoError(t, err)
			defer leftover.kill()
			_, err = bufio.NewReader(stdout).ReadString('\n')
			require.NoError(t, err)
			require.NoError(t, writePID(lock, leftover.pid))
			require.NoError(t, lock.Close())

			pid, err := endLeftover(path, time.Second)
			require.NoError(t, err)
			require.Equal(t, leftover.pid, pid)
			<-leftover.done

			pid, err = endLeftover(path, time.Second)
			require.NoError(t, err)
			require.Zero(t, pid)
		})
	}
}

func TestStaleProcessIDIsNotKilled(t *testing.T) {
	f, err := claimDirectory(t.TempDir())
	require.NoError(t, err)
	defer f.release()
	require.NoError(t, os.MkdirAll(filepath.Dir(f.processLock("etcd")), 0o700))
	// The id in the file was given to another process: this one.
	require.NoError(t, os.WriteFile(f.processLock("etcd"), fmt.Appendln(nil, os.Getpid()), 0o600))
	ended, err := f.endLeftovers()
	require.NoError(t, err)
	require.Empty(t, ended)
}
