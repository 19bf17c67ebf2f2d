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

package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// snapshot is what "snapshot" prints for programs.
type snapshot struct {
	Revision int64
	Keys     int
	Size     int64
	Hash     string
	Version  string
}

// save saves a server's data and returns the file.
func save(t *testing.T, server *controlplane.Component) (path string, described snapshot) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot")
	code, stdout, stderr := framework.Tool(t, cp, nil, "snapshot", "save", path, "--data-dir="+framework.DataDir(server), "--output=json")
	require.Equal(t, 0, code, stderr)
	require.NoError(t, json.Unmarshal([]byte(stdout), &described))
	return path, described
}

// restoreInto restores a file into a new directory, which a server is to use from its
// next start on.
func restoreInto(t *testing.T, server *controlplane.Component, path string, flags ...string) {
	t.Helper()
	dir := filepath.Join(server.Dir(), filepath.Base(t.TempDir()))
	code, _, stderr := framework.Tool(t, cp, nil, "snapshot", "restore", path, "--data-dir="+dir)
	require.Equal(t, 0, code, stderr)
	server.SetFlags(append(flags, "--data-dir="+dir)...)
}

func pizzasOf(t *testing.T, server *controlplane.Component) map[string]restaurantv1.Pizza {
	t.Helper()
	list, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	pizzas := map[string]restaurantv1.Pizza{}
	for _, pizza := range list.Items {
		pizzas[pizza.Name] = pizza
	}
	return pizzas
}

// Writes that were acknowledged before a snapshot are in it, whatever is written meanwhile.
func TestSnapshotUnderLoad(t *testing.T) {
	t.Parallel()
	// Controllers would change the objects that are compared.
	const still = "--run-controllers=false"
	server := framework.NewServer(t, cp, framework.Flags(still))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	var (
		path      string
		described snapshot
		before    map[string]restaurantv1.Pizza
	)
	written := write(t, server, "load", 200, func() {
		before = pizzasOf(t, server)
		path, described = save(t, server)
		require.NoError(t, server.Stop())
	})
	require.GreaterOrEqual(t, len(before), 200)
	require.Greater(t, written.Len(), len(before), "Nothing was written during the snapshot.")
	require.GreaterOrEqual(t, described.Keys, len(before))

	restoreInto(t, server, path, still)
	require.NoError(t, server.Start(t.Context()))
	after := pizzasOf(t, server)
	for name, want := range before {
		require.Empty(t, cmp.Diff(want, after[name]))
	}
	_, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("later"), metav1.CreateOptions{})
	require.NoError(t, err)
}

// A client that has seen what a restored server has forgotten finds out.
func TestInformerLivesThroughARestore(t *testing.T) {
	framework.Long(t, "an etcd is restored under load")
	t.Parallel()
	const still = "--run-controllers=false"
	server := framework.NewServer(t, cp, framework.Flags(still))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default")
	for _, name := range []string{"deleted", "changed", "untouched"} {
		_, err := pizzas.Create(t.Context(), framework.Pizza(name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	informers := externalversions.NewSharedInformerFactory(framework.ClientAt(t, cp, server), 0)
	informer := informers.Restaurant().V1().Pizzas()
	lister := informer.Lister()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		informers.Shutdown()
	})
	informers.StartWithContext(ctx)
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced))
	seen := func(want map[string]int32) {
		t.Helper()
		controlplane.Eventually(t, func() error {
			list, err := lister.List(labels.Everything())
			got := map[string]int32{}
			for _, pizza := range list {
				got[pizza.Name] = *pizza.Spec.Replicas
			}
			if diff := cmp.Diff(want, got); err == nil && diff != "" {
				err = fmt.Errorf("the informer has other pizzas (-want +got):\n%s", diff)
			}
			return err
		})
	}
	old := map[string]int32{"deleted": 1, "changed": 1, "untouched": 1}
	seen(old)
	path, _ := save(t, server)

	change := func() (last string) {
		t.Helper()
		require.NoError(t, pizzas.Delete(t.Context(), "deleted", metav1.DeleteOptions{}))
		changed, err := pizzas.Patch(t.Context(), "changed", "application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		_, err = pizzas.Create(t.Context(), framework.Pizza("created"), metav1.CreateOptions{})
		require.NoError(t, err)
		seen(map[string]int32{"changed": 2, "untouched": 1, "created": 1})
		return changed.ResourceVersion
	}
	// The second time, the same snapshot follows upon more than the first time.
	for range 2 {
		last := change()
		require.NoError(t, server.Stop())
		restoreInto(t, server, path, still)
		require.NoError(t, server.Start(t.Context()))
		seen(old)
		watcher, err := pizzas.Watch(t.Context(), metav1.ListOptions{ResourceVersion: last})
		if err == nil {
			err = apierrors.FromObject(framework.Next(t, watcher).Object)
			watcher.Stop()
		}
		require.True(t, apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "A watch from before the restore gets %v.", err)
	}
}

