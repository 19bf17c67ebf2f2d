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

package api

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// watcher is a watch that a test reads event by event.
type watcher struct {
	watch.Interface
	t *testing.T
	// again begins the watch once more, if it fails before it has brought anything.
	again func()
}

// startWatch watches until the test ends.
func startWatch(t *testing.T, start func() (watch.Interface, error)) *watcher {
	t.Helper()
	w := &watcher{t: t}
	begin := func() {
		var err error
		w.Interface, err = start()
		require.NoError(t, err)
	}
	begin()
	// With kine a server may wait for its watch cache in vain: see docs/operations/configuration.md. Informers
	// begin again, too.
	if os.Getenv(etcdServers) != "" {
		w.again = begin
	}
	t.Cleanup(func() { w.Stop() })
	return w
}

// watch watches the test's objects, and with the options those of them that
// match.
func (s subject) watch(t *testing.T, options metav1.ListOptions) *watcher {
	t.Helper()
	if options.LabelSelector == "" {
		options.LabelSelector = s.All().LabelSelector
	}
	return startWatch(t, func() (watch.Interface, error) { return s.Client().Watch(t.Context(), options) })
}

// next waits for an event, ok is false if the watch has ended.
func (w *watcher) next() (event watch.Event, ok bool) {
	w.t.Helper()
	for {
		select {
		case event, ok = <-w.ResultChan():
		case <-time.After(controlplane.Patience):
			require.Fail(w.t, "No event has come.")
		}
		late := !ok || event.Type == watch.Error && apierrors.IsTimeout(apierrors.FromObject(event.Object))
		if w.again == nil || !late {
			w.again = nil
			return event, ok
		}
		w.again()
	}
}

// expect waits for an event of that type and returns its object. A bookmark that
// only says how far the watch has come may be before any other event: the tests
// beside this one move it on.
func (w *watcher) expect(want watch.EventType) *unstructured.Unstructured {
	w.t.Helper()
	for {
		event, ok := w.next()
		require.True(w.t, ok, "The watch has ended.")
		object, isObject := event.Object.(*unstructured.Unstructured)
		require.True(w.t, isObject, "%T", event.Object)
		if event.Type == watch.Bookmark && want != watch.Bookmark && len(object.GetAnnotations()) == 0 {
			continue
		}
		require.Equal(w.t, want, event.Type, "%v", object)
		return object
	}
}

