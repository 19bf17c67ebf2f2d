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

package customresources

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// seen is a type of event and the name of its object.
type seen struct{ Type, Name string }

// Clients that are no informers lose no event when the server restarts. Some go on by the last
// resourceVersion, over WebSockets, too. Others list page by page.
func TestClientsAcrossARestart(t *testing.T) {
	framework.Long(t, "a server restarts")
	t.Parallel()
	const group = "clients.example.com"
	restarted, err := framework.NewCRDServer(cp, "crd-apiserver-of-clients", []string{group})
	require.NoError(t, err)
	require.NoError(t, restarted.Start(t.Context()))
	ns := framework.Namespace(t, cp)
	defineAt(t, restarted, widgets(group, false))
	create(t, group, "v1", ns, "first")
	create(t, group, "v1", ns, "second")
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	page, err := widgetsIn(group, "v1", ns).List(ctx, metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	version := page.GetResourceVersion()

	retried, err := toolswatch.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return widgetsIn(group, "v1", ns).Watch(ctx, options)
		},
	})
	require.NoError(t, err)
	defer retried.Stop()
	next := func() seen {
		t.Helper()
		select {
		case event := <-retried.ResultChan():
			object, ok := event.Object.(*unstructured.Unstructured)
			require.True(t, ok, "%v", event)
			return seen{string(event.Type), object.GetName()}
		case <-ctx.Done():
			require.NoError(t, ctx.Err())
			return seen{}
		}
	}
	socket := openSocket(ctx, t, group, ns, version)

	create(t, group, "v1", ns, "before")
	require.Equal(t, seen{"ADDED", "before"}, next())
	name, version := readSocket(t, socket)
	require.Equal(t, seen{"ADDED", "before"}, name)
	require.NoError(t, restarted.Restart(ctx))
	_, _, err = socket.ReadMessage()
	require.Error(t, err, "The WebSocket ends.")
	create(t, group, "v1", ns, "after")
	require.Equal(t, seen{"ADDED", "after"}, next())
	name, _ = readSocket(t, openSocket(ctx, t, group, ns, version))
	require.Equal(t, seen{"ADDED", "after"}, name)

	rest, err := widgetsIn(group, "v1", ns).List(ctx, metav1.ListOptions{Limit: 1, Continue: page.GetContinue()})
	require.NoError(t, err)
	require.Len(t, rest.Items, 1)
	require.Equal(t, "second", rest.Items[0].GetName())
	require.Empty(t, rest.GetContinue(), "The list is as of its first page.")
}

// openSocket watches over a WebSocket, as browsers do, through kube-apiserver.
// An informer that has watched kube-apiserver's objects sees those at the server once the group is registered. It
// kept its watch at kube-apiserver, and then began one at a revision that the server's etcd had not reached.
func TestInformerAcrossRegister(t *testing.T) {
	t.Parallel()
	const group = "informed.example.com"
	ns := framework.Namespace(t, cp)
	content, err := json.Marshal(widgets(group, false))
	require.NoError(t, err)
	apply(t, content)
	awaitServed(t, group, "v1")
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(framework.Dynamic(cp), 0, ns, nil)
	informer := factory.ForResource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}).Informer()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.Start(ctx.Done())
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, group))
	create(t, group, "v1", ns, "one")
	require.Eventually(t, func() bool {
		_, found, err := informer.GetStore().GetByKey(ns + "/one")
		return err == nil && found
	}, time.Minute, time.Second/10, "The informer does not see the widget.")
}

func openSocket(ctx context.Context, t *testing.T, group, namespace, version string) *websocket.Conn {
	t.Helper()
	path := "/apis/" + group + "/v1/namespaces/" + namespace + "/widgets?watch=true&resourceVersion=" + version
	var socket *websocket.Conn
	controlplane.Eventually(t, func() (err error) {
		socket, err = framework.DialSocket(ctx, framework.Config(cp), path)
		return err
	})
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// readSocket returns an event, and the resourceVersion of its object.
func readSocket(t *testing.T, socket *websocket.Conn) (event seen, version string) {
	t.Helper()
	_, content, err := socket.ReadMessage()
	require.NoError(t, err)
	var read struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	require.NoError(t, json.Unmarshal(content, &read))
	return seen{read.Type, read.Object.Name}, read.Object.ResourceVersion
}
