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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockFile marks the directory of a control plane, and is locked while one runs.
const lockFile = "controlplane.lock"

// directory is a control plane's directory, which this process has claimed.
type directory struct {
	path string
	lock *os.File
}

// claimDirectory claims the directory for this process, and creates it if
// necessary. It refuses the directory of a running control plane, and one with
// foreign files.
func claimDirectory(path string) (*directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, unusable(path, err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, unusable(path, err)
	}
	ours := len(entries) == 0
	for _, entry := range entries {
		ours = ours || entry.Name() == lockFile
	}
	if !ours {
		return nil, fmt.Errorf("the directory %s holds %q and other files, but not those of a control plane: name a new or empty directory",
			path, entries[0].Name())
	}
	lock, holder, err := takeLock(filepath.Join(path, lockFile))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("a control plane already runs on the directory %s: "+
			"end it with Ctrl-C in its terminal or \"kill %d\", or name another directory", path, holder)
	}
	if err != nil {
		return nil, unusable(path, err)
	}
	if err := writePID(lock, os.Getpid()); err != nil {
		return nil, errors.Join(unusable(path, err), lock.Close())
	}
	return &directory{path: path, lock: lock}, nil
}

func unusable(path string, err error) error {
	return fmt.Errorf("the directory %s cannot be used: %w; make it a directory that user %d can read and write, or name another one",
		path, err, os.Geteuid())
}

// release lets other processes claim the directory. It can be called again.
func (f *directory) release() error {
	if err := f.lock.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// RemoveDirectory deletes a control plane's directory with all its data. It refuses
// other directories, and the directory of a running control plane.
func RemoveDirectory(path string) error {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f, err := claimDirectory(path)
	if err != nil {
		return err
	}
	// The lock file goes last, so that a directory that is deleted in part is still
	// recognized.
	defer func() { _ = f.release() }()
	if _, err := f.endLeftovers(); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == lockFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.path, entry.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(f.path)
}

// endLeftovers ends the components of an earlier run on this directory that was
// killed, and returns their names.
func (f *directory) endLeftovers() ([]string, error) {
	var ended []string
	locks, err := filepath.Glob(f.processLock("*"))
	if err != nil {
		return nil, err
	}
	for _, path := range locks {
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		pid, err := endLeftover(path, stopTimeout)
		if err != nil {
			return ended, fmt.Errorf("%s of an earlier run on %s is still there: %w", name, f.path, err)
		}
		if pid != 0 {
			ended = append(ended, fmt.Sprintf("%s (process %d)", name, pid))
		}
	}
	return ended, nil
}

// processLock returns the file that a component's process keeps locked.
func (f *directory) processLock(component string) string {
	return filepath.Join(f.path, "run", component+".lock")
}

// endLeftover ends the process that holds the lock, if there is one, and returns
// its id. It uses force after patience. The held lock proves that the system has
// not given the id in the file to another process.
func endLeftover(path string, patience time.Duration) (int, error) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		lock, pid, err := takeLock(path)
		if err == nil {
			return 0, lock.Close()
		}
		if !errors.Is(err, errLocked) {
			return 0, err
		}
		if pid <= 1 {
			return 0, fmt.Errorf("it holds the lock %s, which does not say its process id: find it with \"fuser %s\" and end it", path, path)
		}
		if err := syscall.Kill(-pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, fmt.Errorf("cannot end process %d: %w", pid, err)
		}
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(pollInterval) {
			lock, _, err := takeLock(path)
			if err == nil {
				return pid, lock.Close()
			}
			if !errors.Is(err, errLocked) {
				return 0, err
			}
		}
	}
	return 0, fmt.Errorf("it does not end; end the process that holds %s by hand", path)
}

var errLocked = errors.New("locked by another process")

// takeLock locks a file until every process that has it open closes it. If another
// process holds the lock, the error is errLocked and the number is that process's
// id, or 0 if it is unknown.
func takeLock(path string) (*os.File, int, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, 0, nil
	}
	defer file.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, 0, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, 0, err
	}
	// An unreadable id is 0, which callers take as "unknown".
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return nil, pid, errLocked
}

// writePID writes the id of the lock's holder into the lock file.
func writePID(lock *os.File, pid int) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strconv.Itoa(pid)+"\n"), 0)
	return err
}
