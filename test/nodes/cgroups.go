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

package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// cgroupRoot is the parent of the cgroups of all nodes.
const cgroupRoot = "restaurant-nodes"

// hierarchies returns the directories that contain cgroups. There is one for each controller in
// version 1, and one for all in version 2.
func hierarchies() ([]string, error) {
	const mount = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return []string{mount}, nil
	}
	files, err := filepath.Glob(filepath.Join(mount, "*", "cgroup.procs"))
	if len(files) == 0 && err == nil {
		err = fmt.Errorf("there are no cgroups in %s", mount)
	}
	dirs := make([]string, len(files))
	for i, file := range files {
		dirs[i] = filepath.Dir(file)
	}
	return dirs, err
}

// makeCgroup makes the root cgroup of a node's kubelet, and returns its name.
func makeCgroup(node string) (string, error) {
	dirs, err := hierarchies()
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		for _, name := range []string{cgroupRoot, filepath.Join(cgroupRoot, node)} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(path, 0o755); err != nil {
				return "", err
			}
			if err := inherit(path, "cpuset.cpus", "cpuset.mems"); err != nil {
				return "", err
			}
		}
	}
	return "/" + filepath.Join(cgroupRoot, node), nil
}

// inherit copies settings of the parent cgroup. Without them, version 1 admits no process.
func inherit(path string, settings ...string) error {
	for _, setting := range settings {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(path), setting))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(path, setting), value, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes the cgroups of all nodes, even if a killed test has left them. It fails while there
// are processes in them.
func removeCgroups() error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		var found []string
		err := filepath.WalkDir(filepath.Join(dir, cgroupRoot), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				found = append(found, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, path := range slices.Backward(found) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
