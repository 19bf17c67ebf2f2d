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
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"restaurant.programming-kubernetes.info/apiserver/test/bench/machine"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	manyGroup = "many.example.com"
	// manyNamespaces is how many there are. The last has few objects, which are read all the time.
	manyNamespaces = 5
	// writesPerSecond are those of the clients.
	writesPerSecond = 50
	// ownsConfigMap is one of how many objects owns a ConfigMap.
	ownsConfigMap = 100
)

const manyDefinition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.many.example.com}, spec: {
	group: many.example.com, scope: Namespaced, names: {plural: things, singular: thing, kind: Thing},
	versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, properties: {
		spec: {type: object, properties: {value: {type: integer}, payload: {type: string}}},
		status: {type: object, properties: {observed: {type: integer}}}}}}}]}}`

var things = schema.GroupVersionResource{Group: manyGroup, Version: "v1", Resource: "things"}

// MIGRATION_OBJECTS objects in five namespaces move to a server and back. They have owners,
// dependents, finalizers and several managers, and some are in deletion. Clients write 50 times a
// second meanwhile, and informers run. Nothing is lost, and nobody is told what has not happened.
// Which of the two etcds is ahead at first makes no difference.
func TestManyObjects(t *testing.T) {
	framework.Long(t, "many objects are moved")
	for name, test := range map[string]struct{ serverAhead, byEtcd bool }{
		// The names are short, since the path of a socket is.
		"etcd": {serverAhead: true, byEtcd: true},
		"api":  {serverAhead: false, byEtcd: false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newManyCluster(t, int(number(t, "MIGRATION_OBJECTS", 500)))
			if test.serverAhead {
				raiseFar(t, c.cluster)
			}
			var args []string
			if test.byEtcd {
				args = c.kubeEtcd(t)
			}
			c.thereAndBack(t, args)
		})
	}
}

// manyCluster serves things from a definition, and has a server of custom resources.
type manyCluster struct {
	*cluster
	// names are the objects, as namespace/name, that are there from the beginning.
	names  []string
	client dynamic.Interface
}

func newManyCluster(t *testing.T, objects int) *manyCluster {
	t.Helper()
	cp := controlplane.ForTest(t, controlplane.Config{APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}}})
	c := &manyCluster{cluster: &cluster{
		ControlPlane: cp, raise: raiseRevision, operator: newOperator(t, cp),
		binary: "crd-apiserver", flags: []string{"--service-namespace=crd-apiserver", "--groups=" + manyGroup},
	}}
	c.client = dynamic.NewForConfigOrDie(c.config())
	c.kubectl(t, manyDefinition, "create", "--filename=-")
	framework.Kubectl(t, cp, "wait", "--for=condition=Established", "customresourcedefinition/things."+manyGroup)
	require.NoError(t, framework.InstallCRDServer(t.Context(), cp))
	var err error
	c.server, err = framework.NewCRDServer(cp, "crd-apiserver", []string{manyGroup})
	require.NoError(t, err)
	require.NoError(t, c.server.Start(t.Context()))
	c.dataDir = filepath.Join(c.server.Dir(), "data")
	for i := range manyNamespaces {
		framework.Kubectl(t, cp, "create", "namespace", namespaceOf(i))
	}
	c.fill(t, objects)
	return c
}

func namespaceOf(i int) string { return fmt.Sprintf("many-%d", i) }

// raiseFar makes the server's etcd go on far above where kube-apiserver's is.
func raiseFar(t *testing.T, c *cluster) {
	t.Helper()
	list, err := c.Kubectl(t.Context(), "get", "--raw=/api/v1/namespaces?limit=1").Output()
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(list), `"resourceVersion":"`)
	text, _, _ := strings.Cut(after, `"`)
	now, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	etcd := c.etcd(t)
	var workers errgroup.Group
	for range 32 {
		workers.Go(func() error {
			for {
				response, err := etcd.Put(t.Context(), "/revision", "")
				if err != nil || response.Header.Revision > now+20_000 {
					return err
				}
			}
		})
	}
	require.NoError(t, workers.Wait())
}