// An object of a restored snapshot whose namespace has been deleted since can be changed and deleted, although
// nothing can be created beside it.
func TestRestoredWithoutItsNamespace(t *testing.T) {
	framework.Long(t, "a server restarts")
	t.Parallel()
	const still = "--run-controllers=false"
	server := framework.NewServer(t, cp, framework.Flags(still))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	namespaces := framework.Kube(cp).CoreV1().Namespaces()
	namespace := framework.Namespace(t, cp)
	pizzas := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas(namespace)
	held := framework.Pizza("held")
	held.Finalizers = []string{"example.com/held"}
	_, err := pizzas.Create(t.Context(), held, metav1.CreateOptions{})
	require.NoError(t, err)
	path, _ := save(t, server)
	require.NoError(t, server.Stop())
	require.NoError(t, namespaces.Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	// The controller manager would.
	deleted, err := namespaces.Get(t.Context(), namespace, metav1.GetOptions{})
	require.NoError(t, err)
	deleted.Spec.Finalizers = nil
	_, err = namespaces.Finalize(t.Context(), deleted, metav1.UpdateOptions{})
	require.NoError(t, err)
	controlplane.Eventually(t, func() error {
		if _, err := namespaces.Get(t.Context(), namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the namespace is there: %w", err)
		}
		return nil
	})
	restoreInto(t, server, path, still)
	require.NoError(t, server.Start(t.Context()))

	_, err = pizzas.Create(t.Context(), framework.Pizza("another"), metav1.CreateOptions{})
	framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
	patch := func(content string) {
		t.Helper()
		_, err := pizzas.Patch(t.Context(), "held", types.MergePatchType, []byte(content), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	patch(`{"spec":{"replicas":2}}`)
	require.NoError(t, pizzas.Delete(t.Context(), "held", metav1.DeleteOptions{}))
	patch(`{"metadata":{"labels":{"a":"b"}}}`)
	patch(`{"metadata":{"finalizers":null}}`)
	_, err = pizzas.Get(t.Context(), "held", metav1.GetOptions{})
	framework.RequireStatus(t, err, 404, metav1.StatusReasonNotFound)
}

// A snapshot can be made of the directory of a server that does not run, however it has ended.
func TestSnapshotWithoutAServer(t *testing.T) {
	framework.Long(t, "servers are started and stopped")
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	for _, end := range []func(){func() { require.NoError(t, server.Stop()) }, server.Kill} {
		require.NoError(t, server.Start(t.Context()))
		framework.Stock(t, cp, server)
		acknowledged := write(t, server, fmt.Sprintf("round-%d", server.PID()), 100, end)
		path, _ := save(t, server)
		copied := framework.NewServer(t, cp, framework.Flags())
		restoreInto(t, copied, path)
		require.NoError(t, copied.Start(t.Context()))
		require.Subset(t, names(t, copied).UnsortedList(), acknowledged.UnsortedList())
		require.NoError(t, copied.Stop())
	}
	require.NoError(t, server.Start(t.Context()))
}

// A pipe gets what a file has, and nothing else.
func TestSnapshotThroughPipes(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	_, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("margherita"), metav1.CreateOptions{})
	require.NoError(t, err)
	code, content, stderr := framework.Tool(t, cp, nil, "snapshot", "save", "-", "--data-dir="+framework.DataDir(server))
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^(Saving: \d+\.\d MiB of \d+\.\d MiB \(\d+ %\)\n)+$`, stderr)

	path := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	code, status, stderr := framework.Tool(t, cp, nil, "snapshot", "status", path)
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^(Verifying: \d+\.\d MiB of \d+\.\d MiB \(\d+ %\)\n)+$`, stderr)
	require.Regexp(t, `^Revision:  \d+\nKeys:      \d+\nSize:      \d+\.\d MiB\nSHA-256:   [0-9a-f]{64}\nVersion:   3\.7\.0\n$`, status)

	copied := framework.NewServer(t, cp, framework.Flags())
	code, restored, stderr := framework.Tool(t, cp, []byte(content), "snapshot", "restore", "-", "--data-dir="+framework.DataDir(copied))
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^(Restoring: \d+\.\d MiB\n)+$`, stderr)
	require.Equal(t, status, restored)
	require.NoError(t, copied.Start(t.Context()))
	require.Equal(t, sets.New("margherita"), names(t, copied))

	const servable = ` stored values can be served in every version\n`
	code, verified, stderr := framework.Tool(t, cp, nil, "snapshot", "verify", path)
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^pizzas\.restaurant\.programming-kubernetes\.info: \d+`+servable+`toppings\.restaurant\.programming-kubernetes\.info: \d+`+servable+path+` can be restored\n$`, verified)

	// An object that no server could serve is found before it is needed.
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + framework.DataDir(copied) + "/etcd.sock"}, Logger: zap.NewNop()})
	require.NoError(t, err)
	const key = "/registry/restaurant.programming-kubernetes.info/pizzas/default/broken"
	_, err = client.Put(t.Context(), key, `{"apiVersion":"restaurant.programming-kubernetes.info/v1","kind":"Calzone"}`)
	require.NoError(t, err)
	require.NoError(t, client.Close())
	dir := t.TempDir()
	code, _, stderr = framework.Tool(t, cp, nil, "snapshot", "save", dir, "--keep=1", "--data-dir="+framework.DataDir(copied))
	require.Equal(t, 0, code, stderr)
	code, _, stderr = framework.Tool(t, cp, nil, "snapshot", "verify", dir)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, key+`: it can't be decoded: no kind "Calzone" is registered`)
}

