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
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/component-base/cli"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	restaurantgroup "restaurant.programming-kubernetes.info/apiserver/pkg/groups/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// storageVersionVariable makes the program of these tests a server of another release, which
// stores objects in that version.
const storageVersionVariable = "TEST_STORAGE_VERSION"

// serve runs the server as a release with this storage version does.
func serve(storageVersion string) (code int) {
	group := restaurantgroup.Group()
	for i, kind := range group.Kinds {
		switch kind := kind.(type) {
		case registry.Kind[*restaurant.Pizza]:
			kind.StorageVersion = storageVersion
			group.Kinds[i] = kind
		case registry.Kind[*restaurant.Topping]:
			kind.StorageVersion = storageVersion
			group.Kinds[i] = kind
		}
	}
	return cli.Run(server.NewCommand(genericapiserver.SetupSignalContext(), "apiserver", group))
}

// release is a replica of one release.
type release struct {
	*controlplane.Component
	storageVersion string
}

// A release has another storage version than the one before. Replicas of both run at once, in an
// upgrade and on the way back, and their users do not notice.
func TestStorageVersionsOfTwoReleases(t *testing.T) {
	framework.Long(t, "two releases are rolled out, one after the other")
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	present := controlplane.ServerConfig{Etcd: "storage", ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--run-controllers=false"}}}
	another := present
	another.Binary, another.Env = program, []string{storageVersionVariable + "=v1beta1"}
	cp := controlplane.ForTest(t, controlplane.Config{APIServer: another})
	older, newer := release{cp.APIServer, "v1beta1"}, release{framework.NewServer(t, cp, present), "v1"}
	require.NoError(t, fixture.CreateToppings(t.Context(), framework.ClientAt(t, cp, older.Component), "salami", "tomato"))
	startUsers(t, cp, older).stop(t)
	requireStored(t, cp, older.storageVersion)

	for _, step := range []struct{ from, to release }{{older, newer}, {newer, older}} {
		require.NoError(t, step.to.Start(t.Context()))
		startUsers(t, cp, step.from, step.to).stop(t)
		requireStored(t, cp, "v1", "v1beta1")

		require.NoError(t, cp.Register(t.Context(), step.to.Component))
		require.NoError(t, step.from.Stop())
		users := startUsers(t, cp, step.to)
		rewrite(t, cp)
		users.stop(t)
		requireStored(t, cp, step.to.storageVersion)
	}
}

// requireStored requires that objects are stored in these versions, and in no others.
func requireStored(t *testing.T, cp *controlplane.ControlPlane, want ...string) {
	t.Helper()
	got := sets.New[string]()
	for key, value := range storedIn(t, "/registry/"+restaurant.GroupName+"/", framework.EtcdConfig(t, cp, cp.Component("storage"))) {
		value, isProtobuf := strings.CutPrefix(value, "k8s\x00")
		require.True(t, isProtobuf, key)
		var envelope runtime.Unknown
		require.NoError(t, envelope.Unmarshal([]byte(value)))
		got.Insert(strings.TrimPrefix(envelope.APIVersion, restaurant.GroupName+"/"))
	}
	require.Equal(t, want, sets.List(got))
}

// rewrite makes Kubernetes write all objects again.
func rewrite(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	migrations := framework.Kube(cp).StoragemigrationV1().StorageVersionMigrations()
	for _, resource := range []string{"toppings", "pizzas"} {
		migration := &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: resource}}
		migration.Spec.Resource = metav1.GroupResource{Group: restaurant.GroupName, Resource: resource}
		_, err := migrations.Create(t.Context(), migration, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, resource := range []string{"toppings", "pizzas"} {
		controlplane.Eventually(t, func() error {
			migration, err := migrations.Get(t.Context(), resource, metav1.GetOptions{})
			if err == nil && !meta.IsStatusConditionTrue(migration.Status.Conditions, string(storagemigrationv1.MigrationSucceeded)) {
				return fmt.Errorf("the migration has not succeeded: %v", migration.Status.Conditions)
			}
			return err
		})
		require.NoError(t, migrations.Delete(t.Context(), resource, metav1.DeleteOptions{}))
	}
}

const (
	// writers are how many users write at once, and rounds how many pizzas each of them at least.
	writers = 4
	rounds  = 10
	pause   = 200 * time.Millisecond
	// last is the name of the pizza that is written when all others are.
	last = "last"
)

// usersCount counts the users of the tests, for the names of their pizzas.
var usersCount atomic.Int32

// users write pizzas through all replicas, in all versions, and compare what these say.
type users struct {
	label   string
	clients []*versionClient
	writing errgroup.Group
	watches sync.WaitGroup
	stopped chan struct{}

	mu      sync.Mutex
	written changes
}

// changes are what happened to pizzas, by their names: types of events, and resourceVersions.
type changes map[string][]string

func (c changes) add(eventType watch.EventType, pizza *unstructured.Unstructured) {
	revision := pizza.GetResourceVersion()
	if eventType == watch.Deleted {
		revision = "" // A client that deletes it does not get to know it.
	}
	c[pizza.GetName()] = append(c[pizza.GetName()], string(eventType)+revision)
}

// versionClient uses a version at a replica.
type versionClient struct {
	dynamic.ResourceInterface
	at, version string
	seen        changes
}

func startUsers(t *testing.T, cp *controlplane.ControlPlane, replicas ...release) *users {
	t.Helper()
	u := &users{label: fmt.Sprintf("users-%d", usersCount.Add(1)), stopped: make(chan struct{}), written: changes{}}
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	t.Cleanup(cancel)
	for _, replica := range replicas {
		config := framework.AdminConfig(t, cp, replica.Component)
		config.QPS = -1
		for _, version := range framework.Versions() {
			pizzas := dynamic.NewForConfigOrDie(config).Resource(restaurant.Resource("pizzas").WithVersion(version)).Namespace("default")
			client := &versionClient{ResourceInterface: pizzas, at: replica.Name(), version: version, seen: changes{}}
			u.clients = append(u.clients, client)
			list, err := pizzas.List(ctx, metav1.ListOptions{})
			require.NoError(t, err)
			watcher, err := pizzas.Watch(ctx, metav1.ListOptions{LabelSelector: framework.Label + "=" + u.label, ResourceVersion: list.GetResourceVersion()})
			require.NoError(t, err)
			u.watches.Go(func() { client.follow(watcher) })
		}
	}
	for i := range writers {
		u.writing.Go(func() error {
			for round := 0; round < rounds || !u.ended(); round++ {
				if err := u.write(ctx, i+round, fmt.Sprintf("%s-%d-%d", u.label, i, round)); err != nil {
					return err
				}
				time.Sleep(pause)
			}
			return nil
		})
	}
	return u
}

func (u *users) ended() bool {
	select {
	case <-u.stopped:
		return true
	default:
		return false
	}
}

// follow collects what a watch says, up to the last pizza.
func (c *versionClient) follow(watcher watch.Interface) {
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		pizza, ok := event.Object.(*unstructured.Unstructured)
		if !ok || strings.HasSuffix(pizza.GetName(), last) {
			return
		}
		c.seen.add(event.Type, pizza)
	}
}