// watchList are the options of a client that lists by watching.
func watchList() metav1.ListOptions {
	return metav1.ListOptions{
		SendInitialEvents:    new(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	}
}

// TestWatchesOfLargeObjects begin with events that are made for each of them, and take memory one
// after the other.
func TestWatchesOfLargeObjects(t *testing.T) {
	framework.AlsoRemote(t)
	const objects, size, watches = 10, 200_000, 20
	client := framework.Restaurant(cp).RestaurantV1().Pizzas(framework.Namespace(t, cp))
	for i := range objects {
		pizza := framework.Pizza("large-" + strconv.Itoa(i))
		pizza.Annotations = map[string]string{"recipe": strings.Repeat("x", size)}
		_, err := client.Create(t.Context(), pizza, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	var all []*watcher
	for range watches {
		all = append(all, startWatch(t, func() (watch.Interface, error) { return client.Watch(t.Context(), watchList()) }))
	}
	for _, w := range all {
		for range objects {
			event, _ := w.next()
			require.Equal(t, watch.Added, event.Type)
		}
		event, _ := w.next()
		require.Equal(t, watch.Bookmark, event.Type)
	}
	_, err := client.Create(t.Context(), framework.Pizza("small"), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, w := range all {
		event, _ := w.next()
		for event.Type == watch.Bookmark { // Of a watch whose beginning took more than a second.
			event, _ = w.next()
		}
		require.Equal(t, watch.Added, event.Type)
		require.Equal(t, "small", event.Object.(metav1.Object).GetName())
	}
}

// The server knows by its frames when a WebSocket has sent a large event, and goes on with the next one.
func TestWebSocketsOfLargeObjects(t *testing.T) {
	const objects, size = 3, 200_000
	namespace := framework.Namespace(t, cp)
	client := framework.Restaurant(cp).RestaurantV1().Pizzas(namespace)
	for i := range objects {
		pizza := framework.Pizza("large-" + strconv.Itoa(i))
		pizza.Annotations = map[string]string{"recipe": strings.Repeat("x", size)}
		_, err := client.Create(t.Context(), pizza, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	socket, err := framework.DialSocket(t.Context(), framework.Config(cp), framework.GroupPath+"/v1/namespaces/"+namespace+"/pizzas?watch=true")
	require.NoError(t, err)
	defer socket.Close()
	require.NoError(t, socket.SetReadDeadline(time.Now().Add(controlplane.Patience)))
	for range objects {
		_, event, err := socket.ReadMessage()
		require.NoError(t, err)
		require.Greater(t, len(event), size)
	}
}

// The fields of a pizza decide whether a watch by a field has it.
func TestWatchByField(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	for _, version := range framework.Versions() {
		s := newSubject(t, "Pizza", version)
		b := s.Create(t, "b")
		update := func(subresources ...string) {
			t.Helper()
			updated, err := s.Client().Update(t.Context(), b, metav1.UpdateOptions{}, subresources...)
			require.NoError(t, err)
			b = updated
		}
		baked := s.watch(t, metav1.ListOptions{FieldSelector: "spec.replicas=2"})
		priced := s.watch(t, metav1.ListOptions{FieldSelector: "status.cost=2300m"})
		s.change(t, b)
		update()
		require.Equal(t, b, baked.expect(watch.Added))
		b.Object["status"] = newStatus(2)
		update("status")
		require.Equal(t, b, baked.expect(watch.Modified))
		require.Equal(t, b, priced.expect(watch.Added))
		require.NoError(t, s.Client().Delete(t.Context(), b.GetName(), metav1.DeleteOptions{}))
		baked.expect(watch.Deleted)
		priced.expect(watch.Deleted)
	}
}

// A client that asks for history that is no longer there is told to start over. Compaction
// makes etcd forget, and a restart the server.
func TestForgottenHistory(t *testing.T) {
	framework.Long(t, "a server is started twice")
	t.Parallel()
	server, err := cp.NewAPIServer(names.SimpleNameGenerator.GenerateName("forgetful-"), controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Flags: []string{"--run-controllers=false"}}})
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	direct := framework.Config(cp)
	direct.Host = server.URL()
	pizza := newSubject(t, "Pizza", "v1")
	client := pizza.ClientFor(direct)
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(direct), "mozzarella", "tomato"))
	create := func(name string) *unstructured.Unstructured {
		created, err := client.Create(t.Context(), pizza.New(name), metav1.CreateOptions{})
		require.NoError(t, err)
		return created
	}
	a, b := create("a"), create("b")
	page, err := client.List(t.Context(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	c := create("c")

	etcd := etcdOf(t, server)
	answer, err := etcd.Get(t.Context(), "/")
	require.NoError(t, err)
	_, err = etcd.Compact(t.Context(), answer.Header.Revision)
	require.NoError(t, err)
	require.NoError(t, server.Restart(t.Context()))

	old := a.GetResourceVersion()
	w := startWatch(t, func() (watch.Interface, error) {
		return client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: old})
	})
	event, ok := w.next()
	require.True(t, ok)
	require.Equal(t, watch.Error, event.Type)
	framework.RequireStatus(t, apierrors.FromObject(event.Object), 410, metav1.StatusReasonExpired)

	_, err = client.List(t.Context(), metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	framework.RequireStatus(t, err, 410, metav1.StatusReasonExpired)

	// The answer about a page has what is needed to go on with newer ones.
	_, err = client.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.GetContinue()})
	status := framework.RequireStatus(t, err, 410, metav1.StatusReasonExpired)
	rest, err := client.List(t.Context(), metav1.ListOptions{Continue: status.Continue})
	require.NoError(t, err)
	require.Equal(t, []unstructured.Unstructured{*b, *c}, rest.Items)
}

// The generated informers and listers of all versions have what is written in one.
func TestInformers(t *testing.T) {
	framework.AlsoRemote(t)
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	factory := externalversions.NewSharedInformerFactoryWithOptions(framework.Restaurant(cp), 0, externalversions.WithNamespace(s.Namespace))
	defer factory.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	s.Create(t, "a")
	events, listers := map[string]chan string{}, map[string]cache.GenericLister{}
	for _, version := range framework.Versions() {
		informer, err := factory.ForResource(s.in(version).GroupVersionResource())
		require.NoError(t, err)
		told := make(chan string, 100)
		tell := func(verb string, object any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			assert.NoError(t, err)
			told <- verb + " " + key
		}
		_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { tell("add", object) },
			UpdateFunc: func(_, object any) { tell("update", object) },
			DeleteFunc: func(object any) { tell("delete", object) },
		})
		require.NoError(t, err)
		events[version], listers[version] = told, informer.Lister()
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		require.True(t, synced, "%s has not synced.", kind)
	}
	b := s.Create(t, "b")
	s.change(t, b)
	_, err := s.Client().Update(t.Context(), b, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
	for version, told := range events {
		for _, want := range []string{"add a", "add b", "update b", "delete a"} {
			verb, name, _ := strings.Cut(want, " ")
			select {
			case got := <-told:
				require.Equal(t, verb+" "+s.Namespace+"/"+s.Name(name), got, version)
			case <-ctx.Done():
				require.Fail(t, "An event has not come.", "%s of %s", want, version)
			}
		}
		listed, err := listers[version].ByNamespace(s.Namespace).List(labels.Everything())
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.Equal(t, s.Name("b"), listed[0].(metav1.Object).GetName())
	}
}