// template creates an object in the way of its kind, and returns it as kube-apiserver has stored it.
func (c *manyCluster) template(t *testing.T, name string, finalized, deleted bool) *unstructured.Unstructured {
	t.Helper()
	client := c.client.Resource(things).Namespace(namespaceOf(0))
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": things.GroupVersion().String(), "kind": "Thing",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"template": name}},
		"spec":     map[string]any{"value": int64(1), "payload": strings.Repeat("x", 400)},
	}}
	if finalized {
		object.SetFinalizers([]string{"example.com/kept"})
	}
	_, err := client.Create(t.Context(), object, metav1.CreateOptions{FieldManager: "creator"})
	require.NoError(t, err)
	_, err = client.Patch(t.Context(), name, types.ApplyPatchType, fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Thing","metadata":{"annotations":{"example.com/applied":"yes"}}}`, things.GroupVersion()),
		metav1.PatchOptions{FieldManager: "applier"})
	require.NoError(t, err)
	_, err = client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"observed":1}}`), metav1.PatchOptions{FieldManager: "controller"}, "status")
	require.NoError(t, err)
	if deleted {
		require.NoError(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	object, err = client.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	object.SetResourceVersion("")
	return object
}

// fill makes objects by writing copies of some into kube-apiserver's etcd, with names and UIDs of
// their own. Of ten, one is owned by the one before it, and two have finalizers. Of a hundred, one
// is being deleted, and one owns a ConfigMap.
func (c *manyCluster) fill(t *testing.T, objects int) {
	t.Helper()
	plain, finalized, deleted := c.template(t, "plain", false, false), c.template(t, "finalized", true, false), c.template(t, "deleted", true, true)
	etcd := framework.EtcdClient(t, c.ControlPlane, c.Etcd)
	began := time.Now()
	var workers errgroup.Group
	workers.SetLimit(64)
	var owner *unstructured.Unstructured
	for i := range objects {
		object := plain.DeepCopy()
		switch {
		case i%100 == 7:
			object = deleted.DeepCopy()
		case i%5 == 3:
			object = finalized.DeepCopy()
		}
		namespace := namespaceOf(i / 10 % (manyNamespaces - 1))
		if i < 10 {
			namespace = namespaceOf(manyNamespaces - 1)
		}
		object.SetNamespace(namespace)
		object.SetName(fmt.Sprintf("thing-%d", i))
		object.SetUID(uuid.NewUUID())
		object.SetCreationTimestamp(metav1.NewTime(began.Add(-time.Duration(i) * time.Second)))
		if i%10 == 1 {
			object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: things.GroupVersion().String(), Kind: "Thing", Name: owner.GetName(), UID: owner.GetUID()}})
		}
		owner = object
		c.names = append(c.names, namespace+"/"+object.GetName())
		data, err := object.MarshalJSON()
		require.NoError(t, err)
		workers.Go(func() error {
			_, err := etcd.Put(t.Context(), "/registry/"+manyGroup+"/things/"+namespace+"/"+object.GetName(), string(data))
			return err
		})
	}
	require.NoError(t, workers.Wait())
	for i := 0; i < objects; i += ownsConfigMap {
		namespace, name, _ := strings.Cut(c.names[i], "/")
		owner, err := c.client.Resource(things).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		_, err = framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "of-" + name, Labels: map[string]string{"dependent": "yes"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: name, UID: owner.GetUID()}},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	t.Logf("%d objects were created in %s", objects, time.Since(began).Round(time.Second))
}

// all returns all objects by namespace/name, as JSON without what differs between two servers, and
// the resourceVersion of each.
func (c *manyCluster) all(t *testing.T) (objects, revisions map[string]string) {
	t.Helper()
	objects, revisions = map[string]string{}, map[string]string{}
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (_ runtime.Object, err error) {
		return c.client.Resource(things).List(ctx, options)
	})
	err := list.EachListItem(t.Context(), metav1.ListOptions{}, func(item runtime.Object) error {
		object, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("it is a %T", item)
		}
		key := object.GetNamespace() + "/" + object.GetName()
		revisions[key] = object.GetResourceVersion()
		object.SetResourceVersion("")
		data, err := object.MarshalJSON()
		objects[key] = string(data)
		return err
	})
	require.NoError(t, err)
	return objects, revisions
}

// dependents is how many ConfigMaps are left.
func (c *manyCluster) dependents(t *testing.T) int {
	t.Helper()
	list, err := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{LabelSelector: "dependent=yes"})
	require.NoError(t, err)
	return len(list.Items)
}

func (c *manyCluster) thereAndBack(t *testing.T, args []string) {
	t.Helper()
	before, _ := c.all(t)
	dependents := c.dependents(t)
	require.Positive(t, dependents)
	informer := c.inform(t)
	users := c.startUsers(t)

	c.moveMany(t, "run", users)
	users.awaitMore(t)
	requireStayed(t, users, before, c)
	c.moveMany(t, "back", users, args...)
	users.awaitMore(t)
	users.stop()
	require.Empty(t, users.failures(), "Clients notice nothing but a pause.")
	requireStayed(t, users, before, c)
	users.requireWritten(t)
	informer.require(t, c, users)

	// When the garbage collector has deleted what it should, it has seen all of that.
	namespace, name, _ := strings.Cut(c.names[0], "/")
	configMaps := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(namespace)
	require.NoError(t, c.client.Resource(things).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error { return gone(configMaps.Get(t.Context(), "of-"+name, metav1.GetOptions{})) })
	require.Equal(t, dependents-1, c.dependents(t))
	require.Empty(t, users.failedReads.list(), "No read has to be repeated.")
}

// requireStayed requires that each object is as it was, but for what users have changed in it.
func requireStayed(t *testing.T, users *users, before map[string]string, c *manyCluster) {
	t.Helper()
	now, _ := c.all(t)
	for key, want := range before {
		got, found := now[key]
		require.True(t, found, "%s is lost", key)
		if got == want {
			continue
		}
		require.True(t, users.wrote(key), "%s: %s", key, cmp.Diff(parse(t, want), parse(t, got)))
		was, is := parse(t, want), parse(t, got)
		require.Equal(t, was.GetUID(), is.GetUID(), key)
		require.Equal(t, was.GetCreationTimestamp(), is.GetCreationTimestamp(), key)
		require.Equal(t, was.GetDeletionTimestamp(), is.GetDeletionTimestamp(), key)
		require.Equal(t, was.GetOwnerReferences(), is.GetOwnerReferences(), key)
		require.Equal(t, was.GetFinalizers(), is.GetFinalizers(), key)
	}
}

func parse(t *testing.T, data string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON([]byte(data)))
	return object
}

// moveMany runs a command of "migrate" and prints how long its phases took.
func (c *manyCluster) moveMany(t *testing.T, command string, users *users, args ...string) {
	t.Helper()
	users.resetSlowest()
	cmd := exec.CommandContext(t.Context(), framework.Program(t, c.ControlPlane, c.binary), append(c.args(command), args...)...)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, cmd.Start())
	phases := map[string]time.Duration{}
	var said []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		at := time.Since(began)
		said = append(said, fmt.Sprintf("%8.3f s  %s", at.Seconds(), lines.Text()))
		if !strings.Contains(lines.Text(), " ") {
			phases[lines.Text()] = at
		}
	}
	err = cmd.Wait()
	t.Logf("%s:\n%s", command, strings.Join(said, "\n"))
	require.NoError(t, err)
	// It says so after it has let clients write, and then still answers what is on its way.
	released := max(phases["Moved"], phases["Returned"])
	slowest, writes := users.slowestWrite()
	mib := func(pid int) int64 {
		_, peak, err := machine.Resident(pid)
		require.NoError(t, err)
		return peak >> 20
	}
	var own int64
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		own = usage.Maxrss >> 10
	}
	t.Logf("%s of %d objects: copying %.1f s, writes wait %.1f s, longest write of %d %.1f s; memory in MiB at most: migrate %d, %s %d, kube-apiserver %d, etcd %d",
		command, len(c.names), (phases["Freezing"] - phases["Copying"]).Seconds(), (released - phases["Freezing"]).Seconds(), writes, slowest.Seconds(),
		own, c.server.Name(), mib(c.server.PID()), mib(c.KubeAPIServer.PID()), mib(c.Etcd.PID()))
}

// users read, and write 50 times a second. They try again what has to wait, and no more.
type users struct {
	c           *manyCluster
	stop        func()
	failedReads *failures

	mu sync.Mutex
	// values are those of each object whose write was acknowledged, and 0 if it is deleted.
	values  map[string]int64
	writes  int
	slowest time.Duration
	failed  failures
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

func (c *manyCluster) startUsers(t *testing.T) *users {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	u := &users{c: c, failedReads: &failures{}, values: map[string]int64{}}
	var wg sync.WaitGroup
	u.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(u.stop)
	config := c.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return reads{next, u.failedReads} })
	reader := dynamic.NewForConfigOrDie(config)
	// Each makes three writes in three seconds, unless one has to wait.
	for client := range writesPerSecond {
		wg.Go(func() {
			if !every(ctx, 3*time.Second/writesPerSecond*time.Duration(client)) {
				return
			}
			for next := time.NewTicker(3 * time.Second); ; {
				u.write(t.Context())
				select {
				case <-next.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Go(func() {
		for every(ctx, 20*time.Millisecond) {
			namespace, name, _ := strings.Cut(c.names[rand.IntN(len(c.names))], "/")
			if _, err := reader.Resource(things).Namespace(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil && ctx.Err() == nil {
				u.failed.add("reading %s: %v", name, err)
			}
		}
	})
	for _, options := range []metav1.ListOptions{{}, {ResourceVersion: "0"}} {
		wg.Go(func() {
			for every(ctx, 50*time.Millisecond) {
				list, err := reader.Resource(things).Namespace(namespaceOf(manyNamespaces-1)).List(ctx, options)
				if err == nil && len(list.Items) != 10 {
					err = fmt.Errorf("there are %d", len(list.Items))
				}
				if err != nil && ctx.Err() == nil {
					u.failed.add("listing: %v", err)
				}
			}
		})
	}
	return u
}

// every waits, and says whether to go on.
func every(ctx context.Context, interval time.Duration) bool {
	select {
	case <-time.After(interval):
		return true
	case <-ctx.Done():
		return false
	}
}

// write is what one client does, in three writes. It creates an object, or changes one that has
// been there. It changes that again, and deletes every second of its own.
func (u *users) write(ctx context.Context) {
	number := rand.Int64N(1 << 40)
	key := fmt.Sprintf("%s/written-%d", namespaceOf(int(number)%(manyNamespaces-1)), number)
	own := number%4 > 0
	if !own {
		// Not those that others list, or that the test deletes.
		key = u.c.names[10+rand.IntN(len(u.c.names)-10)]
		if !u.reserve(key) {
			return
		}
	}
	namespace, name, _ := strings.Cut(key, "/")
	client := u.c.client.Resource(things).Namespace(namespace)
	set := func(value int64) error {
		_, err := client.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"value":%d}}`, value), metav1.PatchOptions{FieldManager: "user"})
		return err
	}
	if own {
		u.do(key, 1, func() error {
			_, err := client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": things.GroupVersion().String(), "kind": "Thing", "metadata": map[string]any{"name": name}, "spec": map[string]any{"value": int64(1)},
			}}, metav1.CreateOptions{FieldManager: "user"})
			return err
		})
	} else {
		u.do(key, 2, func() error { return set(2) })
	}
	u.do(key, number+3, func() error { return set(number + 3) })
	if own && number%2 == 0 {
		u.do(key, 0, func() error { return client.Delete(ctx, name, metav1.DeleteOptions{}) })
	} else {
		u.do(key, number+4, func() error { return set(number + 4) })
	}
}

