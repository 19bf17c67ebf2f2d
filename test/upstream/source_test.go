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

package upstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// source returns a file beside the one that has the function, in the version that this
// test is compiled with. It is for faults that show only in time or memory that no test
// should take.
func source(t *testing.T, function any, file string) string {
	t.Helper()
	pc := reflect.ValueOf(function).Pointer()
	path, _ := runtime.FuncForPC(pc).FileLine(pc)
	if !filepath.IsAbs(path) { // With -trimpath, it begins with the module.
		cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
		if err != nil {
			t.Fatalf("the sources can't be found: %v", err)
		}
		path = filepath.Join(strings.TrimSpace(string(cache)), path)
	}
	content, err := os.ReadFile(filepath.Join(filepath.Dir(path), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
