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
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A kube-apiserver that starts knows the definitions before the APIServices. It once answered for the objects by
// itself: they were not found, lists were empty, and the garbage collector deleted dependents.
func TestKubeAPIServerStarts(t *testing.T) {
	t.Parallel()
	for name, newCluster := range map[string]func(*testing.T) *cluster{"definitions": newDefinedCluster, "types": newCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			code, _, stderr := c.migrate(t, "run")
			require.Equal(t, 0, code, stderr)
			require.NoError(t, framework.AwaitOpenAPI(t.Context(), c.ControlPlane, restaurant.GroupName+"/v1alpha1", restaurant.GroupName+"/v1beta1", restaurant.GroupName+"/v1"))
			c.requireTruth(t)
		})
	}
}

// requireTruth starts kube-apiserver again and again, while clients read and create, and requires that no answer says
// that an object does not exist that does, and that no dependent goes.
func (c *cluster) requireTruth(t *testing.T) {
	t.Helper()
	starts := 3
	if !testing.Short() {
		starts = 50
	}
	controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "owner", nil) })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	readers, created := c.readers(t), make([][]string, 4)
	for _, reader := range readers {
		all.Go(func() {
			for every(ctx, 2*time.Millisecond) {
				reader.read(ctx)
			}
		})
	}
	informer := c.watch(t)
	for i := range created {
		all.Go(func() {
			for n := 0; every(ctx, 2*time.Millisecond); n++ {
				name := fmt.Sprintf("created-%d-%d", i, n)
				if c.createPizza(t, c.restaurant(), name, nil) == nil && c.own(ctx, name) == nil {
					created[i] = append(created[i], name)
				}
			}
		})
	}
	for range starts {
		c.KubeAPIServer.Kill()
		require.NoError(t, c.KubeAPIServer.Start(t.Context()))
	}
	// What the garbage collector finds after this, it has found before.
	controlplane.Eventually(t, func() error { return c.createPizza(t, c.restaurant(), "gone-owner", nil) })
	controlplane.Eventually(t, func() error { return c.own(t.Context(), "gone-owner") })
	require.NoError(t, c.pizzas().Delete(t.Context(), "gone-owner", metav1.DeleteOptions{}))
	controlplane.Eventually(t, func() error {
		return gone(framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), "of-gone-owner", metav1.GetOptions{}))
	})
	stop()
	all.Wait()
	for _, reader := range readers {
		require.Empty(t, reader.wrong, "%s, of %d answers", reader.url, reader.answers)
		require.NotZero(t, reader.answers, reader.url)
	}
	found := c.everything(t)
	list, err := framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	dependents := sets.New[string]()
	for _, configMap := range list.Items {
		dependents.Insert(configMap.Name)
	}
	t.Logf("%d objects own %d others", len(found), len(dependents))
	for _, name := range slices.Concat(created...) {
		require.NotNil(t, found["pizzas/"+metav1.NamespaceDefault+"/"+name], "%s is lost, of %d", name, len(found))
		require.True(t, dependents.Has("of-"+name), "The dependent of %s is lost.", name)
	}
	informer.require(t, found)
}

// own creates a ConfigMap that a pizza owns.
func (c *cluster) own(ctx context.Context, pizza string) error {
	owner, err := c.pizzas().Get(ctx, pizza, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = framework.Kube(c.ControlPlane).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "of-" + pizza,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: pizza, UID: owner.GetUID()}},
	}}, metav1.CreateOptions{})
	return err
}

// reader reads one path of a pizza that exists.
type reader struct {
	client *http.Client
	url    string
	// complete is in an answer that has all objects.
	complete string
	answers  int
	wrong    []string
}

func (c *cluster) readers(t *testing.T) []*reader {
	t.Helper()
	config := framework.Config(c.ControlPlane) // Allowed from the first moment on.
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	var readers []*reader
	for _, version := range []string{"v1alpha1", "v1beta1", "v1"} {
		group := config.Host + "/apis/" + restaurant.GroupName + "/" + version
		readers = append(readers,
			&reader{client: client, url: group + "/namespaces/default/pizzas/owner"},
			&reader{client: client, url: group + "/namespaces/default/pizzas?resourceVersion=0"},
			&reader{client: client, url: group + "/pizzas?fieldSelector=metadata.name=owner"},
			&reader{client: client, url: group + "/pizzas?watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", complete: metav1.InitialEventsAnnotationKey})
	}
	return readers
}

// read notes an answer that is neither true nor says that there is none. Some of the latter are without Retry-After:
// kube-apiserver may know an APIService before it knows the Service.
func (r *reader) read(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		r.wrong = append(r.wrong, err.Error())
		return
	}
	response, err := r.client.Do(req)
	if err != nil {
		return // kube-apiserver does not run.
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	r.answers++
	switch {
	case response.Header.Get("Retry-After") != "", response.StatusCode == http.StatusServiceUnavailable,
		response.StatusCode == http.StatusOK && (err != nil || !strings.Contains(string(body), r.complete)):
	case response.StatusCode != http.StatusOK || !strings.Contains(string(body), `"name":"owner"`):
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %s %.300s", time.Now().Format(time.RFC3339Nano), response.Status, body))
	}
}
