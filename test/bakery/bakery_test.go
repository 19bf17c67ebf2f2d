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

// Package bakery shows that another team can serve a group of its own on this module, from
// nothing but the files in testdata/module.
package bakery

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	root       = "../.."
	restaurant = "restaurant.programming-kubernetes.info"
	module     = restaurant + "/apiserver"
	group      = "bakery.example.com"
)

// TestAGroupIsEightFilesAndALine counts what a person writes for another group of a server.
// The group has two versions, protobuf, clients, an admission plugin and a controller.
func TestAGroupIsEightFilesAndALine(t *testing.T) {
	var files []string
	require.NoError(t, fs.WalkDir(os.DirFS("testdata/module"), ".", func(path string, entry fs.DirEntry, err error) error {
		if !entry.IsDir() && path != "main.go" && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	}))
	require.LessOrEqual(t, len(files), 8, files)

	main, err := os.ReadFile("testdata/module/main.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(main), "\npackage main\n")
	require.True(t, found)
	require.Equal(t, []string{"\t\tbakeryGroup(),\n"}, linesWith(code, "akery"))
}

func linesWith(text, part string) []string {
	return slices.DeleteFunc(slices.Collect(strings.Lines(text)), func(line string) bool { return !strings.Contains(line, part) })
}

// TestModule generates the code of the other module, builds its server, and serves the
// bakery beside the restaurant, and then alone.
func TestModule(t *testing.T) {
	framework.Long(t, "test/kit is the short one")
	dir := writeModule(t)
	run(t, exec.CommandContext(t.Context(), filepath.Join(root, "hack", "update-codegen.sh"), dir))

	t.Run("beside the restaurant", func(t *testing.T) {
		config := controlplane.Config{
			Manifests:         manifests(t, t.TempDir(), restaurant, group),
			ControllerManager: controlplane.ComponentConfig{Off: true},
		}
		config.APIServer.Binary = filepath.Join(t.TempDir(), "apiserver")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", config.APIServer.Binary, ".")
		build.Dir = dir
		run(t, build)
		cp := controlplane.ForTest(t, config)
		testBread(t, cp)
		kubectl(t, cp, "topping.restaurant.programming-kubernetes.info/tomato created", "create", "--filename="+root+"/artifacts/examples/1-toppings.yaml")
	})
	t.Run("alone", func(t *testing.T) {
		path := filepath.Join(dir, "main.go")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		alone := string(text)
		for _, line := range slices.Concat(linesWith(alone, `/restaurant"`), linesWith(alone, "restaurant.Group()")) {
			alone = strings.Replace(alone, line, "", 1)
		}
		require.NoError(t, os.WriteFile(path, []byte(alone), 0o600))
		// Its own tests find what they need without knowing where this repository is.
		manifests(t, filepath.Join(dir, "artifacts", "deploy", "base"), group)
		test := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "./e2e")
		test.Dir = dir
		run(t, test)
	})
}

