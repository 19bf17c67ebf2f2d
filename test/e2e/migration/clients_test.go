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

package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// errPruned says that kube-apiserver does not know a new field yet.
var errPruned = errors.New("the field is pruned")

// gone returns an error unless an object does not exist.
func gone[O any](_ O, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("it is still there")
	}
	return err
}

// clients use the pizzas, without any retries but those after 429, as client-go does.
type clients struct {
	stop   func()
	reader dynamic.ResourceInterface
	// failedReads are those that client-go has repeated, too.
	failedReads *failures

	mu sync.Mutex
	// replicas has the replicas of each pizza whose write was acknowledged, and 0 if it is deleted.
	replicas map[string]int
	requests int
	slowest  time.Duration
	failed   []error
}

// failures are what has failed, and when.
type failures struct {
	mu  sync.Mutex
	all []string
}

func (f *failures) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// list returns the first: there can be more than a test's message has room for.
func (f *failures) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all[:min(10, len(f.all))])
}

// reads counts what fails of reads, also what client-go then tries again.
type reads struct {
	http.RoundTripper
	*failures
}

func (r reads) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.RoundTripper.RoundTrip(request)
	switch {
	case request.Method != http.MethodGet || request.Context().Err() != nil:
	case err != nil:
		r.add("%s: %v", request.URL, err)
	case response.StatusCode != http.StatusOK:
		r.add("%s: %s", request.URL, response.Status)
	}
	return response, err
}

// startClients starts one that writes and one that reads.
func (c *cluster) startClients(t *testing.T) *clients {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	users := &clients{replicas: map[string]int{}, failedReads: &failures{}}
	config := c.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reads{next, users.failedReads} })
	users.reader = dynamic.NewForConfigOrDie(config).Resource(gvr("pizzas")).Namespace(metav1.NamespaceDefault)
	users.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(users.stop)
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			users.write(t, c, fmt.Sprintf("written-%d", i), i)
		}
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			users.read(t)
			// Reads must not keep the machine from everything else.
			time.Sleep(10 * time.Millisecond)
		}
	})
	return users
}

// write creates a pizza, changes it, and deletes every third.
func (u *clients) write(t *testing.T, c *cluster, name string, i int) {
	t.Helper()
	client := c.restaurant().RestaurantV1().Pizzas(metav1.NamespaceDefault)
	replicas := i%100 + 2
	u.do(name, 1, func() error { return c.createPizza(t, c.restaurant(), name, nil) })
	u.do(name, replicas, func() error {
		_, err := client.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
		return err
	})
	if i%3 == 0 {
		u.do(name, 0, func() error { return client.Delete(t.Context(), name, metav1.DeleteOptions{}) })
	}
}

func (u *clients) read(t *testing.T) {
	t.Helper()
	_, err := u.reader.Get(t.Context(), "owner", metav1.GetOptions{})
	_, listErr := u.reader.List(t.Context(), metav1.ListOptions{})
	if err := errors.Join(err, listErr); err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.failed = append(u.failed, fmt.Errorf("reading: %w", err))
	}
}

func (u *clients) do(name string, replicas int, write func() error) {
	began := time.Now()
	err := write()
	// client-go has tried ten times, which is not enough on a busy machine.
	for apierrors.IsTooManyRequests(err) {
		err = write()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.slowest = max(u.slowest, time.Since(began))
	u.requests++
	if err != nil {
		u.failed = append(u.failed, fmt.Errorf("writing %s: %w", name, err))
		return
	}
	u.replicas[name] = replicas
}

func (u *clients) errors() []error {
	u.mu.Lock()
	defer u.mu.Unlock()
	failed := slices.Clone(u.failed)
	for _, read := range u.failedReads.list() {
		failed = append(failed, errors.New(read))
	}
	return failed
}

func (u *clients) longest() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.slowest
}

// awaitMore waits until there were more writes.
func (u *clients) awaitMore(t *testing.T) {
	t.Helper()
	count := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.requests
	}
	before := count()
	controlplane.Eventually(t, func() error {
		if count() < before+20 {
			return errors.New("the clients do not go on")
		}
		return nil
	})
}

// requireWritten requires that no write is lost.
func (u *clients) requireWritten(t *testing.T, found map[string]*unstructured.Unstructured) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	require.Greater(t, len(u.replicas), 10)
	for name, want := range u.replicas {
		object := found["pizzas/"+metav1.NamespaceDefault+"/"+name]
		if want == 0 {
			require.Nil(t, object, name)
			continue
		}
		require.NotNil(t, object, name)
		got, _, err := unstructured.NestedInt64(object.Object, "spec", "replicas")
		require.NoError(t, err)
		require.EqualValues(t, want, got, name)
	}
}

