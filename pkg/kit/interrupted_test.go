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

package kit_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/kit"
)

// dying is a context that ends after some files have been written.
type dying struct {
	context.Context
	writes int
	how    func() error
}

func (d *dying) Err() error {
	if d.writes--; d.writes < 0 {
		return d.how()
	}
	return nil
}

// A command that is stopped leaves nothing, and one that is killed is completed by repeating it.
func TestInterrupted(t *testing.T) {
	definitions := []string{definition(t, "", "field: {type: string}"), versionedDefinition(t)}
	for name, run := range map[string]func(ctx context.Context, dir string) error{
		"create kind": func(ctx context.Context, dir string) error {
			_, err := kit.CreateKind(ctx, kit.Target{Dir: dir}, kit.KindOptions{Name: "Oven", Versions: []string{"v1", "v1beta1"}, Scale: true})
			return err
		},
		"import crd": func(ctx context.Context, dir string) error {
			_, err := kit.ImportCRD(ctx, dir, kit.ImportOptions{Files: definitions})
			return err
		},
		"upgrade": func(ctx context.Context, dir string) error {
			_, err := kit.RefreshFiles(ctx, dir)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newModule(t)
			before := files(t, dir)
			counting := &dying{Context: t.Context(), writes: 1 << 20}
			require.NoError(t, run(counting, dir))
			complete, writes := files(t, dir), 1<<20-counting.writes
			require.Greater(t, writes, 10)

			for done := 0; done < writes; done += 3 {
				dir := newModule(t)
				canceled := &dying{t.Context(), done, func() error { return context.Canceled }}
				require.ErrorIs(t, run(canceled, dir), context.Canceled)
				require.Equal(t, before, files(t, dir), "canceled after %d files", done)

				killed := &dying{t.Context(), done, func() error { panic("killed") }}
				require.PanicsWithValue(t, "killed", func() { _ = run(killed, dir) })
				require.NoError(t, run(t.Context(), dir))
				require.Equal(t, complete, files(t, dir), "repeated after it was killed after %d files", done)
			}
		})
	}
}

// If code can't be generated for new files, they are removed, and go.mod is restored.
func TestGenerationThatFails(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	dir := newModule(t)
	create(t, dir, kit.KindOptions{Name: "Bread", Versions: []string{"v1"}, NoProtobuf: true})
	before := files(t, dir)
	result, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{versionedDefinition(t)}})
	require.NoError(t, err)
	require.NotEqual(t, before, files(t, dir))
	require.ErrorContains(t, result.Generate(t.Context(), io.Discard), "k8s.io/apimachinery")
	require.Equal(t, before, files(t, dir))
}

// versionedDefinition is a file with the definition of a kind in two versions.
func versionedDefinition(t *testing.T) string {
	t.Helper()
	const version = `
      served: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {foo-bar: {type: string}}}}}}`
	file := filepath.Join(t.TempDir(), "crd.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ovens.bakery.example.com}
spec:
  group: bakery.example.com
  names: {kind: Oven, plural: ovens}
  scope: Namespaced
  versions:
    - name: v1`+version+`
      storage: true
    - name: v1beta1`+version+"\n      storage: false\n"), 0o600))
	return file
}

// A definition that can't be written undoes those before it.
func TestImportTakesBack(t *testing.T) {
	dir := newModule(t)
	// A directory in place of a file makes the write fail.
	require.NoError(t, os.MkdirAll(dir+"/pkg/registry/bakery/oven.yaml/full", 0o755))
	before := files(t, dir)
	_, err := kit.ImportCRD(t.Context(), dir, kit.ImportOptions{Files: []string{definition(t, "", "field: {type: string}"), versionedDefinition(t)}})
	require.ErrorContains(t, err, "ovens.bakery.example.com: ")
	require.Equal(t, before, files(t, dir))
}