// reserve keeps two clients from writing the same object, or one that is being deleted.
func (u *users) reserve(key string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, taken := u.values[key]; taken {
		return false
	}
	u.values[key] = 1
	return true
}

func (u *users) do(key string, value int64, write func() error) {
	began := time.Now()
	err := write()
	// client-go has tried ten times, which is not enough on a busy machine.
	for apierrors.IsTooManyRequests(err) {
		err = write()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.slowest = max(u.slowest, time.Since(began))
	u.writes++
	if err != nil {
		u.failed.add("writing %s: %v", key, err)
		return
	}
	u.values[key] = value
}

func (u *users) failures() []string { return u.failed.list() }

func (u *users) wrote(key string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, found := u.values[key]
	return found
}

func (u *users) resetSlowest() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.slowest, u.writes = 0, 0
}

func (u *users) slowestWrite() (slowest time.Duration, writes int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.slowest, u.writes
}

// awaitMore waits until there were more writes.
func (u *users) awaitMore(t *testing.T) {
	t.Helper()
	_, before := u.slowestWrite()
	controlplane.Eventually(t, func() error {
		if _, now := u.slowestWrite(); now < before+2*writesPerSecond {
			return errors.New("the clients do not go on")
		}
		return nil
	})
}

// requireWritten requires that each write that was acknowledged is there.
func (u *users) requireWritten(t *testing.T) {
	t.Helper()
	now, _ := u.c.all(t)
	u.mu.Lock()
	defer u.mu.Unlock()
	require.Greater(t, len(u.values), writesPerSecond)
	for key, want := range u.values {
		data, found := now[key]
		require.Equal(t, want != 0, found, key)
		if found {
			got, _, err := unstructured.NestedInt64(parse(t, data).Object, "spec", "value")
			require.NoError(t, err)
			require.Equal(t, want, got, key)
		}
	}
	for key := range now {
		_, written := u.values[key]
		require.True(t, written || !strings.Contains(key, "/written-"), "%s was not written, or deleted", key)
	}
}

