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
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	restaurantv1 "restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
	typed "restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned/typed/restaurant/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// Watches resume after a restart of the server, as far as etcd remembers the past and it can be read. None resumes, or goes
// on, when the objects were moved to this etcd since: their clients would miss changes.
func TestWatchesResume(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "watched", ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--run-controllers=false"}}})
	require.NoError(t, cp.Component("watched").Start(t.Context()))
	etcd := framework.EtcdClient(t, cp, cp.Component("watched"))
	var toppings typed.ToppingInterface
	restart := func() {
		require.NoError(t, server.Restart(t.Context()))
		toppings = framework.ClientAt(t, cp, server).RestaurantV1().Toppings()
	}
	create := func(name string) *restaurantv1.Topping {
		cost := resource.MustParse("1")
		created, err := toppings.Create(t.Context(), &restaurantv1.Topping{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: restaurantv1.ToppingSpec{Cost: &cost}}, metav1.CreateOptions{})
		require.NoError(t, err)
		return created
	}
	watchFrom := func(revision string) watch.Interface {
		watcher, err := toppings.Watch(t.Context(), metav1.ListOptions{ResourceVersion: revision})
		require.NoError(t, err)
		t.Cleanup(watcher.Stop)
		return watcher
	}
	shows := func(watcher watch.Interface, wants ...string) {
		t.Helper()
		for _, want := range wants {
			event := framework.Next(t, watcher)
			got := string(event.Type) + " "
			if topping, ok := event.Object.(*restaurantv1.Topping); ok {
				got += topping.Name
			} else {
				got += string(apierrors.ReasonForError(apierrors.FromObject(event.Object)))
			}
			require.Equal(t, want, got)
		}
	}

	restart()
	first, second := create("a"), create("b")
	second.Labels = map[string]string{"changed": "true"}
	_, err := toppings.Update(t.Context(), second, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, toppings.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	restart()
	shows(watchFrom(first.ResourceVersion), "ADDED b", "MODIFIED b", "DELETED a")

	for _, forget := range []func() error{
		func() error { // What was there can't be decoded.
			const key = "/registry/" + restaurant.GroupName + "/toppings/unreadable"
			if _, err := etcd.Put(t.Context(), key, "{"); err != nil {
				return err
			}
			_, err := etcd.Delete(t.Context(), key)
			return err
		},
		func() error {
			now, err := etcd.Get(t.Context(), "/")
			if err == nil {
				_, err = etcd.Compact(t.Context(), now.Header.Revision)
			}
			return err
		},
	} {
		require.NoError(t, forget())
		restart()
		shows(watchFrom(first.ResourceVersion), "ERROR Expired")
		list, err := toppings.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		_, metrics := framework.Get(t, cp, server, "/metrics")
		require.NotContains(t, metrics, `apiserver_watch_cache_consistent_read_total{fallback="true"`, "The list was read from etcd instead of the cache.")
	}

	third := create("c")
	open := map[string]watch.Interface{"a revision": watchFrom(third.ResourceVersion), "none": watchFrom(""), "any": watchFrom("0")}
	for _, name := range []string{"none", "any"} {
		for range 2 { // They begin with b and c.
			require.Equal(t, watch.Added, framework.Next(t, open[name]).Type)
		}
	}
	now, err := etcd.Get(t.Context(), "/")
	require.NoError(t, err)
	_, err = etcd.Put(t.Context(), keys.HistoryKey("/registry", restaurant.GroupName), strconv.FormatInt(now.Header.Revision+1, 10))
	require.NoError(t, err)
	for name, watcher := range open {
		event, more := <-watcher.ResultChan()
		require.False(t, more, "%s: the watch has gone on with %v.", name, event)
	}
	shows(watchFrom(third.ResourceVersion), "ERROR Expired")
	fourth := create("d")
	resumed := watchFrom(fourth.ResourceVersion)
	create("e")
	shows(resumed, "ADDED e")
}