func testBread(t *testing.T, cp *controlplane.ControlPlane) {
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	v1, v1alpha1 := breads(t, cp, "v1"), breads(t, cp, "v1alpha1")

	t.Run("discovery lists both versions", func(t *testing.T) {
		client, err := discovery.NewDiscoveryClientForConfig(cp.RESTConfig())
		require.NoError(t, err)
		for _, version := range []string{"v1", "v1alpha1"} {
			resources, err := client.ServerResourcesForGroupVersion(group + "/" + version)
			require.NoError(t, err)
			var names []string
			for _, resource := range resources.APIResources {
				names = append(names, resource.Name)
			}
			require.Equal(t, []string{"breads", "breads/status"}, names, version)
		}
	})

	watcher, err := v1.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer watcher.Stop()

	t.Run("breads of one version are read in the other", func(t *testing.T) {
		_, err := v1alpha1.Create(ctx, bread(t, "v1alpha1", `{
			"metadata": {"name": "rye"},
			"spec": {"loaves": 3, "shelf": "top", "flours": {"rye": 60, "wheat": 40}},
			"status": {"loaves": 9}
		}`), metav1.CreateOptions{})
		require.NoError(t, err)
		got, err := v1.Get(ctx, "rye", metav1.GetOptions{})
		require.NoError(t, err)
		want := bread(t, "v1", `{"spec": {"loaves": 3, "shelf": "top", "flours": [{"name": "rye", "percent": 60}, {"name": "wheat", "percent": 40}]}}`)
		require.Empty(t, cmp.Diff(want.Object["spec"], got.Object["spec"]))
	})

	t.Run("the controller acts, and a watch sees it", func(t *testing.T) {
		for {
			select {
			case event, open := <-watcher.ResultChan():
				require.True(t, open)
				loaves, _, err := unstructured.NestedInt64(event.Object.(*unstructured.Unstructured).Object, "status", "loaves")
				require.NoError(t, err)
				if loaves == 3 {
					return
				}
			case <-ctx.Done():
				require.Fail(t, "the status does not change")
			}
		}
	})

	t.Run("the plugin refuses what another bread has", func(t *testing.T) {
		_, err := v1.Create(ctx, bread(t, "v1", `{"metadata": {"name": "spelt"}, "spec": {"shelf": "top"}}`), metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err), err)
		require.ErrorContains(t, err, "the shelf top has rye on it")
	})

	t.Run("tags and functions validate it", func(t *testing.T) {
		for name, test := range map[string]struct {
			patch string
			want  metav1.StatusCause
		}{
			"tag": {`{"spec": {"loaves": 101}}`,
				metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.loaves", Message: "Invalid value: 101: must be less than or equal to 100"}},
			"function": {`{"spec": {"flours": [{"name": "rye", "percent": 99}]}}`,
				metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.flours", Message: "Invalid value: 99: the percents must add up to 100"}},
		} {
			_, err := v1.Patch(ctx, "rye", types.MergePatchType, []byte(test.patch), metav1.PatchOptions{})
			require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
			require.Empty(t, cmp.Diff([]metav1.StatusCause{test.want}, err.(apierrors.APIStatus).Status().Details.Causes), name)
		}
	})

	t.Run("server-side apply merges its lists and fills in defaults", func(t *testing.T) {
		_, err := v1.Apply(ctx, "white", bread(t, "v1", `{"metadata": {"name": "white"}, "spec": {"flours": [{"name": "wheat"}]}}`), metav1.ApplyOptions{FieldManager: "miller"})
		require.NoError(t, err)
		applied, err := v1.Apply(ctx, "white", bread(t, "v1", `{"metadata": {"name": "white"}, "spec": {"shelf": "low"}}`), metav1.ApplyOptions{FieldManager: "seller"})
		require.NoError(t, err)
		want := bread(t, "v1", `{"spec": {"loaves": 1, "shelf": "low", "flours": [{"name": "wheat", "percent": 100}]}}`)
		require.Empty(t, cmp.Diff(want.Object["spec"], applied.Object["spec"]))
	})

	t.Run("it is served in protobuf", func(t *testing.T) {
		client, err := discovery.NewDiscoveryClientForConfig(cp.RESTConfig())
		require.NoError(t, err)
		for _, version := range []string{"v1", "v1alpha1"} {
			raw, err := client.RESTClient().Get().AbsPath("/apis", group, version, "namespaces/default/breads/rye").
				SetHeader("Accept", "application/vnd.kubernetes.protobuf").DoRaw(ctx)
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(raw, []byte("k8s\x00")), "%q", raw)
		}
	})

	kubectl(t, cp, "rye     3/3", "get", "br", "--no-headers")
	kubectl(t, cp, "name says what is milled.", "explain", "bread.spec.flours")
	kubectl(t, cp, `bread.bakery.example.com "rye" deleted`, "delete", "bread", "rye")
}

// kubectl runs a command that must print the text.
func kubectl(t *testing.T, cp *controlplane.ControlPlane, want string, args ...string) {
	t.Helper()
	output, err := cp.Kubectl(t.Context(), args...).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), want, args)
}

func breads(t *testing.T, cp *controlplane.ControlPlane, version string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "breads"}).Namespace("default")
}

func bread(t *testing.T, version, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(text), &obj.Object))
	obj.SetAPIVersion(group + "/" + version)
	obj.SetKind("Bread")
	// As client-go decodes numbers.
	raw, err := obj.MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, obj.UnmarshalJSON(raw))
	return obj
}

// writeModule returns the directory of the module, with what "go mod init" and "go mod
// tidy" would write. It requires the versions that this module has, so that nothing is
// downloaded.
func writeModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/module")))
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	_, requirements, found := strings.Cut(string(goMod), "\nrequire (")
	require.True(t, found)
	write := fmt.Sprintf("module example.com/bakery\n\ngo 1.26.0\n\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n\nrequire (%[3]s", module, downloaded(t), requirements)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(write), 0o600))
	goSum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), goSum, 0o600))
	return dir
}

// downloaded returns a copy of this module as the go command downloads it. It cannot be
// written to, and has neither symbolic links nor the modules below it.
func downloaded(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var dirs []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, name)
		switch {
		case entry.IsDir() && name != ".":
			_, err := os.Lstat(filepath.Join(path, "go.mod"))
			if err == nil || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
				return filepath.SkipDir
			}
			dirs = append(dirs, target)
			return os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, content, 0o400)
		}
		return nil
	}))
	for _, dir := range dirs {
		require.NoError(t, os.Chmod(dir, 0o500))
		t.Cleanup(func() { require.NoError(t, os.Chmod(dir, 0o700)) })
	}
	return dir
}

// run runs a command with the compiler flags of all binaries, so that common packages
// are compiled once.
func run(t *testing.T, command *exec.Cmd) {
	t.Helper()
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// manifests fills a directory with those of the restaurant, but for the APIServices: there
// are those of the groups.
func manifests(t *testing.T, dir string, groups ...string) string {
	t.Helper()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(root, "artifacts", "deploy", "base"))))
	path := filepath.Join(dir, "apiservices.yaml")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var documents []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		for _, group := range groups {
			// The bakery has no v1beta1.
			if group == restaurant || !strings.Contains(document, "v1beta1") {
				documents = append(documents, strings.ReplaceAll(document, restaurant, group))
			}
		}
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(documents, "\n---\n")), 0o600))
	return dir
}