// manyInformer is what a client that watches the metadata of all objects knows.
type manyInformer struct {
	store   cache.Store
	mu      sync.Mutex
	deleted []string
}

func (c *manyCluster) inform(t *testing.T) *manyInformer {
	t.Helper()
	informer := metadatainformer.NewFilteredMetadataInformer(metadata.NewForConfigOrDie(c.config()), things, "", 0, cache.Indexers{}, nil).Informer()
	i := &manyInformer{store: informer.GetStore()}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if err != nil {
			assert.Fail(t, err.Error())
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.deleted = append(i.deleted, key)
	}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	wg.Go(func() { informer.RunWithContext(ctx) })
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	return i
}

// require requires that the informer has each object as it is, and was told of no deletion but
// those that were.
func (i *manyInformer) require(t *testing.T, c *manyCluster, users *users) {
	t.Helper()
	_, want := c.all(t)
	controlplane.Eventually(t, func() error {
		known := map[string]string{}
		for _, item := range i.store.List() {
			object, ok := item.(metav1.Object)
			if !ok {
				return fmt.Errorf("it has a %T", item)
			}
			known[object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
		}
		if diff := cmp.Diff(want, known); diff != "" {
			return fmt.Errorf("the informer has not what there is: %.2000s", diff)
		}
		return nil
	})
	i.mu.Lock()
	defer i.mu.Unlock()
	users.mu.Lock()
	defer users.mu.Unlock()
	for _, key := range i.deleted {
		value, written := users.values[key]
		require.True(t, written && value == 0, "It was told that %s is deleted.", key)
	}
}
