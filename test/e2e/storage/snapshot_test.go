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
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// save saves a server's data and returns the file.
func save(t *testing.T, server *controlplane.Component) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot")
	code, _, stderr := framework.Tool(t, cp, nil, "snapshot", "save", path, "--data-dir="+framework.DataDir(server))
	require.Equal(t, 0, code, stderr)
	return path
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
	path := save(t, server)
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
