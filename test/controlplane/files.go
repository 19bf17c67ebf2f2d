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
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// moduleFile marks the root of a module.
const moduleFile = "go.mod"

// writeFile replaces a file as a whole. Readers find the old content or the new, never a
// part, even after a crash.
func writeFile(path string, data []byte, mode os.FileMode) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(mode)
	}
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	return err
}

// tail returns the last lines of a file, at most lines of them.
func tail(path string, lines int) string {
	const limit = 64 << 10
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(max(0, size-limit), io.SeekStart)
	}
	if err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	data = bytes.TrimRight(data, "\n")
	for i, left := len(data)-1, lines; i >= 0; i-- {
		if data[i] == '\n' {
			if left--; left == 0 {
				return string(data[i+1:])
			}
		}
	}
	return string(data)
}

// moduleRoot returns the directory of the working directory's module: the nearest one
// upwards with a go.mod. A test's working directory is its package's directory.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, moduleFile))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no %s in %s or above, so that the server and its manifests cannot be found: "+
				"run inside the server's module, or set Config.Manifests and what the server is", moduleFile, start)
		}
	}
}