// writeByAlias writes to what kube-apiserver has of a pizza, by its other name: pizzas of a.b are pizzas.a
// of b. The user has permissions for that group only.
func (c *cluster) writeByAlias(t *testing.T, pizza string) error {
	t.Helper()
	head, parent, _ := strings.Cut(restaurant.GroupName, ".")
	c.kubectl(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: parent}
rules: [{apiGroups: [%q], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: parent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: parent}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: parent}]
`, parent), "apply", "--filename=-")
	config, err := c.RESTConfigFor("parent")
	require.NoError(t, err)
	client := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: parent, Version: "v1", Resource: "pizzas." + head}).Namespace(metav1.NamespaceDefault)
	// The role takes a moment. A policy refuses with another message.
	controlplane.Eventually(t, func() error {
		_, err = client.Patch(t.Context(), pizza, types.MergePatchType, []byte(`{"metadata":{"annotations":{"example.com/alias":"written"}}}`), metav1.PatchOptions{})
		if err != nil && strings.Contains(err.Error(), "cannot patch resource") {
			return err
		}
		return nil
	})
	return err
}

// informer is what a client that watches knows.
type informer struct {
	store cache.Store

	mu      sync.Mutex
	deleted []string
}

// watch starts an informer.
func (c *cluster) watch(t *testing.T) *informer {
	t.Helper()
	factory := externalversions.NewSharedInformerFactory(c.restaurant(), 0)
	pizzas := factory.Restaurant().V1().Pizzas().Informer()
	i := &informer{store: pizzas.GetStore()}
	_, err := pizzas.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.deleted = append(i.deleted, key)
		assert.NoError(t, err)
	}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.StartWithContext(ctx)
	require.True(t, cache.WaitForCacheSync(ctx.Done(), pizzas.HasSynced))
	return i
}

// require requires that the informer has seen all, and no deletion of what is there.
func (i *informer) require(t *testing.T, want map[string]*unstructured.Unstructured) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		pizzas := 0
		for key, object := range want {
			if object.GetKind() != "Pizza" {
				continue
			}
			pizzas++
			if _, found, err := i.store.GetByKey(object.GetNamespace() + "/" + object.GetName()); err != nil || !found {
				return fmt.Errorf("the informer lacks %s (%w)", key, err)
			}
		}
		if known := len(i.store.ListKeys()); known != pizzas {
			return fmt.Errorf("the informer has %d pizzas, and there are %d", known, pizzas)
		}
		return nil
	})
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, key := range i.deleted {
		require.NotContains(t, want, "pizzas/"+key, "It was told that it is deleted.")
	}
}

// follower is a client that lists and then goes on with a RetryWatcher, which never lists by itself.
type follower struct {
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)

	mu sync.Mutex
	// versions are the resourceVersions of the pizzas that it knows, by name.
	versions map[string]int64
	lists    int
	failed   []error
}

// follow starts a follower that watches in a way.
func (c *cluster) follow(t *testing.T, watch func(context.Context, metav1.ListOptions) (watch.Interface, error)) *follower {
	t.Helper()
	f := &follower{watch: watch}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := f.run(ctx, c.pizzas()); err != nil && ctx.Err() == nil {
				f.mu.Lock()
				f.failed = append(f.failed, err)
				f.mu.Unlock()
			}
		}
	})
	return f
}

// run follows until the history ends, which is no error.
func (f *follower) run(ctx context.Context, pizzas dynamic.ResourceInterface) error {
	list, err := pizzas.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil // client-go has tried ten times; it is listed again.
	}
	f.mu.Lock()
	f.lists++
	f.versions = map[string]int64{}
	for _, item := range list.Items {
		f.versions[item.GetName()] = 0
	}
	f.mu.Unlock()
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: f.watch})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	last := int64(0)
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				return err
			}
			return nil
		}
		pizza := event.Object.(*unstructured.Unstructured)
		version, err := strconv.ParseInt(pizza.GetResourceVersion(), 10, 64)
		if err != nil {
			return err
		}
		if err := f.see(event.Type, pizza.GetName(), version, last); err != nil {
			return err
		}
		last = version
	}
	return nil
}

// see returns an error if an event is doubled, or one before it was missed.
func (f *follower) see(event watch.EventType, name string, version, last int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.versions[name]
	if version <= last || known == (event == watch.Added) {
		return fmt.Errorf("%s %s at %d, after %d, while it is known: %t", event, name, version, last, known)
	}
	f.versions[name] = version
	if event == watch.Deleted {
		delete(f.versions, name)
	}
	return nil
}

// require requires that the follower knows all pizzas, and has seen each change once.
func (f *follower) require(t *testing.T, want map[string]*unstructured.Unstructured) {
	t.Helper()
	var pizzas []string
	for _, object := range want {
		if object.GetKind() == "Pizza" {
			pizzas = append(pizzas, object.GetName())
		}
	}
	slices.Sort(pizzas)
	controlplane.Eventually(t, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if known := slices.Sorted(maps.Keys(f.versions)); !slices.Equal(known, pizzas) {
			return fmt.Errorf("the RetryWatcher knows %v, and there are %v", known, pizzas)
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(t, f.failed)
	t.Logf("The RetryWatcher began %d times.", f.lists)
}