// write lets a pizza be created, patched, updated and, every other time, deleted, each through
// another client.
func (u *users) write(ctx context.Context, i int, name string) error {
	next := func() *versionClient {
		i++
		return u.clients[i%len(u.clients)]
	}
	client := next()
	pizza := framework.Object(client.version, "Pizza", name, specOf(client.version, 1))
	pizza.SetLabels(map[string]string{framework.Label: u.label})
	pizza, err := client.Create(ctx, pizza, metav1.CreateOptions{})
	if err := u.compare(ctx, watch.Added, pizza, 1, err); err != nil {
		return err
	}
	pizza, err = next().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{})
	if err := u.compare(ctx, watch.Modified, pizza, 7, err); err != nil {
		return err
	}
	client = next()
	if pizza, err = client.Get(ctx, name, metav1.GetOptions{}); err == nil {
		pizza.Object["spec"] = specOf(client.version, 9)
		pizza, err = client.Update(ctx, pizza, metav1.UpdateOptions{})
	}
	if err := u.compare(ctx, watch.Modified, pizza, 9, err); err != nil || i%2 == 0 {
		return err
	}
	if err := next().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	u.add(watch.Deleted, pizza)
	for _, client := range u.clients {
		if _, err := client.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s at %s: the pizza %s has been deleted, but the answer is %w", client.version, client.at, name, err)
		}
	}
	return nil
}

func (u *users) add(eventType watch.EventType, pizza *unstructured.Unstructured) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.written.add(eventType, pizza)
}

func specOf(version string, replicas int64) map[string]any {
	return map[string]any{"toppings": framework.Toppings(version, "salami", "tomato×2"), "replicas": replicas}
}

// compare returns an error unless a pizza that has just been written is the same everywhere, read
// from etcd and from the watch caches.
func (u *users) compare(ctx context.Context, eventType watch.EventType, written *unstructured.Unstructured, replicas int64, err error) error {
	if err != nil {
		return err
	}
	u.add(eventType, written)
	first := map[string]*unstructured.Unstructured{}
	for _, client := range u.clients {
		for _, revision := range []string{"", written.GetResourceVersion()} {
			got, err := client.Get(ctx, written.GetName(), metav1.GetOptions{ResourceVersion: revision})
			if err != nil {
				return fmt.Errorf("%s at %s: %w", client.version, client.at, err)
			}
			want := first[client.version]
			if want == nil {
				first[client.version] = got
				want = got.DeepCopy()
				want.Object["spec"] = specOf(client.version, replicas)
				want.SetResourceVersion(written.GetResourceVersion())
			}
			if difference := cmp.Diff(want, got); difference != "" {
				return fmt.Errorf("%s at %s: %s", client.version, client.at, difference)
			}
		}
	}
	return nil
}

// stop ends the writing, and requires that nobody has noticed anything.
func (u *users) stop(t *testing.T) {
	t.Helper()
	close(u.stopped)
	require.NoError(t, u.writing.Wait())
	require.GreaterOrEqual(t, len(u.written), writers*rounds)
	pizza := framework.Object("v1", "Pizza", u.label+"-"+last, specOf("v1", 1))
	pizza.SetLabels(map[string]string{framework.Label: u.label})
	for _, client := range u.clients {
		if client.version == "v1" {
			_, err := client.Create(t.Context(), pizza, metav1.CreateOptions{})
			require.NoError(t, err)
			break
		}
	}
	u.watches.Wait()
	first := map[string]*unstructured.UnstructuredList{}
	for _, client := range u.clients {
		require.Equal(t, u.written, client.seen, "%s at %s", client.version, client.at)
		list, err := client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		list.SetResourceVersion("")
		if first[client.version] == nil {
			first[client.version] = list
		}
		require.Empty(t, cmp.Diff(first[client.version], list), "%s at %s", client.version, client.at)
	}
}
