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

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
)

const groupVersion = "restaurant.programming-kubernetes.info/v1"

// TestThirdKind serves a kind that is declared in this folder beside those of the
// restaurant, through a real kube-apiserver.
func TestThirdKind(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{BinDir: binariesWithServer(t, ".")})
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	drinks := client.Resource(schema.GroupVersionResource{Group: "restaurant.programming-kubernetes.info", Version: "v1", Resource: "drinks"}).Namespace("default")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	t.Run("discovery lists it in the version that has its type", func(t *testing.T) {
		client, err := discovery.NewDiscoveryClientForConfig(cp.RESTConfig())
		require.NoError(t, err)
		for version, want := range map[string][]string{
			"v1":      {"drinks", "drinks/status", "pizzas", "pizzas/bake", "pizzas/scale", "pizzas/status", "pizzas/track", "pricereviews", "toppings"},
			"v1beta1": {"pizzas", "pizzas/bake", "pizzas/scale", "pizzas/status", "pizzas/track", "toppings"},
		} {
			resources, err := client.ServerResourcesForGroupVersion("restaurant.programming-kubernetes.info/" + version)
			require.NoError(t, err)
			var got []string
			for _, resource := range resources.APIResources {
				got = append(got, resource.Name)
			}
			require.Equal(t, want, got, version)
		}
	})

	watcher, err := drinks.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer watcher.Stop()

	t.Run("an object is created with defaults and without its status", func(t *testing.T) {
		created, err := drinks.Create(ctx, object(t, `{
			"metadata": {"name": "lemonade"},
			"spec": {"garnishes": [{"name": "lemon"}, {"name": "mint", "pieces": 3}]},
			"status": {"served": 9}
		}`), metav1.CreateOptions{})
		require.NoError(t, err)
		want := object(t, `{"spec": {"millilitres": 330, "garnishes": [{"name": "lemon", "pieces": 1}, {"name": "mint", "pieces": 3}]}, "status": {}}`)
		require.Empty(t, cmp.Diff(want.Object["spec"], created.Object["spec"]))
		require.Empty(t, cmp.Diff(want.Object["status"], created.Object["status"]))
		require.EqualValues(t, 1, created.GetGeneration())
	})

	t.Run("a watch sees it", func(t *testing.T) {
		select {
		case event := <-watcher.ResultChan():
			require.Equal(t, "lemonade", event.Object.(*unstructured.Unstructured).GetName())
		case <-ctx.Done():
			require.Fail(t, "no event")
		}
	})

	t.Run("tags and functions validate it", func(t *testing.T) {
		for name, test := range map[string]struct {
			patch string
			want  metav1.StatusCause
		}{
			"tag": {`{"spec": {"millilitres": 2001}}`,
				metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.millilitres", Message: "Invalid value: 2001: must be less than or equal to 2000"}},
			"function": {`{"spec": {"garnishes": [{"name": "pineapple"}]}}`,
				metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.garnishes[0].name", Message: `Invalid value: "pineapple": belongs on no drink, and on no pizza`}},
			"function that compares": {`{"spec": {"millilitres": 329}}`,
				metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: "spec.millilitres", Message: "Forbidden: must not become less"}},
		} {
			_, err := drinks.Patch(ctx, "lemonade", types.MergePatchType, []byte(test.patch), metav1.PatchOptions{})
			require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
			require.Empty(t, cmp.Diff([]metav1.StatusCause{test.want}, err.(apierrors.APIStatus).Status().Details.Causes), name)
		}
	})

	t.Run("server-side apply merges its lists", func(t *testing.T) {
		applied, err := drinks.Apply(ctx, "lemonade", object(t, `{"metadata": {"name": "lemonade"}, "spec": {"garnishes": [{"name": "ice", "pieces": 5}]}}`),
			metav1.ApplyOptions{FieldManager: "bar"})
		require.NoError(t, err)
		garnishes, _, err := unstructured.NestedSlice(applied.Object, "spec", "garnishes")
		require.NoError(t, err)
		require.Len(t, garnishes, 3)
		require.EqualValues(t, 2, applied.GetGeneration())
	})

	t.Run("its status is a subresource", func(t *testing.T) {
		patched, err := drinks.Patch(ctx, "lemonade", types.MergePatchType, []byte(`{"spec": {"millilitres": 500}, "status": {"served": 2}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		served, _, err := unstructured.NestedInt64(patched.Object, "status", "served")
		require.NoError(t, err)
		size, _, err := unstructured.NestedInt64(patched.Object, "spec", "millilitres")
		require.NoError(t, err)
		require.Equal(t, []int64{2, 330, 2}, []int64{served, size, patched.GetGeneration()})
	})

	t.Run("kubectl knows it", func(t *testing.T) {
		for _, test := range []struct {
			args []string
			want string
		}{
			{[]string{"get", "dr", "--no-headers"}, "lemonade   330 ml"},
			{[]string{"get", "restaurant", "--output=name"}, "drink.restaurant.programming-kubernetes.info/lemonade"},
			{[]string{"explain", "drink.spec.garnishes"}, "name says what it is."},
			{[]string{"create", "--filename=../../artifacts/examples/1-toppings.yaml"}, "topping.restaurant.programming-kubernetes.info/tomato created"},
			{[]string{"delete", "drink", "lemonade"}, `drink.restaurant.programming-kubernetes.info "lemonade" deleted`},
		} {
			output, err := cp.Kubectl(ctx, test.args...).CombinedOutput()
			require.NoError(t, err, "%s", output)
			require.Contains(t, string(output), test.want, test.args)
		}
	})
}

// TestAnotherModule serves a group of its own from a module outside of this one:
// nothing it needs is internal.
func TestAnotherModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/module")))
	require.NoError(t, os.Rename(filepath.Join(dir, "main.go.txt"), filepath.Join(dir, "main.go")))

	// All versions come from this module, so that nothing is downloaded.
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	_, requirements, found := strings.Cut(string(goMod), "\nrequire (")
	require.True(t, found)
	const path = "restaurant.programming-kubernetes.info/apiserver"
	goMod = []byte("module example.com/bakery\n\ngo 1.26.0\n\nrequire " + path + " v0.0.0\n\nreplace " + path + " => " + root + "\n\nrequire (" + requirements)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), goMod, 0o600))
	goSum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), goSum, 0o600))

	// It is installed like the restaurant, but for the APIService.
	manifests := t.TempDir()
	require.NoError(t, os.CopyFS(manifests, os.DirFS(filepath.Join(root, "artifacts", "deploy", "base"))))
	require.NoError(t, os.Rename(filepath.Join(dir, "apiservices.yaml"), filepath.Join(manifests, "apiservices.yaml")))

	cp := controlplane.ForTest(t, controlplane.Config{
		BinDir:            binariesWithServer(t, dir, "GOFLAGS=-mod=mod", "GOPROXY=off"),
		Manifests:         manifests,
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--storage-media-type=application/json"}}},
	})
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"apply", "--server-side", "--filename=testdata/module/bread.yaml"}, "bread.bakery.example.com/rye serverside-applied\n"},
		{[]string{"patch", "bread", "rye", "--type=merge", `--patch={"spec":{"grams":750}}`}, "bread.bakery.example.com/rye patched\n"},
		{[]string{"get", "breads", "--output=jsonpath={.items[*]['metadata.name','metadata.generation','spec.grams']}"}, "rye 2 750"},
		{[]string{"delete", "bread", "rye"}, "bread.bakery.example.com \"rye\" deleted\n"},
	} {
		output, err := cp.Kubectl(t.Context(), test.args...).CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Equal(t, test.want, string(output), test.args)
	}
}

// binariesWithServer returns a folder of binaries in which the server is the command
// in a folder.
func binariesWithServer(t *testing.T, command string, env ...string) string {
	t.Helper()
	binaries, err := filepath.Abs("../../_output/bin")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		require.NoError(t, os.Symlink(filepath.Join(binaries, name), filepath.Join(dir, name)))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, "apiserver"), ".")
	build.Dir = command
	build.Env = slices.Concat(os.Environ(), []string{"CGO_ENABLED=0"}, env)
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return dir
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(text), &obj.Object))
	obj.SetAPIVersion(groupVersion)
	obj.SetKind("Drink")
	// As client-go decodes numbers.
	raw, err := obj.MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, obj.UnmarshalJSON(raw))
	return obj
}