func TestSnapshotRefusals(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags())
	require.NoError(t, server.Start(t.Context()))
	path, described := save(t, server)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	changed := file("changed", flipped)
	cut := file("cut", good[:len(good)/2+1])
	bare := file("bare", good[:len(good)-32])
	missing := filepath.Join(dir, "missing")
	occupied := filepath.Join(dir, "occupied")
	require.NoError(t, os.MkdirAll(filepath.Join(occupied, "photos"), 0o700))
	empty := filepath.Join(dir, "empty")

	const noHash = "it has no hash at its end"
	damaged := "it is damaged: its database has the hash " + described.Hash
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"status of a changed file":         {[]string{"status", changed}, "the snapshot " + changed + " can't be used: " + damaged},
		"status of a file that is cut off": {[]string{"status", cut}, "the snapshot " + cut + " can't be used: " + noHash},
		"status of a file without a hash":  {[]string{"status", bare}, "the snapshot " + bare + " can't be used: " + noHash},
		"status of no file":                {[]string{"status", missing}, "the snapshot " + missing + " can't be used: it can't be opened: open " + missing + ": no such file or directory"},
		"restoring a changed file":         {[]string{"restore", changed, "--data-dir=" + empty}, "the snapshot can't be used: " + damaged},
		"restoring a file that is cut off": {[]string{"restore", cut, "--data-dir=" + empty}, "the snapshot can't be used: " + noHash},
		"restoring a file without a hash":  {[]string{"restore", bare, "--data-dir=" + empty}, "the snapshot can't be used: " + noHash},
		"restoring no file":                {[]string{"restore", missing, "--data-dir=" + empty}, "opening the snapshot: open " + missing + ": no such file or directory"},
		"restoring over other files":       {[]string{"restore", path, "--data-dir=" + occupied}, "the data directory " + occupied + " is not empty, but has \"photos\""},
		"restoring over a running server":  {[]string{"restore", path, "--data-dir=" + framework.DataDir(server)}, "the data directory " + framework.DataDir(server) + " is in use by a server"},
		"saving an empty directory":        {[]string{"save", missing, "--data-dir=" + dir}, "there is no database of an embedded etcd in " + dir},
		"saving nothing":                   {[]string{"save", missing, "--data-dir="}, "--data-dir must name a directory"},
		"saving into no directory":         {[]string{"save", missing + "/file", "--data-dir=" + framework.DataDir(server)}, "creating the snapshot: open "},
		"saving without a file":            {[]string{"save"}, "accepts 1 arg(s), received 0"},
		"a format":                         {[]string{"status", path, "--output=xml"}, "--output must be \"json\" or left out, not \"xml\""},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := framework.Tool(t, cp, nil, append([]string{"snapshot"}, test.args...)...)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			got := lines[len(lines)-1]
			require.True(t, strings.HasPrefix(got, "Error: "+test.want), "got %s\nwant the beginning to be %s", got, test.want)
			require.NoFileExists(t, missing)
		})
	}
	// None of that has done anything to it.
	require.NoError(t, server.WaitReady(t.Context()))
}
