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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
// upgrade and on the way back.
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
	writeEverywhere(t, cp, older)
	requireStored(t, cp, older.storageVersion)

	for _, step := range []struct{ from, to release }{{older, newer}, {newer, older}} {
		require.NoError(t, step.to.Start(t.Context()))
		writeEverywhere(t, cp, step.from, step.to)
		requireStored(t, cp, "v1", "v1beta1")

		require.NoError(t, cp.Register(t.Context(), step.to.Component))
		require.NoError(t, step.from.Stop())
		rewrite(t, cp)
		writeEverywhere(t, cp, step.to)
		requireStored(t, cp, step.to.storageVersion)
	}
}

// versionClient uses a version at a replica.
type versionClient struct {
	dynamic.ResourceInterface
	at, version string
}

// writeEverywhere creates and patches a pizza through each replica in each version. All read the same of it, from
// etcd and from their watch caches.
func writeEverywhere(t *testing.T, cp *controlplane.ControlPlane, replicas ...release) {
	t.Helper()
	var clients []versionClient
	for _, replica := range replicas {
		client := dynamic.NewForConfigOrDie(framework.AdminConfig(t, cp, replica.Component))
		for _, version := range framework.Versions() {
			clients = append(clients, versionClient{client.Resource(restaurant.Resource("pizzas").WithVersion(version)).Namespace("default"), replica.Name(), version})
		}
	}
	for i, writer := range clients {
		pizza := framework.Object(writer.version, "Pizza", "", specOf(writer.version, 1))
		pizza.SetGenerateName("pizza-")
		created, err := writer.Create(t.Context(), pizza, metav1.CreateOptions{})
		require.NoError(t, err)
		requireSame(t, clients, created, 1)
		patched, err := clients[(i+1)%len(clients)].Patch(t.Context(), created.GetName(), types.MergePatchType, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		requireSame(t, clients, patched, 7)
	}
}

func specOf(version string, replicas int64) map[string]any {
	return map[string]any{"toppings": framework.Toppings(version, "salami", "tomato×2"), "replicas": replicas}
}

func requireSame(t *testing.T, clients []versionClient, written *unstructured.Unstructured, replicas int64) {
	t.Helper()
	for _, client := range clients {
		for _, revision := range []string{"", written.GetResourceVersion()} {
			got, err := client.Get(t.Context(), written.GetName(), metav1.GetOptions{ResourceVersion: revision})
			require.NoError(t, err, "%s at %s", client.version, client.at)
			require.Equal(t, specOf(client.version, replicas), got.Object["spec"], "%s at %s", client.version, client.at)
			require.Equal(t, written.GetResourceVersion(), got.GetResourceVersion(), "%s at %s", client.version, client.at)
			require.Equal(t, written.GetUID(), got.GetUID())
		}
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
