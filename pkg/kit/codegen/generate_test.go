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
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tests of the module are compiled, too.
func TestWhole(t *testing.T) {
	g := &generation{Config: Config{Module: t.TempDir(), Whole: true, Output: io.Discard}}
	writeFiles(t, g.Module, map[string]string{
		"go.mod": "module example.com/bakery\n\ngo 1.26.0\n", "bread.go": "package bakery\n", "bread_test.go": "package bakery\n\nvar _ = flour\n",
	})
	require.EqualError(t, g.check(t.Context(), nil), "the module does not compile, so what was there before is left as it was:\n"+
		"# example.com/bakery [example.com/bakery.test]\n./bread_test.go:3:9: undefined: flour")
}

// After a failure, the generated files are the earlier ones.
func TestTakeBack(t *testing.T) {
	g := &generation{Config: Config{Module: t.TempDir()}}
	apis := []API{{Dir: "apis", Groups: []Group{{Name: "bakery", Versions: []Version{{Name: "v1"}}}}}}
	before := map[string]string{
		"apis/bakery/v1/doc.go": generatedBy, "apis/bakery/v1/types.go": "types", "apis/bakery/v1/zz_generated.deepcopy.go": "copy", "generated/clientset/clientset.go": "client",
	}
	writeFiles(t, g.Module, before)
	originals := Originals{Dir: g.Module, Before: map[string][]byte{}}
	require.NoError(t, g.eachGenerated(apis, func(name string) error { return originals.Remember(name) }))
	require.Len(t, originals.Before, 3)

	require.NoError(t, g.clean(apis))
	require.Equal(t, map[string]string{"apis/bakery/v1/types.go": "types"}, readFiles(t, g.Module))
	writeFiles(t, g.Module, map[string]string{"apis/bakery/v1/generated.pb.go": "half", "apis/bakery/v1/zz_generated.deepcopy.go": "half", "generated/listers/lister.go": "half"})
	failed := errors.New("failed")
	require.Equal(t, failed.Error(), originals.TakeBack(errors.Join(failed, g.clean(apis))).Error())
	require.Equal(t, before, readFiles(t, g.Module))
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		require.NoError(t, ReplaceFile(filepath.Join(dir, name), []byte(text)))
	}
}

func readFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		files[filepath.ToSlash(name)] = string(text)
		return err
	}))
	return files
}
