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

package codegen

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Originals has the files of a module before they were changed.
type Originals struct {
	// Dir is the directory of the module.
	Dir string
	// Before has the content of changed files by their names with slashes, or nil for new ones.
	Before map[string][]byte
}

// File returns the path of a file.
func (o *Originals) File(name string) string { return filepath.Join(o.Dir, filepath.FromSlash(name)) }

// Remember keeps the content of files, so that TakeBack can restore them.
func (o *Originals) Remember(names ...string) error {
	for _, name := range names {
		if _, remembered := o.Before[name]; remembered {
			continue
		}
		text, err := os.ReadFile(o.File(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o.Before[name] = text
	}
	return nil
}

// TakeBack undoes all changes after a failure, and returns the failure with its own failures.
func (o *Originals) TakeBack(failure error) error {
	if failure == nil {
		return nil
	}
	failures := []error{failure}
	for name, text := range o.Before {
		if text != nil {
			continue
		}
		if err := os.Remove(o.File(name)); !errors.Is(err, fs.ErrNotExist) {
			failures = append(failures, err)
		}
		// The directories that are empty now were made for the file.
		for dir := path.Dir(name); dir != "." && os.Remove(o.File(dir)) == nil; {
			dir = path.Dir(dir)
		}
	}
	// Even on a full disk, the removed files make room for these.
	for name, text := range o.Before {
		if text != nil {
			failures = append(failures, ReplaceFile(o.File(name), text))
		}
	}
	return errors.Join(failures...)
}

// ReplaceFile writes a file as a whole. After a failure or a crash, the file is unchanged.
func ReplaceFile(name string, data []byte) error {
	mode := os.FileMode(0o644)
	if strings.HasSuffix(name, ".sh") {
		mode = 0o755
	}
	if file, err := os.Stat(name); err == nil {
		mode = file.Mode()
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // G301: sources of a module are for everybody.
		return err
	}
	// Go ignores files that begin with a dot. The next attempt takes the same name.
	part := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".part")
	err := os.WriteFile(part, data, mode)
	if err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}
