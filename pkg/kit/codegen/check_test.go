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
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlame(t *testing.T) {
	module := t.TempDir()
	for name, text := range map[string]string{
		"generated.pb.go":          "package v1\n\nfunc (m *Bread) Size() int {\n\treturn 1\n}\n\nfunc sov() {\n}\n",
		"zz_generated.deepcopy.go": "package v1\n\nfunc DeepCopy(in *Oven) {\n\tin.Size()\n}\n",
		"types.go":                 "package v1\n\nfunc (b *Bread) Name() {\n}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(module, name), []byte(text), 0o600))
	}
	require.Equal(t, "# example.com/bakery/v1\n"+
		"generated.pb.go:3:17: field and method with the same name Size (for the type Bread)\n"+
		"\ttypes.go:7:2: other declaration of Size\n"+
		"generated.pb.go:7:6: sov redeclared in this block\n"+
		"zz_generated.deepcopy.go:4:5: cannot take address of in.Size (for the type Oven)\n"+
		"types.go:3:1: undefined: Flour\n"+
		"missing.go:1:1: no such file",
		blame(module, "# example.com/bakery/v1\n"+
			"generated.pb.go:3:17: field and method with the same name Size\n"+
			"\ttypes.go:7:2: other declaration of Size\n"+
			"generated.pb.go:7:6: sov redeclared in this block\n"+
			"zz_generated.deepcopy.go:4:5: cannot take address of in.Size\n"+
			"types.go:3:1: undefined: Flour\n"+
			"missing.go:1:1: no such file\n"))
}

// Tests of the module are compiled, too.
func TestCheckModule(t *testing.T) {
	g := &generation{Config: Config{Module: t.TempDir(), Output: io.Discard}}
	for name, text := range map[string]string{
		"go.mod": "module example.com/bakery\n\ngo 1.26.0\n", "bread.go": "package bakery\n", "bread_test.go": "package bakery\n\nvar _ = flour\n",
	} {
		require.NoError(t, os.WriteFile(g.file(name), []byte(text), 0o600))
	}
	require.NoError(t, g.checkModule(t.Context()))
	g.Whole = true
	require.EqualError(t, g.checkModule(t.Context()), "the module does not compile, so what was there before is left as it was:\n"+
		"# example.com/bakery [example.com/bakery.test]\n./bread_test.go:3:9: undefined: flour")
	require.NoError(t, os.Remove(g.file("bread_test.go")))
	require.NoError(t, g.checkModule(t.Context()))
}

func TestRestore(t *testing.T) {
	g := &generation{Config: Config{Module: t.TempDir()}}
	apis := []API{{Dir: "apis", Groups: []Group{{Name: "bakery", Versions: []Version{{Name: "v1"}}}}}}
	write := func(files map[string]string) {
		t.Helper()
		for name, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(g.file(name)), 0o700))
			require.NoError(t, os.WriteFile(g.file(name), []byte(text), 0o600))
		}
	}
	before := map[string]string{
		"apis/bakery/v1/doc.go": generatedBy, "apis/bakery/v1/types.go": "types", "apis/bakery/v1/zz_generated.deepcopy.go": "copy", "generated/clientset/clientset.go": "client",
	}
	write(before)
	files, err := g.generatedFiles(apis)
	require.NoError(t, err)
	require.Len(t, files, 3)

	require.NoError(t, g.clean(apis))
	write(map[string]string{"apis/bakery/v1/generated.pb.go": "half", "apis/bakery/v1/zz_generated.deepcopy.go": "half", "generated/listers/lister.go": "half"})
	require.NoError(t, g.restore(apis, files))
	after := map[string]string{}
	require.NoError(t, filepath.WalkDir(g.Module, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(g.Module, path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		after[filepath.ToSlash(name)] = string(text)
		return err
	}))
	require.Equal(t, before, after)
}
