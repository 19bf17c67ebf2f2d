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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/klog/v2"
)

// Files of a data directory that name another one.
const (
	// replacesFile is in a restored directory until a server has served from it.
	replacesFile = "replaces"
	// replacedByFile is in a directory that has been replaced: a server has served from
	// another one.
	replacedByFile = "replaced-by"
)

// Replace notes in a restored directory that it takes the place of another one, which may
// not exist. Once a server has served from it, the other one is refused, since its objects
// are old.
func (c Config) Replace(old string) error {
	if old == c.Dir {
		return nil
	}
	return os.WriteFile(c.path(replacesFile), []byte(old+"\n"), 0o600)
}

// checkReplaced refuses a directory that has been replaced.
func (c Config) checkReplaced() error {
	current, err := readNote(c.path(replacedByFile))
	if current == "" || err != nil {
		return err
	}
	return fmt.Errorf("the data directory %s is out of use: a snapshot was restored into %s, and a server has served from that: name %s with --data-dir; to go back to the old objects, delete the file %s",
		c.Dir, current, current, c.path(replacedByFile))
}

// markReplaced marks the directory that this one replaces as out of use, unless a server
// runs on it: then this is a trial.
func (c Config) markReplaced() error {
	old, err := readNote(c.path(replacesFile))
	if old == "" || err != nil {
		return err
	}
	replaced := Config{Dir: old}
	if _, err := os.Stat(replaced.path(dataDir)); errors.Is(err, fs.ErrNotExist) {
		return os.Remove(c.path(replacesFile))
	}
	lock, err := replaced.tryLock()
	if err == nil {
		err = errors.Join(os.WriteFile(replaced.path(replacedByFile), []byte(c.Dir+"\n"), 0o600), lock.Close())
	}
	if err != nil {
		klog.InfoS("The data directory that this one replaces can't be marked as out of use; see to it that no server uses it", "dir", c.Dir, "replaced", old, "err", err)
	} else {
		klog.InfoS("The data directory that this one replaces is out of use; delete it when everything works", "dir", c.Dir, "replaced", old)
	}
	return os.Remove(c.path(replacesFile))
}

// readNote returns "" if there is no such file.
func readNote(path string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(content)), err
}
